#include <aten_recompute/aten_recompute.h>

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <stdexcept>

#include "backend/method/lowered_method.h"
#include "backend/method/method_spec.h"
#include "backend/method/planned_function.h"
#include "backend/method/planned_methods.h"
#include "backend/method/share_tensors.h"
#include "common/strategy_traits.h"
#include "planner/model/plan_file.h"
#include "runtime/one_line_errors.h"

namespace aten_recompute {
namespace {

using torch::jit::GraphFunction;
using torch::jit::Module;

// Returns a module with the methods of `module` and without its attributes, which does not keep the
// compilation unit alive: its class, and with that this module, belongs to the unit.
Module without_attributes(const Module& module) {
  const auto type = module.type();
  return Module(c10::ivalue::Object::create(
      c10::WeakOrStrongTypePtr(c10::WeakTypePtr(module._ivalue()->compilation_unit(), type)),
      type->numAttributes()));
}

// Returns a module with a method that does what the function does.
Module module_of(GraphFunction& function) {
  Module module("__torch__.aten_recompute.Function");
  auto graph = function.graph()->copy();
  graph->insertInput(0, "self")->setType(module.type());
  const auto& schema = function.getSchema();
  auto arguments = schema.arguments();
  arguments.insert(arguments.begin(), c10::Argument("self", module.type()));
  auto* method = module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), function.name()), graph);
  module.type()->addMethod(method);
  method->setSchema(
      c10::FunctionSchema(function.name(), "", std::move(arguments), schema.returns()));
  return module;
}

GraphFunction& graph_function(torch::jit::Function& function) {
  auto* of_graph = torch::jit::tryToGraphFunction(function);
  if (of_graph == nullptr)
    throw std::invalid_argument("the function " + function.name() + " is not scripted or traced");
  of_graph->ensure_defined();
  return *of_graph;
}

void refuse_lowered(const Module& module) {
  if (!holds_lowered(module))
    return;
  throw std::invalid_argument(
      is_lowered(module)
          ? "enable: the module is lowered already: enable what aten_recompute.unlower returns"
          : "enable: a module in it is lowered: enable what aten_recompute.unlower returns");
}

}  // namespace

void enable(const Module& module, const std::string& options,
            const std::vector<std::string>& methods, const std::string& layer_pattern) try {
  refuse_lowered(module);
  const auto spec = self_contained(options);
  const auto pattern = layer_pattern.empty() && module.hasattr(kLayerPatternAttribute)
                           ? module.attr(kLayerPatternAttribute).toStringRef()
                           : layer_pattern;
  const auto code = without_attributes(module);
  // First everything that may be refused, so that a module is enabled as a whole or not at all.
  std::vector<c10::intrusive_ptr<LoweredMethod>> planned;
  for (const auto& name : methods) {
    require_method(module, name, "enable");
    graph_function(module.get_method(name).function());
    planned.push_back(c10::make_intrusive<LoweredMethod>(code, name, spec, pattern));
    check_options(module, name, planned.back()->options());
  }
  PlannedFunction::forget_dead_objects();
  const auto unit = module._ivalue()->compilation_unit();
  for (auto& method : planned) {
    auto& function = graph_function(module.get_method(method->name()).function());
    PlannedFunction::enable(function, unit.get(), module._ivalue(), std::move(method));
  }
} catch (const std::invalid_argument&) {
  throw;
} catch (const std::exception&) {
  rethrow_as_invalid_argument();
}

void enable(torch::jit::Function& function, const std::string& options,
            torch::jit::CompilationUnit* unit) try {
  auto& of_graph = graph_function(function);
  auto method = c10::make_intrusive<LoweredMethod>(module_of(of_graph), of_graph.name(),
                                                   self_contained(options));
  if (traits_of(method->options()).follows_plan_file)
    check_plan_file(method->options().plan);
  PlannedFunction::forget_dead_objects();
  PlannedFunction::enable(of_graph, unit, nullptr, std::move(method));
} catch (const std::invalid_argument&) {
  throw;
} catch (const std::exception&) {
  rethrow_as_invalid_argument();
}

bool disable(const Module& module) {
  bool was_enabled = false;
  const auto unit = module._ivalue()->compilation_unit();
  for (auto* function : module.type()->methods()) {
    if (auto* of_graph = torch::jit::tryToGraphFunction(*function)) {
      was_enabled =
          PlannedFunction::disable(*of_graph, unit.get(), module._ivalue()) || was_enabled;
    }
  }
  return was_enabled;
}

bool disable(torch::jit::Function& function, torch::jit::CompilationUnit* unit) {
  auto* of_graph = torch::jit::tryToGraphFunction(function);
  return of_graph != nullptr && PlannedFunction::disable(*of_graph, unit, nullptr);
}

bool is_enabled(const Module& module) {
  return !enabled_methods_of(module).empty();
}

bool is_enabled(torch::jit::Function& function) {
  return !enabled_methods_of(function).empty();
}

}  // namespace aten_recompute
