#include "passes/region/row_dimensions.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "runtime/sliced.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;
using Sizes = std::vector<int64_t>;
// Per flat operand.
using Rows = std::vector<int64_t>;

bool is_tensor_list(const Value* value) {
  return value->type()->kind() == c10::TypeKind::ListType && contains_tensor(*value->type());
}

// A node and a dimension of its results.
class Question {
 public:
  Question(const Node* node, int64_t dimension, const KnownTensors& known)
      : node_(node), dimension_(dimension), known_(known), operands_(flat_operands(node)) {}

  const Node* node() const { return node_; }
  int64_t dimension() const { return dimension_; }
  size_t num_operands() const { return operands_.size(); }

  // Returns the sizes of a flat operand; nullptr for one that is no tensor.
  const Sizes* operand(size_t index) const {
    return index < operands_.size() ? sizes_of(operands_[index], known_) : nullptr;
  }
  const Sizes* result() const { return sizes_of(node_->outputs()[0], known_); }
  at::ScalarType dtype_of_operand(size_t index) const {
    return known_.at(operands_[index]->unique()).at(0).dtype;
  }

  // Returns an argument by its name in the schema, if it is constant.
  std::optional<c10::IValue> constant(const char* argument) const {
    const auto* schema = node_->maybeSchema();
    const auto index = schema == nullptr ? std::nullopt : schema->argumentIndexWithName(argument);
    return index ? torch::jit::toIValue(node_->input(static_cast<size_t>(*index))) : std::nullopt;
  }

  std::optional<int64_t> integer(const char* argument) const {
    const auto value = constant(argument);
    return value && value->isInt() ? std::optional(value->toInt()) : std::nullopt;
  }

  // Returns a constant argument that is a dimension of a tensor of this rank.
  std::optional<int64_t> dimension_argument(const char* argument, size_t rank) const {
    auto value = integer(argument);
    if (value && *value < 0)
      *value += static_cast<int64_t>(rank);
    return value;
  }

  // Returns a constant list of dimensions, or a single one; an empty list if it is None.
  std::optional<Sizes> dimensions_argument(const char* argument, size_t rank) const {
    const auto value = constant(argument);
    if (!value)
      return std::nullopt;
    Sizes dimensions;
    if (value->isInt())
      dimensions.push_back(value->toInt());
    else if (value->isIntList())
      dimensions = value->toIntVector();
    else if (!value->isNone())
      return std::nullopt;
    for (auto& dimension : dimensions)
      dimension += dimension < 0 ? static_cast<int64_t>(rank) : 0;
    return dimensions;
  }

  // Slices of operand 0 along `dimension`, and all of the others.
  Rows only_first(int64_t dimension) const { return only(0, dimension); }
  Rows only(size_t operand, int64_t dimension) const {
    Rows rows(operands_.size(), kWhole);
    rows.at(operand) = dimension;
    return rows;
  }

  // The dimension of a flat operand that broadcasting puts at `dimension` of the result; kWhole
  // where it has none or is repeated there. `trailing`: so many of its last dimensions do not take
  // part.
  std::optional<int64_t> broadcast(size_t index, size_t trailing = 0) const {
    const auto* sizes = operand(index);
    if (sizes == nullptr)
      return kWhole;
    const auto rank = static_cast<int64_t>(result()->size());
    const auto own = dimension_ - (rank - static_cast<int64_t>(sizes->size()));
    if (own < 0)
      return kWhole;
    if (own >= static_cast<int64_t>(sizes->size() - trailing))
      return std::nullopt;
    if ((*sizes)[own] == (*result())[dimension_])
      return own;
    if ((*sizes)[own] != 1)
      return std::nullopt;
    note_broadcast(index, own);
    return kWhole;
  }

  void note_broadcast(size_t operand, int64_t dimension) const {
    broadcasts_.emplace_back(operand, dimension);
  }
  const std::vector<std::pair<size_t, int64_t>>& broadcasts() const { return broadcasts_; }

 private:
  const Node* node_;
  int64_t dimension_;
  const KnownTensors& known_;
  std::vector<Value*> operands_;
  mutable std::vector<std::pair<size_t, int64_t>> broadcasts_;
};

using Answer = std::optional<Rows>;
using Answerer = std::function<Answer(const Question&)>;

