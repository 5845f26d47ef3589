#include <aten_recompute/aten_recompute.h>

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/backends/backend_detail.h>
#include <torch/csrc/jit/ir/ir.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "backend/lowered_method.h"
#include "backend/share_tensors.h"
#include "passes/plan/plan_file.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Module;
namespace prim = c10::prim;

constexpr const char* kLoweredModule = "__loweredModule__";  // as upstream's wrapper calls it
const c10::Symbol kExecute = c10::Symbol::fromQualString("aten_recompute::execute");

// Traced modules call their arguments "self.1" and "input.7", which upstream's generated source
// cannot say.
void use_plain_argument_names(const Module& module, const std::string& method) {
  auto& function = module.get_method(method).function();
  const auto& schema = function.getSchema();
  std::vector<c10::Argument> arguments;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& argument = schema.arguments()[i];
    auto name = i == 0 ? std::string("self") : argument.name();
    std::replace(name.begin(), name.end(), '.', '_');
    arguments.emplace_back(name, argument.type(), argument.N(), argument.default_value(),
                           argument.kwarg_only());
  }
  function.setSchema(schema.cloneWithArguments(std::move(arguments)));
}

// A method that hands itself and its arguments to the lowered method:
//   return unchecked_cast(T, aten_recompute::execute(self.__loweredModule__.__handles["m"], self,
//   [x]))
void add_method(Module& module, const Module& original, const std::string& method) {
  const auto& schema = original.get_method(method).function().getSchema();
  auto graph = std::make_shared<Graph>();
  auto* self = graph->addInput("self")->setType(module.type());
  std::vector<torch::jit::Value*> inputs;
  std::vector<c10::Argument> arguments{c10::Argument("self", module.type())};
  for (size_t i = 1; i < schema.arguments().size(); ++i) {
    arguments.push_back(schema.arguments()[i]);
    inputs.push_back(
        graph->addInput(schema.arguments()[i].name())->setType(schema.arguments()[i].type()));
  }
  auto* lowered = graph->insertGetAttr(self, kLoweredModule);
  auto* handles = graph->insertGetAttr(lowered, "__handles");
  auto* handle = graph->insert(c10::aten::__getitem__, {handles, graph->insertConstant(method)});
  auto* list = graph->insertNode(graph->createList(c10::AnyType::get(), inputs))->output();
  auto* result = graph->insertNode(graph->create(kExecute, {handle, self, list}, 1))->output();
  result->setType(c10::AnyType::get());
  graph->registerOutput(graph->insertUncheckedCast(result, schema.returns()[0].type()));
  const c10::QualifiedName name(*module.type()->name(), method);
  auto* function = module._ivalue()->compilation_unit()->create_function(name, graph);
  module.type()->addMethod(function);
  function->setSchema(c10::FunctionSchema(method, "", std::move(arguments), {schema.returns()[0]}));
}

void copy_attributes(const Module& from, Module& to) {
  const auto type = from.type();
  for (size_t i = 0; i < type->numAttributes(); ++i) {
    const auto& name = type->getAttributeName(i);
    const auto value = from._ivalue()->getSlot(i);
    if (type->is_parameter(i)) {
      to.register_parameter(name, value.isNone() ? at::Tensor() : value.toTensor(),
                            /*is_buffer=*/false);
    } else if (type->is_buffer(i)) {
      to.register_attribute(name, type->getAttribute(i), value, /*is_param=*/false,
                            /*is_buffer=*/true);
    } else {
      to.register_attribute(name, type->getAttribute(i), value);
    }
  }
}

// Handles of lowered methods cannot be cloned, and what runs lowered is no material for a plan.
void check_is_not_lowered(const Module& module) {
  for (const auto& part : module.named_modules()) {
    if (!part.value.hasattr(kLoweredModule))
      continue;
    const auto which = part.name.empty() ? "the module" : "the submodule \"" + part.name + "\"";
    throw std::invalid_argument(which +
                                " is lowered already: lower the whole from modules that are not");
  }
}

}  // namespace

Module lower(const Module& module, const std::string& options,
             const std::vector<std::string>& methods, const std::string& layer_pattern) {
  // Modules of one class share methods, whose schemas LibTorch fills in where they are first asked
  // for, without a lock.
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  parse_options(options);
  check_is_not_lowered(module);
  auto clone = clone_without_tensors(module);
  if (!layer_pattern.empty()) {
    clone.register_attribute(kLayerPatternAttribute, c10::StringType::get(), layer_pattern);
  }
  c10::Dict<c10::IValue, c10::IValue> specs(c10::StringType::get(), c10::AnyType::get());
  for (const auto& method : methods) {
    if (!clone.find_method(method)) {
      throw std::invalid_argument("the module has no method \"" + method + "\" to lower");
    }
    use_plain_argument_names(clone, method);
    specs.insert(method, options);
  }
  const auto any_dict = c10::DictType::create(c10::StringType::get(), c10::AnyType::get());
  const auto wrapper =
      torch::jit::detail::codegen_backend_module("aten_recompute", clone, specs, any_dict);
  const auto lowered = wrapper.attr(kLoweredModule).toModule();
  const auto processed = processed_module(wrapper);
  share_tensors(module, processed);

  // Upstream's wrapper hides the parameters. This one has what the module has, under the same
  // names, and runs the lowered methods on itself: whatever is assigned to it is what they read.
  Module result(c10::QualifiedName("__torch__.aten_recompute." + module.type()->name()->name()),
                lowered._ivalue()->compilation_unit(), /*shouldMangle=*/true);
  copy_attributes(processed, result);
  result.register_attribute(kLoweredModule, lowered.type(), lowered._ivalue());
  for (const auto& method : methods)
    add_method(result, clone, method);
  return result;
}

namespace {

std::vector<c10::intrusive_ptr<LoweredMethod>> methods_of(const Module& lowered, const char* who) {
  if (!lowered.hasattr(kLoweredModule)) {
    throw std::invalid_argument(
        std::string(who) + ": not a lowered module (aten_recompute.lower or to_backend makes one)");
  }
  std::vector<c10::intrusive_ptr<LoweredMethod>> methods;
  for (const auto& handle :
       lowered.attr(kLoweredModule).toModule().attr("__handles").toGenericDict()) {
    methods.push_back(handle.value().toCustomClass<LoweredMethod>());
  }
  return methods;
}

}  // namespace

std::string report(const Module& lowered) {
  auto methods = nlohmann::json::array();
  for (const auto& method : methods_of(lowered, "report"))
    methods.push_back(nlohmann::json::parse(method->report()));
  return nlohmann::json{{"methods", methods}}.dump();
}

std::string plan(const Module& lowered) {
  std::vector<std::string> parts;
  for (const auto& method : methods_of(lowered, "plan")) {
    auto of_method = method->plans();
    parts.insert(parts.end(), of_method.begin(), of_method.end());
  }
  return plan_file(parts);
}

std::vector<std::string> problems(const Module& lowered) {
  std::vector<std::string> problems;
  for (const auto& method : methods_of(lowered, "problems")) {
    auto of_method = method->problems();
    problems.insert(problems.end(), of_method.begin(), of_method.end());
  }
  return problems;
}

}  // namespace aten_recompute
