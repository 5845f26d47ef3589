#include <aten_recompute/aten_recompute.h>

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/backends/backend_detail.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "backend/method/lowered_method.h"
#include "backend/method/method_spec.h"
#include "backend/method/planned_methods.h"
#include "backend/method/share_tensors.h"
#include "runtime/one_line_errors.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Module;
namespace prim = c10::prim;

const c10::Symbol kCall = c10::Symbol::fromQualString("aten_recompute::call");

// An attribute that exists for its type's name: a process that has not loaded the library cannot
// read a lowered module's file, and PyTorch's error names the unknown type. Every lowered method
// reads it, and its value is a list: torch::jit::freeze cannot look into lists of C++ objects, so
// it refuses the module, where it would otherwise make one that cannot run.
constexpr const char* kNeeds = "__needs__";
constexpr const char* kNeedsClass =
    "lowered_module_needs__import_aten_recompute__or__dlopen_libaten_recompute_so";

struct Needs : torch::CustomClassHolder {};

TORCH_LIBRARY_FRAGMENT(aten_recompute, m) {
  m.class_<Needs>(kNeedsClass)
      .def(torch::init<>())
      .def_pickle([](const c10::intrusive_ptr<Needs>& /*self*/) -> int64_t { return 0; },
                  [](int64_t /*state*/) { return c10::make_intrusive<Needs>(); });
}

// Returns the argument under a name that callers can use as a keyword. Traced modules have
// arguments with names such as "input.7".
c10::Argument with_plain_name(const c10::Argument& argument) {
  auto name = argument.name();
  std::replace(name.begin(), name.end(), '.', '_');
  return {name, argument.type(), argument.N(), argument.default_value(), argument.kwarg_only()};
}

// Adds a method that passes the module and its arguments to the lowered method:
//   return unchecked_cast(T, aten_recompute::call(self.__loweredModule__, "m", self, [x]))
void add_method(Module& module, const Module& original, const std::string& method) {
  const auto& schema = original.get_method(method).function().getSchema();
  auto graph = std::make_shared<Graph>();
  auto* self = graph->addInput("self")->setType(module.type());
  std::vector<torch::jit::Value*> inputs;
  std::vector<c10::Argument> arguments{c10::Argument("self", module.type())};
  for (size_t i = 1; i < schema.arguments().size(); ++i) {
    arguments.push_back(with_plain_name(schema.arguments()[i]));
    inputs.push_back(graph->addInput(arguments.back().name())->setType(arguments.back().type()));
  }
  auto* needs = graph->insertGetAttr(self, kNeeds);
  auto* lowered = graph->insertGetAttr(self, kLoweredModule);
  auto* name = graph->insertConstant(method);
  auto* list = graph->insertNode(graph->createList(c10::AnyType::get(), inputs))->output();
  auto* result =
      graph->insertNode(graph->create(kCall, {needs, lowered, name, self, list}, 1))->output();
  result->setType(c10::AnyType::get());
  graph->registerOutput(graph->insertUncheckedCast(result, schema.returns()[0].type()));
  auto* function = module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), method), graph);
  module.type()->addMethod(function);
  function->setSchema(c10::FunctionSchema(method, "", std::move(arguments), {schema.returns()[0]}));
}

// Copies the methods that are not lowered; they run on the module that they are called on. A
// lowered module has its own way of being saved, so __getstate__ and __setstate__ are left out.
void add_other_methods(Module& module, const Module& original,
                       const std::vector<std::string>& lowered) {
  for (const auto* function : original.type()->methods()) {
    const auto& name = function->name();
    if (name == "__getstate__" || name == "__setstate__")
      continue;
    if (std::find(lowered.begin(), lowered.end(), name) == lowered.end())
      module.clone_method(original, name);
  }
}

void copy_attributes(const Module& from, Module& to) {
  const auto type = from.type();
  for (size_t i = 0; i < type->numAttributes(); ++i) {
    to.register_attribute(type->getAttributeName(i), type->getAttribute(i),
                          from._ivalue()->getSlot(i), type->is_parameter(i), type->is_buffer(i));
  }
  for (size_t i = 0; i < type->numConstants(); ++i)
    to.type()->addConstant(type->getConstantName(i), type->getConstant(i));
}

// Returns upstream's part of a lowered module: it holds the processed module, and makes the handles
// of the methods again when it is loaded. It gets no methods of its own, because nobody calls them
// and their source could not name every type (a NamedTuple's, for example).
Module backend_module(const Module& module, const c10::Dict<c10::IValue, c10::IValue>& specs) {
  const auto any_dict = c10::DictType::create(c10::StringType::get(), c10::AnyType::get());
  const c10::Dict<c10::IValue, c10::IValue> none(c10::StringType::get(), c10::AnyType::get());
  auto lowered =
      torch::jit::detail::codegen_backend_module("aten_recompute", module, none, any_dict)
          .attr(kLoweredModule)
          .toModule();
  lowered.run_method("__setstate__", c10::ivalue::Tuple::create(
                                         {specs, lowered.attr("__processed_module"), false}));
  return lowered;
}

// Returns the mutex for cloning modules. Modules of one class share methods, and LibTorch fills in
// the schema of a method at its first use, without a lock.
std::mutex& cloning() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

Module lower(const Module& module, const std::string& options,
             const std::vector<std::string>& methods, const std::string& layer_pattern) try {
  const std::lock_guard<std::mutex> lock(cloning());
  const auto spec = self_contained(options);
  auto clone = clone_without_tensors(module);
  if (!layer_pattern.empty()) {
    clone.register_attribute(kLayerPatternAttribute, c10::StringType::get(), layer_pattern);
  }
  c10::Dict<c10::IValue, c10::IValue> specs(c10::StringType::get(), c10::AnyType::get());
  for (const auto& method : methods) {
    require_method(clone, method, "lower");
    specs.insert(method, spec);
  }
  const auto lowered = backend_module(clone, specs);
  for (const auto& method : methods_of_backend(lowered))
    check_options(clone, method->name(), method->options());

  const auto processed = lowered.attr("__processed_module").toTupleRef().elements()[0].toModule();
  share_tensors(module, processed);
  replace_classes(clone, processed);
  copy_hooks(clone, processed);

  // Upstream's wrapper hides the parameters. This module has the original's attributes under the
  // same names, and runs the lowered methods on itself, so that they read what is assigned to it.
  Module result(c10::QualifiedName("__torch__.aten_recompute." + module.type()->name()->name()),
                lowered._ivalue()->compilation_unit(), /*shouldMangle=*/true);
  copy_attributes(processed, result);
  const c10::IValue needs(c10::List<c10::intrusive_ptr<Needs>>({c10::make_intrusive<Needs>()}));
  result.register_attribute(kNeeds, needs.type(), needs);
  // An attribute of type Any does not count as a child of the module.
  result.register_attribute(kLoweredModule, c10::AnyType::get(), lowered._ivalue());
  for (const auto& method : methods)
    add_method(result, processed, method);
  add_other_methods(result, processed, methods);
  copy_hooks(processed, result);
  return result;
} catch (const std::invalid_argument&) {
  throw;
} catch (const std::exception&) {
  rethrow_as_invalid_argument();
}

Module unlower(const Module& module) {
  if (!holds_lowered(module))
    return module;
  const std::lock_guard<std::mutex> lock(cloning());
  return plain_clone(module);
}

}  // namespace aten_recompute