bool contains(const Sizes& dimensions, int64_t dimension) {
  return std::find(dimensions.begin(), dimensions.end(), dimension) != dimensions.end();
}

// Each element of the result follows from the operands' elements at its place.
Answer elementwise(const Question& question) {
  Rows rows;
  for (size_t i = 0; i < question.num_operands(); ++i) {
    const auto row = question.broadcast(i);
    if (!row)
      return std::nullopt;
    rows.push_back(*row);
  }
  return rows;
}

// The result has the sizes of operand 0, and its elements follow from those of operand 0.
Answer as_first(const Question& question) {
  if (question.operand(0) == nullptr || *question.operand(0) != *question.result())
    return std::nullopt;
  return question.only_first(question.dimension());
}

// As as_first(), with dimensions along which elements depend on each other.
Answerer as_first_except(const char* argument) {
  return [argument](const Question& question) -> Answer {
    const auto* sizes = question.operand(0);
    const auto dimensions =
        sizes == nullptr ? std::nullopt : question.dimensions_argument(argument, sizes->size());
    if (!dimensions || contains(*dimensions, question.dimension()))
      return std::nullopt;
    return as_first(question);
  };
}

// The first so many dimensions are samples, channels and the like, which the operator keeps apart.
Answerer leading(size_t count) {
  return [count](const Question& question) -> Answer {
    const auto* sizes = question.operand(0);
    const auto dimension = question.dimension();
    if (sizes == nullptr || sizes->size() != question.result()->size() ||
        dimension >= static_cast<int64_t>(count) ||
        (*sizes)[dimension] != (*question.result())[dimension])
      return std::nullopt;
    return question.only_first(dimension);
  };
}

// The last so many dimensions belong together, those before them are kept apart.
Answerer except_last(size_t count) {
  return [count](const Question& question) -> Answer {
    const auto* sizes = question.operand(0);
    if (sizes == nullptr || sizes->size() < count)
      return std::nullopt;
    return leading(sizes->size() - count)(question);
  };
}

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

// Channels of the input, whose shares of the result are added up.
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

// Letters of an einsum: of each operand, then of the result. Empty where it has an ellipsis or
// repeats a letter in one operand.
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

// Slices every operand of an einsum along a letter. Flat operand 0 is the equation.
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

Answer einsum(const Question& question) {
  const auto letters = letters_of_einsum(question);
  if (letters.empty() || letters.back().size() != question.result()->size())
    return std::nullopt;
  return along_letter(question, letters, letters.back().at(question.dimension()));
}

Answer concatenation(const Question& question) {
  const auto dimension = question.dimension_argument("dim", question.result()->size());
  if (!dimension || *dimension == question.dimension())
    return std::nullopt;
  Rows rows(question.num_operands(), kWhole);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto* sizes = question.operand(i);
    if (sizes == nullptr)
      continue;
    if (sizes->size() != question.result()->size())
      return std::nullopt;  // an empty tensor of one dimension
    rows[i] = question.dimension();
  }
  return rows;
}

Answer stack(const Question& question) {
  const auto dimension = question.dimension_argument("dim", question.result()->size());
  if (!dimension || *dimension == question.dimension())
    return std::nullopt;
  Rows rows(question.num_operands(), kWhole);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (question.operand(i) != nullptr)
      rows[i] = question.dimension() - (question.dimension() > *dimension ? 1 : 0);
  }
  return rows;
}

// Takes parts along one dimension and keeps the others.
Answer parts(const Question& question) {
  const auto* sizes = question.operand(0);
  const auto dimension =
      sizes == nullptr ? std::nullopt : question.dimension_argument("dim", sizes->size());
  if (!dimension || *dimension == question.dimension() ||
      sizes->size() != question.result()->size())
    return std::nullopt;
  return question.only_first(question.dimension());
}

// Removes one dimension.
Answer without_dimension(const Question& question) {
  const auto* sizes = question.operand(0);
  const auto dimension =
      sizes == nullptr ? std::nullopt : question.dimension_argument("dim", sizes->size());
  if (!dimension)
    return std::nullopt;
  return question.only_first(question.dimension() + (question.dimension() >= *dimension ? 1 : 0));
}

// Removes a dimension only if its size is 1; rows come before it, so that they stay where they are.
Answer squeeze(const Question& question) {
  const auto* sizes = question.operand(0);
  const auto dimension =
      sizes == nullptr ? std::nullopt : question.dimension_argument("dim", sizes->size());
  if (!dimension || question.dimension() >= *dimension)
    return std::nullopt;
  return question.only_first(question.dimension());
}

