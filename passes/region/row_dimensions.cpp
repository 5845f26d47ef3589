#include "passes/region/row_dimensions.h"

#include "ir/node_traits.h"
#include "passes/region/row_question.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

namespace {

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

const AnswerTable& answerers() {
  static const auto* table = [] {
    auto* all = new AnswerTable{
        {"aten::_softmax", as_first_except("dim")},
        {"aten::alias", as_first},
        {"aten::clone", as_first},
        {"aten::contiguous", as_first},
        {"aten::cumsum", as_first_except("dim")},
        {"aten::detach", as_first},
        {"aten::flip", as_first_except("dims")},
        {"aten::group_norm", leading(1)},
        {"aten::log_softmax", as_first_except("dim")},
        {"aten::ones_like", as_first},
        {"aten::pixel_shuffle", except_last(3)},
        {"aten::softmax", as_first_except("dim")},
        {"aten::to", as_first},
        {"aten::tril", except_last(2)},
        {"aten::triu", except_last(2)},
        {"aten::type_as", as_first},
        {"aten::upsample_bilinear2d", leading(2)},
        {"aten::upsample_linear1d", leading(2)},
        {"aten::upsample_nearest1d", leading(2)},
        {"aten::upsample_nearest2d", leading(2)},
        {"aten::upsample_nearest3d", leading(2)},
        {"aten::upsample_trilinear3d", leading(2)},
        {"aten::zeros_like", as_first},
    };
    add_rows_of_layers(*all);
    add_rows_of_shapes(*all);
    return all;
  }();
  return *table;
}

// Returns what is known of the operator.
Answer answer_to(const Question& question) {
  const auto found = answerers().find(question.node()->kind().toQualString());
  if (found != answerers().end())
    return found->second(question);
  return is_pointwise(question.node()) ? elementwise(question) : std::nullopt;
}

}  // namespace

std::optional<std::vector<int64_t>> rows_of_operands(const Node* node, int64_t dimension,
                                                     const KnownTensors& known) {
  const Question question(node, dimension, known);
  const auto* result = question.result();
  if (result == nullptr || dimension < 0 || dimension >= static_cast<int64_t>(result->size()))
    return std::nullopt;
  auto rows = answer_to(question);
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
    const auto has = [&](size_t operand, int64_t row) {
      const auto* of_operand = question.operand(operand);
      return of_operand != nullptr && row < static_cast<int64_t>(of_operand->size());
    };
    if (!dimension || !has(2, of_indices) || !has(3, *dimension) || !row_is(2, of_indices) ||
        !row_is(3, *dimension))
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
  } else {
    answer_to(question);
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
