// Rows of views, parts, lookups and reductions.
#include "passes/region/row_question.h"

#include <numeric>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

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

// Of broadcast_tensors(), only results of which nothing but sizes is read, as generated code does.
// Its gradient is that of all results together, which a stretch would have to contain.
Answer broadcast_for_sizes(const Question& question) {
  const auto& uses = question.node()->output()->uses();
  const bool for_sizes = std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
    if (use.user->kind() != c10::aten::__getitem__)
      return false;
    const auto& readers = use.user->output()->uses();
    return std::all_of(readers.begin(), readers.end(), [](const torch::jit::Use& reader) {
      return reads_metadata_only(reader.user, reader.offset);
    });
  });
  return for_sizes ? elementwise(question) : std::nullopt;
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

}  // namespace

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

namespace {

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

}  // namespace

void add_rows_of_shapes(AnswerTable& table) {
  const AnswerTable added{
      {"aten::__getitem__", unpacked_list},
      {"aten::_unsafe_view", regrouping},
      {"aten::amax", reduction},
      {"aten::amin", reduction},
      {"aten::argmax", reduction},
      {"aten::argmin", reduction},
      {"aten::broadcast_tensors", broadcast_for_sizes},
      {"aten::cat", concatenation},
      {"aten::cdist", distances},
      {"aten::chunk", parts},
      {"aten::constant_pad_nd", padding},
      {"aten::embedding", lookup},
      {"aten::expand", expansion},
      {"aten::expand_as", as_other},
      {"aten::flatten", regrouping_behind("start_dim")},
      {"aten::gather", gathering},
      {"aten::index", indexing},
      {"aten::index_select", selection_of_rows},
      {"aten::linalg_norm", reduction},
      {"aten::linalg_vector_norm", reduction},
      {"aten::logsumexp", reduction},
      {"aten::mean", reduction},
      {"aten::narrow", parts},
      {"aten::norm", reduction},
      {"aten::permute", permutation},
      {"aten::reshape", regrouping},
      {"aten::reshape_as", as_other},
      {"aten::select", without_dimension},
      {"aten::slice", parts},
      {"aten::split", parts},
      {"aten::split_with_sizes", parts},
      {"aten::squeeze", squeeze},
      {"aten::stack", stack},
      {"aten::std", reduction},
      {"aten::sum", reduction},
      {"aten::t", matrix_transposition},
      {"aten::transpose", transposition},
      {"aten::unbind", without_dimension},
      {"aten::unflatten", regrouping_behind("dim")},
      {"aten::unsqueeze", with_dimension},
      {"aten::var", reduction},
      {"aten::view", regrouping},
      {"aten::view_as", as_other},
      {"prim::ListUnpack", unpacked_list},
  };
  table.insert(added.begin(), added.end());
}

}  // namespace aten_recompute
