#include "passes/autodiff/specialise_formula.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;

bool can_be_none(const c10::Type& type) {
  return type.kind() == c10::TypeKind::OptionalType || type.kind() == c10::TypeKind::NoneType ||
         type.kind() == c10::TypeKind::AnyType;
}

bool is_none(const Value* value) {
  return value->type()->kind() == c10::TypeKind::NoneType;
}

// `x is None` for an input that is not.
void answer_that_it_is_there(Value* input) {
  std::vector<Node*> questions;
  for (const auto& use : input->uses()) {
    if (use.user->kind() == aten::__is__ || use.user->kind() == aten::__isnot__)
      questions.push_back(use.user);
  }
  for (auto* question : questions) {
    if (!is_none(question->input(0)) && !is_none(question->input(1)))
      continue;
    const torch::jit::WithInsertPoint guard(question);
    question->output()->replaceAllUsesWith(
        question->owningGraph()->insertConstant(question->kind() == aten::__isnot__));
  }
}

// The graph as the subgraph of one node, which reads what the graph reads of its inputs.
std::shared_ptr<Graph> as_one_operator(Graph& graph) {
  auto outer = std::make_shared<Graph>();
  auto inner = graph.copy();
  std::vector<Value*> reads;
  for (size_t i = inner->inputs().size(); i-- > 0;) {
    auto* input = outer->insertInput(0)->setType(inner->inputs()[i]->type());
    if (inner->inputs()[i]->hasUses())
      reads.insert(reads.begin(), input);
    else
      inner->eraseInput(i);
  }
  auto* result = inner->outputs()[0];
  if (result->type()->kind() == c10::TypeKind::TupleType) {
    const torch::jit::WithInsertPoint guard(inner->return_node());
    auto* unpack = inner->insertNode(inner->createTupleUnpack(result));
    inner->eraseOutput(0);
    for (auto* output : unpack->outputs())
      inner->registerOutput(output);
    torch::jit::LowerSimpleTuples(inner);
  }
  auto* node =
      outer->insertNode(outer->create(symbols::kRuleFunction, reads, inner->outputs().size()));
  node->g_(c10::attr::Subgraph, inner);
  for (size_t i = 0; i < node->outputs().size(); ++i)
    outer->registerOutput(node->output(i)->setType(inner->outputs()[i]->type()));
  return outer;
}

std::shared_ptr<Graph> with_constants(const CompiledFormula& formula,
                                      const std::vector<Value*>& arguments) {
  if (torch::jit::findAllNodes(*formula.graph, c10::prim::If, /*recurse=*/true).empty())
    return formula.graph;
  auto graph = formula.graph->copy();
  const torch::jit::WithInsertPoint guard(graph->block()->nodes().front());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (const auto constant = torch::jit::toIValue(arguments[i]))
      graph->inputs()[i]->replaceAllUsesWith(graph->insertConstant(*constant));
    else if (!can_be_none(*arguments[i]->type()))
      answer_that_it_is_there(graph->inputs()[i]);
  }
  torch::jit::ConstantPropagation(graph);
  torch::jit::LowerSimpleTuples(graph);
  return graph;
}

}  // namespace

std::shared_ptr<Graph> specialise_formula(const CompiledFormula& formula,
                                          const std::vector<Value*>& arguments) {
  auto graph = with_constants(formula, arguments);
  return formula.is_one_operator ? as_one_operator(*graph) : graph;
}

}  // namespace aten_recompute
