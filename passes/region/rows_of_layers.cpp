// Rows of layers: convolutions, norms, pools, products and attention.
#include "passes/region/row_question.h"

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

// Samples and channels; a single image has no dimension of samples.
Answerer pool(size_t spatial) {
  return [spatial](const Question& question) -> Answer {
    const auto* sizes = question.operand(0);
    if (sizes == nullptr || sizes->size() <= spatial)
      return std::nullopt;
    return leading(sizes->size() - spatial)(question);
  };
}

// The operands of a convolution are input, weight and bias.
struct ConvolutionSizes {
  const Sizes* input = nullptr;
  const Sizes* weight = nullptr;
  int64_t groups = 0;
  bool is_transposed = false;

  bool is_depthwise() const {
    return (*input)[1] == groups && (*weight)[0] == groups && (*weight)[1] == 1;
  }
};

// Returns nothing for a single image, without a dimension of samples.
std::optional<ConvolutionSizes> convolution_sizes(const Question& question) {
  const ConvolutionSizes sizes{
      question.operand(0), question.operand(1), question.integer("groups").value_or(0),
      std::string(question.node()->kind().toUnqualString()).find("transpose") != std::string::npos};
  if (sizes.input == nullptr || sizes.weight == nullptr ||
      sizes.input->size() != sizes.weight->size() || sizes.groups < 1)
    return std::nullopt;
  return sizes;
}

// Samples, or channels of the result: in one group, each of them reads all channels of the input.
Answer convolution(const Question& question) {
  const auto sizes = convolution_sizes(question);
  if (!sizes || question.dimension() > 1)
    return std::nullopt;
  if (question.dimension() == 0)
    return leading(1)(question);
  Rows rows(question.num_operands(), kWhole);
  if (question.operand(2) != nullptr)
    rows[2] = 0;
  if (sizes->groups == 1)
    rows[1] = sizes->is_transposed ? 1 : 0;
  else if (sizes->is_depthwise())
    rows[0] = 1, rows[1] = 0;
  else
    return std::nullopt;
  return rows;
}

}  // namespace

Answer convolution_over_channels(const Question& question,
                                 const std::vector<std::optional<int64_t>>& known_rows) {
  const auto sizes = convolution_sizes(question);
  const auto of_weight = sizes && sizes->is_transposed ? int64_t{0} : int64_t{1};
  if (!sizes || sizes->groups != 1 || known_rows[0].value_or(1) != 1 ||
      known_rows[1].value_or(of_weight) != of_weight)
    return std::nullopt;
  Rows rows(question.num_operands(), kWhole);
  rows[0] = 1;
  rows[1] = of_weight;
  return rows;
}

namespace {

Answer norm_over_batch(const Question& question) {
  const auto training = question.constant("training");
  if (!training || !training->isBool() || training->toBool() || question.dimension() == 1)
    return std::nullopt;
  return as_first(question);
}

Answer instance_norm(const Question& question) {
  const auto statistics = question.constant("running_mean");
  if (!statistics || !statistics->isNone())
    return std::nullopt;
  return leading(1)(question);
}

Answer layer_norm(const Question& question) {
  const auto* schema = question.node()->maybeSchema();
  const auto* shape = question.node()->input(
      static_cast<size_t>(*schema->argumentIndexWithName("normalized_shape")));
  const auto constant = torch::jit::toIValue(shape);
  size_t normalized = 0;
  if (constant && constant->isIntList())
    normalized = constant->toIntVector().size();
  else if (shape->node()->kind() == c10::prim::ListConstruct)
    normalized = shape->node()->inputs().size();
  else
    return std::nullopt;
  return except_last(normalized)(question);
}

Answer linear(const Question& question) {
  const auto* weight = question.operand(1);
  const auto rank = static_cast<int64_t>(question.result()->size());
  if (weight == nullptr || weight->size() != 2 || question.dimension() != rank - 1)
    return except_last(1)(question);
  auto rows = question.only(1, 0);
  if (question.operand(2) != nullptr)
    rows[2] = 0;
  return rows;
}

// matmul() of the operands `first` and the one after it.
Answer product_of(const Question& question, size_t first) {
  const auto* left = question.operand(first);
  const auto* right = question.operand(first + 1);
  if (left == nullptr || right == nullptr || left->empty() || right->empty())
    return std::nullopt;
  const auto rank = static_cast<int64_t>(question.result()->size());
  const auto dimension = question.dimension();
  Rows rows(question.num_operands(), kWhole);
  if (right->size() == 1) {
    rows[first] = dimension;
  } else if (left->size() == 1) {
    rows[first + 1] = dimension == rank - 1 ? static_cast<int64_t>(right->size()) - 1 : dimension;
  } else if (dimension == rank - 1) {
    rows[first + 1] = static_cast<int64_t>(right->size()) - 1;
  } else if (dimension == rank - 2) {
    rows[first] = static_cast<int64_t>(left->size()) - 2;
  } else {
    const auto row_of_left = question.broadcast(first, 2);
    const auto row_of_right = question.broadcast(first + 1, 2);
    if (!row_of_left || !row_of_right)
      return std::nullopt;
    rows[first] = *row_of_left;
    rows[first + 1] = *row_of_right;
  }
  return rows;
}

Answer product(const Question& question) {
  return product_of(question, 0);
}

Answer product_plus(const Question& question) {
  auto rows = product_of(question, 1);
  const auto row_of_addend = question.broadcast(0);
  if (!rows || !row_of_addend)
    return std::nullopt;
  (*rows)[0] = *row_of_addend;
  return rows;
}

Answer attention(const Question& question) {
  const auto dropout = question.constant("dropout_p");
  const auto causal = question.constant("is_causal");
  const auto* query = question.operand(0);
  const auto* key = question.operand(1);
  const auto* value = question.operand(2);
  if (!dropout || !dropout->isDouble() || dropout->toDouble() != 0.0 || query == nullptr ||
      key == nullptr || value == nullptr || query->size() != key->size() ||
      query->size() != value->size() || !causal || !causal->isBool())
    return std::nullopt;
  const auto rank = static_cast<int64_t>(query->size());
  const auto dimension = question.dimension();
  Rows rows(question.num_operands(), kWhole);
  rows[0] = dimension;
  if (dimension < rank - 2) {
    if ((*key)[dimension] != (*query)[dimension] || (*value)[dimension] != (*query)[dimension])
      return std::nullopt;
    rows[1] = rows[2] = dimension;
  } else if (dimension != rank - 2 || causal->toBool()) {
    return std::nullopt;
  }
  const auto row_of_mask = question.broadcast(3);
  if (!row_of_mask)
    return std::nullopt;
  rows[3] = *row_of_mask;
  return rows;
}

}  // namespace

