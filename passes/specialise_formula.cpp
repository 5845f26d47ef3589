#include "passes/specialise_formula.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

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

}  // namespace

std::shared_ptr<Graph> specialise_formula(const CompiledFormula& formula,
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

}  // namespace aten_recompute
