#include "backend/share_tensors.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/api/compilation_unit.h>

#include <memory>
#include <unordered_set>

namespace aten_recompute {
namespace {

using torch::jit::CompilationUnit;
using torch::jit::Module;

template <class Visit>
void visit_slots(const Module& module, const Visit& visit) {
  const auto type = module.type();
  for (size_t i = 0; i < type->numAttributes(); ++i)
    visit(type->getAttributeName(i), i);
}

bool is_module(const c10::IValue& value) {
  return value.isModule();
}

// The parameter that `copy` was cloned from, or an undefined tensor.
at::Tensor origin_of(const at::Tensor& copy) {
  const auto& clone_node = copy.grad_fn();
  if (clone_node == nullptr || clone_node->num_outputs() != 1 ||
      clone_node->name() != "CloneBackward0") {
    return {};
  }
  auto* leaf =
      dynamic_cast<torch::autograd::AccumulateGrad*>(clone_node->next_edge(0).function.get());
  return leaf == nullptr ? at::Tensor() : leaf->variable;
}

// A compilation unit never forgets a class, and Python's lives as long as the process: classes of a
// clone are in a unit of their own. Their methods may call functions of the module's units, which
// therefore live as long.
std::shared_ptr<CompilationUnit> unit_beside(const Module& module) {
  std::unordered_set<std::shared_ptr<CompilationUnit>> units;
  for (const auto& each : module.modules())
    units.insert(each._ivalue()->compilation_unit());
  // Classes hold weak pointers, which would keep what the deleter holds.
  return {new CompilationUnit(), [units](CompilationUnit* unit) mutable {
            delete unit;
            units.clear();
          }};
}

// The same classes and values, said to be of another compilation unit.
Module shadow(const Module& module, const std::shared_ptr<CompilationUnit>& unit) {
  Module result(unit, module.type());
  visit_slots(module, [&](const std::string& /*name*/, size_t slot) {
    const auto value = module._ivalue()->getSlot(slot);
    result._ivalue()->setSlot(slot,
                              is_module(value) ? shadow(value.toModule(), unit)._ivalue() : value);
  });
  return result;
}

}  // namespace

void share_tensors(const Module& from, const Module& to) {
  visit_slots(from, [&](const std::string& name, size_t slot) {
    const auto value = from._ivalue()->getSlot(slot);
    if (is_module(value)) {
      share_tensors(value.toModule(), to.attr(name).toModule());
    } else {
      to._ivalue()->setSlot(to.type()->getAttributeSlot(name), value);
    }
  });
}

Module processed_module(const Module& lowered) {
  const auto processed = lowered.attr("__loweredModule__").toModule().attr("__processed_module");
  return processed.toTupleRef().elements()[0].toModule();  // (module, format)
}

Module clone_without_tensors(const Module& module) {
  // LibTorch clones a module into the compilation unit that its object names.
  auto clone = shadow(module, unit_beside(module)).clone(/*inplace=*/true);
  auto empty = [](const Module& each) {
    visit_slots(each, [&](const std::string& /*name*/, size_t slot) {
      if (each._ivalue()->getSlot(slot).isTensor())
        each._ivalue()->setSlot(slot, at::empty({0}));
    });
  };
  for (const auto& each : clone.modules())
    empty(each);
  return clone;
}

size_t undo_parameter_copies(const Module& module) {
  size_t copies = 0;
  for (const auto& each : module.modules()) {
    visit_slots(each, [&](const std::string& /*name*/, size_t slot) {
      const auto value = each._ivalue()->getSlot(slot);
      if (!value.isTensor() || !value.toTensor().defined())
        return;
      if (auto origin = origin_of(value.toTensor()); origin.defined()) {
        each._ivalue()->setSlot(slot, origin);
      } else {
        ++copies;
      }
    });
  }
  return copies;
}

}  // namespace aten_recompute
