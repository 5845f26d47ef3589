#include "passes/region/row_question.h"

#include "ir/node_traits.h"

namespace aten_recompute {

std::optional<c10::IValue> Question::constant(const char* argument) const {
  const auto* schema = node_->maybeSchema();
  const auto index = schema == nullptr ? std::nullopt : schema->argumentIndexWithName(argument);
  if (!index)
    return std::nullopt;
  const auto* value = node_->input(static_cast<size_t>(*index));
  if (value->node()->kind() != c10::prim::ListConstruct)
    return torch::jit::toIValue(value);
  c10::List<int64_t> ints;
  for (const auto* element : value->node()->inputs()) {
    const auto constant = torch::jit::constant_as<int64_t>(element);
    if (!constant)
      return std::nullopt;
    ints.push_back(*constant);
  }
  return ints;
}

bool Question::may_have_rows(size_t index) const {
  const auto* value = operands_[index];
  return contains_tensor(*value->type()) && !value->mustBeNone();
}

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

Answer as_first(const Question& question) {
  if (question.operand(0) == nullptr || *question.operand(0) != *question.result())
    return std::nullopt;
  return question.only_first(question.dimension());
}

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

Answerer except_last(size_t count) {
  return [count](const Question& question) -> Answer {
    const auto* sizes = question.operand(0);
    if (sizes == nullptr || sizes->size() < count)
      return std::nullopt;
    return leading(sizes->size() - count)(question);
  };
}

}  // namespace aten_recompute