Answer with_dimension(const Question& question) {
  const auto dimension = question.dimension_argument("dim", question.result()->size());
  if (!dimension || *dimension == question.dimension())
    return std::nullopt;
  return question.only_first(question.dimension() - (question.dimension() > *dimension ? 1 : 0));
}

Answer unpacked_list(const Question& question) {
  return question.only_first(question.dimension());
}

Answer transposition(const Question& question) {
  const auto rank = question.result()->size();
  auto first = question.dimension_argument("dim0", rank);
  auto second = question.dimension_argument("dim1", rank);
  if (!first || !second)
    return std::nullopt;
  const auto dimension = question.dimension();
  return question.only_first(dimension == *first    ? *second
                             : dimension == *second ? *first
                                                    : dimension);
}

Answer matrix_transposition(const Question& question) {
  if (question.result()->size() != 2)
    return std::nullopt;
  return question.only_first(1 - question.dimension());
}

Answer permutation(const Question& question) {
  const auto dimensions = question.dimensions_argument("dims", question.result()->size());
  if (!dimensions || dimensions->size() != question.result()->size())
    return std::nullopt;
  return question.only_first((*dimensions)[question.dimension()]);
}

int64_t elements_before(const Sizes& sizes, int64_t dimension) {
  return std::accumulate(sizes.begin(), sizes.begin() + dimension, int64_t{1}, std::multiplies<>());
}

// The same elements in the same order under other sizes, as the first dimension or where those
// before it are named by the caller (size_of_slice() in passes/region/row_stretch.h).
Answer regrouping(const Question& question) {
  const auto* sizes = question.operand(0);
  if (sizes == nullptr)
    return std::nullopt;
  const auto& result = *question.result();
  for (int64_t i = 0; i < static_cast<int64_t>(sizes->size()); ++i) {
    if ((*sizes)[i] == result[question.dimension()] &&
        elements_before(*sizes, i) == elements_before(result, question.dimension()))
      return question.only_first(i);
  }
  return std::nullopt;
}

// As regrouping(), where the first dimensions are the operand's whatever the sizes are.
Answerer regrouping_behind(const char* first) {
  return [first](const Question& question) -> Answer {
    const auto* sizes = question.operand(0);
    const auto begin =
        sizes == nullptr ? std::nullopt : question.dimension_argument(first, sizes->size());
    if (!begin || question.dimension() >= *begin)
      return std::nullopt;
    return question.only_first(question.dimension());
  };
}

// As regrouping(), along the first dimension: a slice has the elements of its part of the result.
Answer regrouping_of_first(const Question& question) {
  return question.dimension() == 0 ? regrouping(question) : std::nullopt;
}

Answer expansion(const Question& question) {
  const auto row = question.broadcast(0);
  if (!row || *row == kWhole)
    return std::nullopt;
  return question.only_first(*row);
}

// As expansion() or regrouping(), to the sizes of operand 1.
Answer as_other(const Question& question) {
  const bool is_expansion = std::string(question.node()->kind().toUnqualString()) == "expand_as";
  auto rows = is_expansion ? Answer(question.only_first(question.broadcast(0).value_or(kWhole)))
                           : regrouping_of_first(question);
  if (rows && (*rows)[0] > 0 && !is_expansion)
    return std::nullopt;
  if (rows)
    (*rows)[1] = question.dimension();
  return rows;
}

// Looks up rows of operand 0 by the elements of a later operand.
Answer lookup(const Question& question) {
  const auto* table = question.operand(0);
  const auto* indices = question.operand(1);
  if (table == nullptr || indices == nullptr || table->size() != 2 ||
      question.dimension() >= static_cast<int64_t>(indices->size()))
    return std::nullopt;
  const auto by_frequency = question.constant("scale_grad_by_freq");  // that in all rows
  if (!by_frequency || !by_frequency->isBool() || by_frequency->toBool())
    return std::nullopt;
  return question.only(1, question.dimension());
}

Answer selection_of_rows(const Question& question) {
  const auto* sizes = question.operand(0);
  const auto dimension =
      sizes == nullptr ? std::nullopt : question.dimension_argument("dim", sizes->size());
  if (!dimension)
    return std::nullopt;
  return *dimension == question.dimension() ? question.only(2, 0)
                                            : question.only_first(question.dimension());
}