std::vector<std::string> letters_of_einsum(const Question& question) {
  const auto equation = question.constant("equation");
  if (!equation || !equation->isString())
    return {};
  std::string text;
  for (const char letter : equation->toStringRef()) {
    if (letter != ' ')
      text += letter;
  }
  const auto arrow = text.find("->");
  if (arrow == std::string::npos || text.find('.') != std::string::npos)
    return {};
  std::vector<std::string> letters(1);
  for (const char letter : text.substr(0, arrow)) {
    if (letter == ',')
      letters.emplace_back();
    else if (letters.back().find(letter) != std::string::npos)
      return {};
    else
      letters.back() += letter;
  }
  letters.push_back(text.substr(arrow + 2));
  return letters;
}

Answer along_letter(const Question& question, const std::vector<std::string>& letters,
                    char letter) {
  Rows rows(question.num_operands(), kWhole);
  for (size_t i = 0; i + 1 < letters.size(); ++i) {
    const auto place = letters[i].find(letter);
    const auto* sizes = question.operand(i + 1);
    if (sizes == nullptr || sizes->size() != letters[i].size())
      return std::nullopt;
    if (place == std::string::npos)
      continue;
    if ((*sizes)[place] == 1)
      question.note_broadcast(i + 1, static_cast<int64_t>(place));
    else
      rows[i + 1] = static_cast<int64_t>(place);
  }
  return rows;
}

namespace {

Answer einsum(const Question& question) {
  const auto letters = letters_of_einsum(question);
  if (letters.empty() || letters.back().size() != question.result()->size())
    return std::nullopt;
  return along_letter(question, letters, letters.back().at(question.dimension()));
}

// The result has the dimensions of the first operand that are not contracted, and then those of the
// second one.
Answer tensordot(const Question& question) {
  auto dimension = question.dimension();
  for (const size_t operand : {0, 1}) {
    const auto* sizes = question.operand(operand);
    const auto contracted = sizes == nullptr
                                ? std::nullopt
                                : question.dimensions_argument(
                                      operand == 0 ? "dims_self" : "dims_other", sizes->size());
    if (!contracted)
      return std::nullopt;
    for (int64_t i = 0; i < static_cast<int64_t>(sizes->size()); ++i) {
      if (!contains(*contracted, i) && dimension-- == 0)
        return question.only(operand, i);
    }
  }
  return std::nullopt;
}

}  // namespace

void add_rows_of_layers(AnswerTable& table) {
  const AnswerTable added{
      {"aten::adaptive_avg_pool1d", pool(1)},
      {"aten::adaptive_avg_pool2d", pool(2)},
      {"aten::adaptive_avg_pool3d", pool(3)},
      {"aten::addmm", product_plus},
      {"aten::avg_pool1d", pool(1)},
      {"aten::avg_pool2d", pool(2)},
      {"aten::avg_pool3d", pool(3)},
      {"aten::baddbmm", product_plus},
      {"aten::batch_norm", norm_over_batch},
      {"aten::bmm", product},
      {"aten::conv1d", convolution},
      {"aten::conv2d", convolution},
      {"aten::conv3d", convolution},
      {"aten::conv_transpose1d", convolution},
      {"aten::conv_transpose2d", convolution},
      {"aten::conv_transpose3d", convolution},
      {"aten::einsum", einsum},
      {"aten::instance_norm", instance_norm},
      {"aten::layer_norm", layer_norm},
      {"aten::linear", linear},
      {"aten::matmul", product},
      {"aten::max_pool1d", pool(1)},
      {"aten::max_pool2d", pool(2)},
      {"aten::max_pool3d", pool(3)},
      {"aten::mm", product},
      {"aten::rms_norm", layer_norm},
      {"aten::scaled_dot_product_attention", attention},
      {"aten::tensordot", tensordot},
  };
  table.insert(added.begin(), added.end());
}

}  // namespace aten_recompute
