#include "passes/frontend/path/meta_run.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "ir/graph_device.h"
#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "passes/frontend/rewrites/not_recordable.h"
#include "rules/find_shape.h"
#include "rules/meta_mode.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Stack;

bool is_defined_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

// Returns whether there are tensors, and all of them are on the meta device, for which some
// operators have kernels in Python alone.
bool is_on_meta(const Stack& operands) {
  bool has_tensor = false;
  bool all_meta = true;
  for (const auto& operand : operands) {
    if (!is_defined_tensor(operand))
      continue;
    has_tensor = true;
    all_meta = all_meta && operand.toTensor().is_meta();
  }
  return has_tensor && all_meta;
}

// Runs a node without memory, in place of its operands on the stack. Returns false where that is
// not possible; the stack is spoiled then.
bool run_on_meta(Node* node, Stack& stack) {
  try {
    const MetaMode mode;
    node->getOperation()(stack);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Runs a node on elements. Returns its results; nullopt if it raises an exception.
std::optional<Stack> run_on_elements(Node* node, Stack operands) {
  try {
    node->getOperation()(operands);
    return operands;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool asks_for_device(const Node* node) {
  return node->kind() == c10::prim::device ||
         std::string(node->kind().toQualString()).rfind("prim::is_", 0) == 0;
}

}  // namespace

bool run_shape_function(Node* node, Stack& stack) {
  if (!is_on_meta(stack))
    return false;
  const auto shapes = shape_function(node);
  return shapes != nullptr && shapes(stack);
}

c10::IValue MetaRun::of(const c10::IValue& given) {
  try {
    auto copy = copies_.of(given);
    if (copies_.has_several_devices())
      throw NotRecordable("its tensors are on several devices");
    note_given(given);
    return copy;
  } catch (const std::invalid_argument& error) {
    throw NotRecordable(error.what());
  }
}

void MetaRun::note_given(const c10::IValue& given) {
  if (is_defined_tensor(given)) {
    known_.give(copies_.of(given).toTensor(), given.toTensor());
  } else if (given.isTuple()) {
    for (const auto& element : given.toTupleRef().elements())
      note_given(element);
  } else if (given.isList()) {
    for (const auto& element : given.toListRef())
      note_given(element);
  } else if (given.isGenericDict()) {
    for (const auto& entry : given.toGenericDict())
      note_given(entry.value());
  }
}

void MetaRun::run(Node* node, Stack& stack) {
  auto elements = known_.of(node, stack);
  std::vector<std::pair<at::Tensor, int64_t>> written;  // and their versions
  for (size_t i = 0; i < stack.size(); ++i) {
    if (writes_to(node, i) && is_defined_tensor(stack[i]))
      written.emplace_back(stack[i].toTensor(), stack[i].toTensor()._version());
  }
  prepare(node, stack);
  const auto on_meta = stack;
  const bool has_run = run_on_meta(node, stack);
  const bool answers = !has_run && !mutates_an_argument(node);
  if (elements && (answers || (makes_tensors(node) && known_.has_room(node, stack))))
    elements = run_on_elements(node, std::move(*elements));
  else
    elements.reset();
  if (answers && elements) {
    stack.clear();
    for (const auto& result : *elements)
      stack.push_back(MetaCopies().of(result));
  } else if (!has_run) {
    stack = on_meta;
    if (!run_shape_function(node, stack) && !select_by_known_masks(node, stack))
      throw CallRaises(" in " + qualified_operator_name(node));
  }
  for (const auto& [tensor, version] : written) {
    if (!elements)
      known_.forget_memory_of(tensor);
    if (tensor._version() == version)  // it need not have written without memory
      tensor.unsafeGetTensorImpl()->bump_version();
  }
  if (elements)
    known_.note(stack, *elements);
}

bool MetaRun::select_by_known_masks(Node* node, Stack& stack) {
  if (node->kind() != c10::aten::index)
    return false;
  const auto known = known_.with_elements(stack[1]);
  if (!known)
    return false;
  c10::impl::GenericList indices(known->toList().elementType());
  for (const auto& index : known->toListRef()) {
    if (!is_defined_tensor(index) || index.toTensor().scalar_type() != at::kBool) {
      indices.push_back(index);
      continue;
    }
    for (const auto& positions : index.toTensor().nonzero().unbind(1))
      indices.push_back(positions);
  }
  stack[1] = MetaCopies().of(indices);
  return run_on_meta(node, stack);
}

void MetaRun::prepare(const Node* node, Stack& operands) {
  if (asks_for_device(node) && !operands.empty() && is_defined_tensor(operands[0])) {
    const auto device = copies_.device().value_or(at::kCPU);
    operands[0] = at::empty({0}, operands[0].toTensor().options().device(device));
    return;
  }
  // Numbers that the method itself lists may decide something.
  if (node->kind() != c10::aten::tensor)
    put_on_meta(*node, operands);
  const bool has_meta = std::any_of(operands.begin(), operands.end(), [](const auto& operand) {
    return is_defined_tensor(operand) && operand.toTensor().is_meta();
  });
  if (!has_meta)
    return;
  for (auto& operand : operands) {  // constants of the method
    if (!is_defined_tensor(operand) || operand.toTensor().is_meta() ||
        operand.toTensor().dim() == 0)
      continue;
    constants_.push_back(operand.toTensor());
    operand = of(operand);
  }
}

}  // namespace aten_recompute
