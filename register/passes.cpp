// Passes by name, for C++ and Python.
#include <aten_recompute/passes.h>

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/library.h>

#include <stdexcept>

#include "common/options.h"
#include "common/parse_options.h"
#include "passes/run_by_name.h"
#include "register/function_handle.h"
#include "runtime/one_line_errors.h"

namespace aten_recompute {

namespace passes {

std::vector<std::pair<std::string, std::string>> names() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& info : all_passes())
    all.emplace_back(info.name, summary_of(info.pass));
  return all;
}

std::vector<std::shared_ptr<torch::jit::Graph>> run(const std::string& name,
                                                    const std::shared_ptr<torch::jit::Graph>& graph,
                                                    const Arguments& arguments) {
  NamedPassInput input;
  if (arguments.module)
    input.self = arguments.module->_ivalue();
  input.inputs = arguments.inputs;
  input.requires_grad = arguments.requires_grad;
  input.options = resolve_options(arguments.options);
  return run_by_name(name, graph, input);
}

}  // namespace passes

namespace {

// Returns the graphs that are not `given`, as methods "graph0", "graph1" and so on of a module: an
// operator can return no graph, but Python reads the graph of a method.
c10::IValue as_methods(const std::vector<std::shared_ptr<torch::jit::Graph>>& graphs,
                       const std::shared_ptr<torch::jit::Graph>& given) {
  torch::jit::Module module("__torch__.aten_recompute.Graphs");
  for (size_t i = 0; i < graphs.size(); ++i) {
    if (graphs[i] == given)
      continue;
    const auto name = "graph" + std::to_string(i);
    auto* function = module._ivalue()->compilation_unit()->create_function(
        c10::QualifiedName(*module.type()->name(), name), graphs[i]);
    // The graph is none of a method. A schema that says so would be refused.
    function->setSchema(c10::FunctionSchema(name, "", {c10::Argument("self", module.type())}, {}));
    module.type()->addMethod(function);
  }
  return module._ivalue();
}

c10::IValue run_pass_any(const std::string& name, const c10::IValue& graph,
                         const c10::IValue& module, const c10::List<c10::IValue>& inputs,
                         const std::vector<int64_t>& requires_grad,
                         const std::string& options) try {
  passes::Arguments arguments;
  if (!module.isNone())
    arguments.module = torch::jit::Module(module.toObject());
  arguments.inputs = inputs.vec();
  for (const auto flag : requires_grad)
    arguments.requires_grad.push_back(flag != 0);
  arguments.options = options;
  auto* function = function_in(torch::jit::Module(graph.toObject()));
  if (function == nullptr)
    throw std::invalid_argument("passes: this is no graph");
  const auto given = torch::jit::toGraphFunction(*function).graph();
  return as_methods(passes::run(name, given, arguments), given);
} catch (const std::exception&) {
  rethrow_in_one_line();
}

std::vector<std::string> pass_names() {
  std::vector<std::string> lines;
  for (const auto& [name, summary] : passes::names()) {
    lines.push_back(name);
    lines.push_back(summary);
  }
  return lines;
}

TORCH_LIBRARY_FRAGMENT(aten_recompute, m) {
  m.def(
      "run_pass(str name, Any graph, Any module, Any[] inputs, int[] requires_grad, str options) "
      "-> Any",
      &run_pass_any);
  m.def("pass_names() -> str[]", &pass_names);
}

}  // namespace
}  // namespace aten_recompute
