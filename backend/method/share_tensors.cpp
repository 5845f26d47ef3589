#include "backend/method/share_tensors.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <unordered_map>
#include <unordered_set>

namespace aten_recompute {
namespace {

using torch::jit::CompilationUnit;
using torch::jit::Module;

// Calls `visit` with the name and the slot of each attribute of the module's class.
template <class Visit>
void visit_slots(const Module& module, const Visit& visit) {
  const auto type = module.type();
  for (size_t i = 0; i < type->numAttributes(); ++i)
    visit(type->getAttributeName(i), i);
}

bool is_module(const c10::IValue& value) {
  return value.isModule();
}

// Returns the parameter that `copy` was cloned from, or an undefined tensor.
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

// Returns the module that has the original code: the module itself, or the one that was lowered.
Module code_of(const Module& module) {
  return is_lowered(module) ? processed_module(module) : module;
}

// Calls `visit` with name, slot and current value of each attribute that the original code has. A
// lowered module has them itself; in upstream's wrapper only the processed module has them.
template <class Visit>
void visit_values(const Module& module, const Visit& visit) {
  const auto code = code_of(module);
  visit_slots(code, [&](const std::string& name, size_t slot) {
    visit(name, slot, (module.hasattr(name) ? module : code)._ivalue()->getAttr(name));
  });
}

using Units = std::unordered_set<std::shared_ptr<CompilationUnit>>;

// Adds the compilation units of the module and of all modules inside it to `units`.
void collect_units(const Module& module, Units& units) {
  units.insert(module._ivalue()->compilation_unit());
  units.insert(code_of(module)._ivalue()->compilation_unit());
  visit_values(module, [&](const std::string& /*name*/, size_t /*slot*/, const c10::IValue& value) {
    if (is_module(value))
      collect_units(value.toModule(), units);
  });
}

// Returns a new compilation unit for the classes of a clone of `module`. A unit never frees a
// class, and Python's unit lives as long as the process, so a clone gets a unit of its own. Its
// methods may call functions of the module's units, so those live as long as the new one.
std::shared_ptr<CompilationUnit> unit_beside(const Module& module) {
  Units units;
  collect_units(module, units);
  // Weak pointers in classes keep the deleter alive, so it drops the units as soon as it has run.
  return {new CompilationUnit(), [units](CompilationUnit* unit) mutable {
            delete unit;
            units.clear();
          }};
}

// Returns a module with the values and the original class of `module`, whose object names another
// compilation unit.
Module shadow(const Module& module, const std::shared_ptr<CompilationUnit>& unit) {
  Module result(unit, code_of(module).type());
  visit_values(module, [&](const std::string& /*name*/, size_t slot, const c10::IValue& value) {
    result._ivalue()->setSlot(slot,
                              is_module(value) ? shadow(value.toModule(), unit)._ivalue() : value);
  });
  return result;
}

using Types = std::unordered_map<c10::TypePtr, c10::TypePtr>;

// Maps the classes of each module in `from`, its own and that of its original code, to the class of
// the module in the same place in `to`.
void collect_types(const Module& from, const Module& to, Types& types) {
  types.emplace(from.type(), to.type());
  types.emplace(code_of(from).type(), to.type());
  visit_values(from, [&](const std::string& name, size_t /*slot*/, const c10::IValue& value) {
    if (is_module(value))
      collect_types(value.toModule(), to.attr(name).toModule(), types);
  });
}

auto remap_with(const Types& types) {
  return [&types](const c10::TypePtr& type) {
    const auto found = types.find(type);
    return found == types.end() ? type : found->second;
  };
}

// Replaces classes in the graphs and schemas of all methods.
void remap_types(const Module& module, const Types& types) {
  std::unordered_set<c10::TypePtr> done;
  for (const auto& each : module.modules()) {
    if (!done.insert(each.type()).second)
      continue;
    for (auto* method : each.type()->methods()) {
      torch::jit::toGraphFunction(*method).graph()->remapTypes(remap_with(types));
      method->setSchema(method->getSchema().cloneWithRemappedTypes(remap_with(types)));
    }
  }
}

using Functions = std::unordered_map<torch::jit::Function*, torch::jit::Function*>;

torch::jit::Function* copy_hook(torch::jit::Function& hook, const Module& to, const Types& types) {
  auto graph = torch::jit::toGraphFunction(hook).graph()->copy();
  graph->remapTypes(remap_with(types));
  auto* copy = to._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*to.type()->name(), hook.name()), std::move(graph));
  copy->setSchema(hook.getSchema().cloneWithRemappedTypes(remap_with(types)));
  return copy;
}