// x[:, indices] with one tensor of integers.
Answer indexing(const Question& question) {
  const auto* sizes = question.operand(0);
  if (sizes == nullptr)
    return std::nullopt;
  std::optional<size_t> place;
  for (size_t i = 1; i < question.num_operands(); ++i) {
    if (question.operand(i) == nullptr)
      continue;
    const auto dtype = question.dtype_of_operand(i);
    if (place || dtype == at::kBool || dtype == at::kByte)
      return std::nullopt;
    place = i;
  }
  if (!place)
    return std::nullopt;
  const auto first = static_cast<int64_t>(*place) - 1;
  const auto count = static_cast<int64_t>(question.operand(*place)->size());
  const auto dimension = question.dimension();
  if (dimension >= first && dimension < first + count)
    return question.only(*place, dimension - first);
  return question.only_first(dimension < first ? dimension : dimension - count + 1);
}

Answer gathering(const Question& question) {
  const auto* sizes = question.operand(0);
  const auto dimension =
      sizes == nullptr ? std::nullopt : question.dimension_argument("dim", sizes->size());
  if (!dimension || *dimension == question.dimension() ||
      (*sizes)[question.dimension()] != (*question.result())[question.dimension()])
    return std::nullopt;
  auto rows = question.only_first(question.dimension());
  rows[2] = question.dimension();
  return rows;
}

// Returns the dimensions over which operand 0 is reduced; all of them where none are named.
std::optional<Sizes> reduced_dimensions(const Question& question) {
  const auto* sizes = question.operand(0);
  const auto* schema = question.node()->maybeSchema();
  if (sizes == nullptr || schema == nullptr)
    return std::nullopt;
  std::optional<Sizes> dimensions = Sizes{};
  if (schema->argumentIndexWithName("dim"))
    dimensions = question.dimensions_argument("dim", sizes->size());
  if (dimensions && dimensions->empty()) {
    dimensions->resize(sizes->size());
    std::iota(dimensions->begin(), dimensions->end(), 0);
  }
  return dimensions;
}

Answer reduction(const Question& question) {
  const auto* sizes = question.operand(0);
  const auto dimensions = reduced_dimensions(question);
  if (!dimensions)
    return std::nullopt;
  if (sizes->size() == question.result()->size()) {  // keepdim
    if (contains(*dimensions, question.dimension()))
      return std::nullopt;
    return question.only_first(question.dimension());
  }
  int64_t kept = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(sizes->size()); ++i) {
    if (contains(*dimensions, i))
      continue;
    if (kept++ == question.dimension())
      return question.only_first(i);
  }
  return std::nullopt;
}

Answer padding(const Question& question) {
  const auto* sizes = question.operand(0);
  const auto pad = question.constant("pad");
  if (sizes == nullptr || !pad || !pad->isIntList())
    return std::nullopt;
  const auto padded = pad->toIntVector().size() / 2;
  return padded > sizes->size() ? std::nullopt : leading(sizes->size() - padded)(question);
}

Answer distances(const Question& question) {
  const auto* left = question.operand(0);
  const auto* right = question.operand(1);
  if (left == nullptr || right == nullptr || left->size() != 2 || right->size() != 2)
    return std::nullopt;
  return question.only(static_cast<size_t>(question.dimension()), 0);
}

