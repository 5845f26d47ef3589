#include "backend/pictures/graph_code.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/python_print.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::GraphFunction;
using torch::jit::Node;
namespace prim = c10::prim;

// Prints functions that may call each other, callees first.
class CodePrinter {
 public:
  CodePrinter() : printer_(constants_, dependencies_) {}

  void print(const std::shared_ptr<Graph>& given, const std::string& name) {
    auto graph = given->copy();
    std::vector<Node*> opaque;
    for_each_node(graph->block(), [&](Node* node) {
      if (is_opaque(node))
        opaque.push_back(node);
    });
    for (auto* node : opaque)
      make_call(*graph, node);
    return_one_value(*graph);
    printer_.printFunction(*keep(name, graph));
  }

  std::string text() const { return printer_.str(); }

 private:
  // Returns whether the printer would leave out what the node reads, or what is inside of it.
  static bool is_opaque(const Node* node) {
    if (node->kind().is_prim() || node->kind().is_aten())
      return false;
    return node->maybeSchema() == nullptr || node->schema().is_vararg() ||
           node->hasAttribute(c10::attr::Subgraph);
  }

  // A function has one result.
  static void return_one_value(Graph& graph) {
    if (graph.outputs().size() == 1)
      return;
    const torch::jit::WithInsertPoint guard(graph.return_node());
    auto* tuple = graph.insertNode(graph.createTuple(graph.outputs()))->output();
    while (!graph.outputs().empty())
      graph.eraseOutput(graph.outputs().size() - 1);
    graph.registerOutput(tuple);
  }

  GraphFunction* keep(const std::string& name, std::shared_ptr<Graph> graph) {
    functions_.push_back(
        std::make_unique<GraphFunction>(c10::QualifiedName(name), std::move(graph), nullptr));
    return functions_.back().get();
  }

  // Replaces the node by a call of a function, which the printer knows.
  void make_call(Graph& graph, Node* node) {
    std::string name = node->kind().toUnqualString();
    auto inner = std::make_shared<Graph>();
    if (node->hasAttribute(c10::attr::Subgraph)) {
      name += "_" + std::to_string(num_inner_++);
      inner = node->g(c10::attr::Subgraph);
      print(inner, name);
    }
    auto* function = keep(name, inner);
    const torch::jit::WithInsertPoint guard(node);
    auto* callee = graph.insertNode(graph.create(prim::Constant, 1));
    callee->s_(c10::attr::name, name);
    callee->output()->setType(c10::FunctionType::create(function));
    std::vector<torch::jit::Value*> inputs{callee->output()};
    inputs.insert(inputs.end(), node->inputs().begin(), node->inputs().end());
    auto* call = graph.insertNode(graph.create(prim::CallFunction, inputs, node->outputs().size()));
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      call->output(i)->copyMetadata(node->output(i));
      node->output(i)->replaceAllUsesWith(call->output(i));
    }
    node->destroy();
  }

  std::vector<c10::IValue> constants_;
  torch::jit::PrintDepsTable dependencies_;
  torch::jit::PythonPrint printer_;
  std::vector<std::unique_ptr<GraphFunction>> functions_;
  size_t num_inner_ = 0;
};

std::string as_comment(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);)
    result += "# " + line + "\n";
  return result;
}

}  // namespace

std::string code_of(const std::shared_ptr<Graph>& graph, const std::string& name) {
  try {
    CodePrinter printer;
    printer.print(graph, name);
    return printer.text();
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return "# TorchScript has no code for this graph: " + what.substr(0, what.find('\n')) + "\n" +
           as_comment(graph->toString(/*print_source_locations=*/false));
  }
}

}  // namespace aten_recompute