void copy_hooks(const Module& from, const Module& to, const Types& types, Functions& copies) {
  auto& type = *to.type();
  if (type.getForwardPreHooks().empty() && type.getForwardHooks().empty()) {
    for (auto* hook : from.type()->getForwardPreHooks())
      type.addForwardPreHook(copies[hook] = copy_hook(*hook, to, types));
    for (auto* hook : from.type()->getForwardHooks())
      type.addForwardHook(copies[hook] = copy_hook(*hook, to, types));
  }
  visit_values(from, [&](const std::string& name, size_t /*slot*/, const c10::IValue& value) {
    if (is_module(value))
      copy_hooks(value.toModule(), to.attr(name).toModule(), types, copies);
  });
}

void replace_functions(torch::jit::Block* block, const Functions& functions) {
  for (auto* node : block->nodes()) {
    for (auto* inner : node->blocks())
      replace_functions(inner, functions);
    if (node->kind() != c10::prim::Constant)
      continue;
    const auto type = node->output()->type()->cast<c10::FunctionType>();
    const auto found = type == nullptr ? functions.end() : functions.find(type->function());
    if (found != functions.end())
      node->output()->setType(c10::FunctionType::create(found->second));
  }
}

}  // namespace

bool is_lowered(const Module& module) {
  if (!module.hasattr(kLoweredModule))
    return false;
  // Modules that were lowered for other backends have the same attribute.
  const auto backend = module.attr(kLoweredModule).toObjectRef().type()->findAttribute("__backend");
  const auto type = backend == nullptr ? nullptr : backend->cast<c10::ClassType>();
  return type != nullptr && type->name() && type->name()->name() == "aten_recompute";
}

bool holds_lowered(const Module& module) {
  for (const auto& each : module.modules()) {
    if (is_lowered(each))
      return true;
  }
  return false;
}

void share_tensors(const Module& from, const Module& to) {
  visit_values(from, [&](const std::string& name, size_t /*slot*/, const c10::IValue& value) {
    if (is_module(value)) {
      share_tensors(value.toModule(), to.attr(name).toModule());
    } else {
      to._ivalue()->setSlot(to.type()->getAttributeSlot(name), value);
    }
  });
}

void copy_hooks(const Module& from, const Module& to) {
  Types types;
  collect_types(from, to, types);
  Functions copies;
  copy_hooks(from, to, types, copies);
  if (copies.empty())
    return;
  // A module's methods call the hooks of its children as functions.
  const auto replace_in = [&](torch::jit::Function* function) {
    replace_functions(torch::jit::toGraphFunction(*function).graph()->block(), copies);
  };
  for (const auto& each : to.modules()) {
    for (auto* method : each.type()->methods())
      replace_in(method);
  }
  for (const auto& [hook, copy] : copies)
    replace_in(copy);
}

void replace_classes(const Module& from, const Module& to) {
  Types types;
  collect_types(from, to, types);
  remap_types(to, types);
}

Module processed_module(const Module& lowered) {
  const auto processed = lowered.attr(kLoweredModule).toModule().attr("__processed_module");
  return processed.toTupleRef().elements()[0].toModule();  // (module, format)
}

Module plain_clone(const Module& module) {
  // LibTorch clones a module into the compilation unit that its object names.
  auto clone = shadow(module, unit_beside(module)).clone(/*inplace=*/true);
  replace_classes(module, clone);
  copy_hooks(module, clone);
  return clone;
}

Module clone_without_tensors(const Module& module) {
  auto clone = plain_clone(module);
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
