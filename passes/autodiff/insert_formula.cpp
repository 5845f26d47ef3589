#include "passes/autodiff/insert_formula.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <memory>

#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/fold_known.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;
namespace prim = c10::prim;

bool is_none(const Value* value) {
  return value->type()->kind() == c10::TypeKind::NoneType;
}

// Gives an input the type of its argument, which cannot be None: `input is None` is False, and
// nothing casts the input. A cast would be captured in place of the input, and nothing would know
// that the backward reads the latter.
void refine(Value* input, const c10::TypePtr& type) {
  std::vector<Node*> checks;
  std::vector<Node*> casts;
  for (const auto& use : input->uses()) {
    if (use.user->kind() == aten::__is__ || use.user->kind() == aten::__isnot__)
      checks.push_back(use.user);
    else if (use.user->kind() == prim::unchecked_cast)
      casts.push_back(use.user);
  }
  if (input->type()->kind() == c10::TypeKind::OptionalType)
    input->setType(type);
  for (auto* cast : casts) {
    cast->output()->replaceAllUsesWith(input);
    cast->destroy();
  }
  for (auto* check : checks) {
    if (!is_none(check->input(0)) && !is_none(check->input(1)))
      continue;
    const torch::jit::WithInsertPoint guard(check);
    check->output()->replaceAllUsesWith(
        check->owningGraph()->insertConstant(check->kind() == aten::__isnot__));
  }
}

// Returns a graph with one node, which has `graph` as its subgraph and reads those inputs that
// `graph` uses.
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

// Makes what reads an element of a list, with a constant index, read what the list was made of.
void read_elements(Node* first, const Node* end) {
  for (auto* node = first; node != end;) {
    auto* read = node;
    node = node->next();
    if (read->kind() != aten::__getitem__ || read->input(0)->node()->kind() != prim::ListConstruct)
      continue;
    const auto elements = read->input(0)->node()->inputs();
    const auto index = torch::jit::constant_as<int64_t>(read->input(1));
    if (!index || *index < 0 || *index >= std::ssize(elements))
      continue;
    read->output()->replaceAllUsesWith(elements[static_cast<size_t>(*index)]);
    read->destroy();
  }
}

// Returns the formula's graph, in which each `if` that the arguments decide is gone.
std::shared_ptr<Graph> decide_conditions(const CompiledFormula& formula,
                                         const std::vector<Value*>& arguments) {
  if (torch::jit::findAllNodes(*formula.graph, prim::If, /*recurse=*/true).empty())
    return formula.graph;
  auto graph = formula.graph->copy();
  const torch::jit::WithInsertPoint guard(graph->block()->nodes().front());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (const auto constant = torch::jit::toIValue(arguments[i]))
      graph->inputs()[i]->replaceAllUsesWith(graph->insertConstant(*constant));
    else if (!can_be_none(*arguments[i]->type()))
      refine(graph->inputs()[i], arguments[i]->type());
  }
  fold_known(graph);
  torch::jit::LowerSimpleTuples(graph);
  return graph;
}

}  // namespace

std::vector<Value*> insert_formula(Graph& graph, const CompiledFormula& formula,
                                   const std::vector<Value*>& arguments) {
  auto decided = decide_conditions(formula, arguments);
  if (formula.is_one_operator)
    decided = as_one_operator(*decided);
  auto* before = graph.insertPoint()->prev();
  auto results = torch::jit::insertGraph(graph, *decided, arguments);
  read_elements(before->next(), graph.insertPoint());
  if (results.size() != 1 || results[0]->type()->kind() != c10::TypeKind::TupleType)
    return results;
  if (results[0]->node()->kind() == prim::TupleConstruct) {
    // Callers name the elements and note facts about them, which must survive the tuple's removal.
    const auto elements = results[0]->node()->inputs();
    return {elements.begin(), elements.end()};
  }
  auto* unpack = graph.insertNode(graph.createTupleUnpack(results[0]));
  return {unpack->outputs().begin(), unpack->outputs().end()};
}

}  // namespace aten_recompute