const std::unordered_map<std::string, Answerer>& answerers() {
  static const auto* table = new std::unordered_map<std::string, Answerer>{
      {"aten::_softmax", as_first_except("dim")},
      {"aten::_unsafe_view", regrouping},
      {"aten::adaptive_avg_pool1d", pool(1)},
      {"aten::adaptive_avg_pool2d", pool(2)},
      {"aten::adaptive_avg_pool3d", pool(3)},
      {"aten::addmm", product_plus},
      {"aten::alias", as_first},
      {"aten::amax", reduction},
      {"aten::amin", reduction},
      {"aten::argmax", reduction},
      {"aten::argmin", reduction},
      {"aten::avg_pool1d", pool(1)},
      {"aten::avg_pool2d", pool(2)},
      {"aten::avg_pool3d", pool(3)},
      {"aten::baddbmm", product_plus},
      {"aten::batch_norm", norm_over_batch},
      {"aten::bmm", product},
      {"aten::cat", concatenation},
      {"aten::cdist", distances},
      {"aten::chunk", parts},
      {"aten::clone", as_first},
      {"aten::constant_pad_nd", padding},
      {"aten::contiguous", as_first},
      {"aten::conv1d", convolution},
      {"aten::conv2d", convolution},
      {"aten::conv3d", convolution},
      {"aten::conv_transpose1d", convolution},
      {"aten::conv_transpose2d", convolution},
      {"aten::conv_transpose3d", convolution},
      {"aten::cumsum", as_first_except("dim")},
      {"aten::detach", as_first},
      {"aten::einsum", einsum},
      {"aten::embedding", lookup},
      {"aten::expand", expansion},
      {"aten::expand_as", as_other},
      {"aten::flatten", regrouping_behind("start_dim")},
      {"aten::flip", as_first_except("dims")},
      {"aten::gather", gathering},
      {"aten::group_norm", leading(1)},
      {"aten::index", indexing},
      {"aten::index_select", selection_of_rows},
      {"aten::instance_norm", instance_norm},
      {"aten::layer_norm", layer_norm},
      {"aten::linalg_vector_norm", reduction},
      {"aten::linear", linear},
      {"aten::log_softmax", as_first_except("dim")},
      {"aten::logsumexp", reduction},
      {"aten::matmul", product},
      {"aten::max_pool1d", pool(1)},
      {"aten::max_pool2d", pool(2)},
      {"aten::max_pool3d", pool(3)},
      {"aten::mean", reduction},
      {"aten::mm", product},
      {"aten::narrow", parts},
      {"aten::norm", reduction},
      {"aten::ones_like", as_first},
      {"aten::permute", permutation},
      {"aten::pixel_shuffle", except_last(3)},
      {"aten::reshape", regrouping},
      {"aten::reshape_as", as_other},
      {"aten::rms_norm", layer_norm},
      {"aten::scaled_dot_product_attention", attention},
      {"aten::select", without_dimension},
      {"aten::slice", parts},
      {"aten::softmax", as_first_except("dim")},
      {"aten::split", parts},
      {"aten::split_with_sizes", parts},
      {"aten::squeeze", squeeze},
      {"aten::stack", stack},
      {"aten::std", reduction},
      {"aten::sum", reduction},
      {"aten::t", matrix_transposition},
      {"aten::to", as_first},
      {"aten::transpose", transposition},
      {"aten::tril", except_last(2)},
      {"aten::triu", except_last(2)},
      {"aten::type_as", as_first},
      {"aten::unbind", without_dimension},
      {"aten::unflatten", regrouping_behind("dim")},
      {"aten::unsqueeze", with_dimension},
      {"aten::upsample_bilinear2d", leading(2)},
      {"aten::upsample_linear1d", leading(2)},
      {"aten::upsample_nearest1d", leading(2)},
      {"aten::upsample_nearest2d", leading(2)},
      {"aten::upsample_nearest3d", leading(2)},
      {"aten::upsample_trilinear3d", leading(2)},
      {"aten::var", reduction},
      {"aten::view", regrouping},
      {"aten::view_as", as_other},
      {"aten::zeros_like", as_first},
      {"prim::ListUnpack", unpacked_list},
  };
  return *table;
}

}  // namespace

const std::vector<int64_t>* sizes_of(const Value* value, const KnownTensors& known) {
  const auto found = known.find(value->unique());
  return found == known.end() || found->second.empty() ? nullptr : &found->second[0].sizes;
}

std::vector<Value*> flat_operands(const Node* node) {
  std::vector<Value*> operands;
  for (auto* input : const_cast<Node*>(node)->inputs()) {
    if (is_tensor_list(input) && input->node()->kind() == c10::prim::ListConstruct) {
      const auto elements = input->node()->inputs();
      operands.insert(operands.end(), elements.begin(), elements.end());
    } else {
      operands.push_back(input);
    }
  }
  return operands;
}

