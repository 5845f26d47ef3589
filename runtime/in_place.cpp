#include "runtime/in_place.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include "ir/memory_reuse.h"
#include "runtime/faster_operator.h"

namespace aten_recompute {
namespace {

using Run = std::function<void(torch::jit::Stack&)>;

// Returns a function that calls the writing operator on a stack, or nullptr if this version of
// PyTorch has no such operator.
Run find_writer(const OverwritingForm& form) {
  if (form.writer.empty())
    return nullptr;
  if (const auto op =
          c10::Dispatcher::singleton().findSchema({form.writer, form.overload.c_str()})) {
    Run writer = [op = *op](torch::jit::Stack& stack) { op.callBoxed(stack); };
    const auto name = form.overload.empty() ? form.writer : form.writer + "." + form.overload;
    auto faster = faster_operation(name, writer);
    return faster ? faster : writer;
  }
  // Only the interpreter knows the operators of this project.
  for (const auto& op : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(form.writer))) {
    if (op->schema().overload_name() == form.overload)
      return [run = op->getOperation()](torch::jit::Stack& stack) mutable { run(stack); };
  }
  return nullptr;
}

}  // namespace

std::vector<InPlaceForm> in_place_forms(const torch::jit::Node* node) {
  const auto* form = overwriting_form(node);
  if (form == nullptr)
    return {};
  const auto writer = find_writer(*form);
  if (!writer)
    return {};
  std::vector<InPlaceForm> forms;
  for (const auto operand : form->operands) {
    auto run = writer;
    if (form->takes_output) {
      run = [writer, operand, count = node->inputs().size()](torch::jit::Stack& stack) {
        stack.push_back(stack[stack.size() - count + operand]);
        writer(stack);
      };
    }
    forms.push_back({operand, std::move(run), form->condition});
  }
  return forms;
}

bool may_overwrite(const InPlaceForm& form, c10::ArrayRef<c10::IValue> operands) {
  const auto& target = operands[form.operand];
  if (!target.isTensor() || !target.toTensor().defined() || !is_only_reference(target.toTensor()))
    return false;
  c10::SmallVector<OperandLayout, 4> layouts;
  for (const auto& operand : operands)
    layouts.push_back(layout_of(operand));
  return layouts_allow_overwriting(form.condition, layouts, form.operand);
}

std::vector<size_t> overwritable_operands(const torch::jit::Node* node) {
  const auto* form = overwriting_form(node);
  if (form == nullptr || (!form->writer.empty() && !find_writer(*form)))
    return {};
  return form->operands;
}

}  // namespace aten_recompute