std::optional<std::vector<int64_t>> rows_of_operands(const Node* node, int64_t dimension,
                                                     const KnownTensors& known) {
  const Question question(node, dimension, known);
  const auto* result = question.result();
  if (result == nullptr || dimension < 0 || dimension >= static_cast<int64_t>(result->size()))
    return std::nullopt;
  const auto found = answerers().find(node->kind().toQualString());
  auto rows = found != answerers().end() ? found->second(question)
              : is_pointwise(node)       ? elementwise(question)
                                         : std::nullopt;
  if (!rows)
    return std::nullopt;
  // Each slice of an operand has to be as long as that of the result.
  bool any = false;
  for (size_t i = 0; i < rows->size(); ++i) {
    if ((*rows)[i] == kWhole)
      continue;
    const auto* sizes = question.operand(i);
    if (sizes == nullptr || (*rows)[i] >= static_cast<int64_t>(sizes->size()) ||
        (*sizes)[(*rows)[i]] != (*result)[dimension])
      return std::nullopt;
    any = true;
  }
  return any ? rows : std::nullopt;
}

std::optional<std::vector<int64_t>> rows_that_are_summed(
    const Node* node, const std::vector<std::optional<int64_t>>& rows, const KnownTensors& known) {
  const Question question(node, 0, known);
  const auto row_is = [&](size_t operand, int64_t dimension) {
    return operand < rows.size() && (!rows[operand] || *rows[operand] == dimension);
  };
  const std::string name = node->kind().toQualString();
  if (is_convolution(node))
    return convolution_over_channels(question, rows);
  if (name == "aten::sum") {
    const auto row = rows.at(0).value_or(kWhole);
    const auto dimensions = reduced_dimensions(question);
    if (row >= 0 && dimensions && contains(*dimensions, row))
      return question.only_first(row);
  }
  if (name == "aten::index_add" || name == "aten::scatter_add") {
    const auto* sizes = question.operand(0);
    const auto dimension =
        sizes == nullptr ? std::nullopt : question.dimension_argument("dim", sizes->size());
    const auto of_indices = name == "aten::index_add" ? int64_t{0} : dimension.value_or(0);
    if (!dimension || !row_is(2, of_indices) || !row_is(3, *dimension))
      return std::nullopt;
    auto answer = question.only(3, *dimension);
    answer[2] = of_indices;
    return answer;
  }
  if (name == "aten::mm" || name == "aten::matmul") {
    const auto* left = question.operand(0);
    const auto* right = question.operand(1);
    if (left == nullptr || right == nullptr || left->size() != 2 || right->size() != 2 ||
        !row_is(0, 1) || !row_is(1, 0))
      return std::nullopt;
    return Rows{1, 0};
  }
  if (name == "aten::einsum") {
    const auto letters = letters_of_einsum(question);
    for (size_t i = 1; i < rows.size() && i < letters.size(); ++i) {
      if (!rows[i] || *rows[i] < 0 || *rows[i] >= static_cast<int64_t>(letters[i - 1].size()))
        continue;
      const char letter = letters[i - 1][*rows[i]];
      if (letters.back().find(letter) != std::string::npos)
        return std::nullopt;
      return along_letter(question, letters, letter);
    }
  }
  return std::nullopt;
}

std::vector<std::pair<size_t, int64_t>> broadcast_along_rows(const Node* node, int64_t dimension,
                                                             const KnownTensors& known) {
  const Question question(node, std::max<int64_t>(dimension, 0), known);
  const auto found = answerers().find(node->kind().toQualString());
  if (question.result() == nullptr || (dimension == kSummed && node->kind() != c10::aten::einsum))
    return {};
  if (dimension == kSummed) {
    // Each contracted letter may be the one of the rows.
    const auto letters = letters_of_einsum(question);
    for (size_t i = 0; i + 1 < letters.size(); ++i) {
      for (const char letter : letters[i]) {
        if (letters.back().find(letter) == std::string::npos)
          along_letter(question, letters, letter);
      }
    }
  } else if (found != answerers().end()) {
    found->second(question);
  } else if (is_pointwise(node)) {
    elementwise(question);
  }
  return question.broadcasts();
}

bool is_convolution(const Node* node) {
  const std::string name = node->kind().toQualString();
  return name.rfind("aten::conv", 0) == 0 && answerers().count(name) != 0;
}

std::optional<size_t> sizes_operand(const Node* node) {
  const std::string name = node->kind().toQualString();
  const bool lists_sizes = name == "aten::view" || name == "aten::reshape" ||
                           name == "aten::expand" || name == "aten::_unsafe_view";
  return lists_sizes ? std::optional<size_t>(1) : std::nullopt;
}

}  // namespace aten_recompute
