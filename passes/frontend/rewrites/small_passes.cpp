#include "passes/frontend/rewrites/small_passes.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/jit_log.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/passes/shape_analysis.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"
#include "runtime/inner_gradient.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;

void remove_idle_dropout(Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    auto* node = *it++;
    for (auto* inner : node->blocks())
      remove_idle_dropout(inner);
    if (!has_fact(node, Fact::kDropout))
      continue;
    const auto p = torch::jit::toIValue(node->input(1));
    const auto train = torch::jit::constant_as<bool>(node->input(2));
    if ((train && !*train) || (p && p->isDouble() && p->toDouble() == 0.0)) {
      node->output()->replaceAllUsesWith(node->input(0));
      node->destroy();
    }
  }
}

// Returns whether the node is a part of x[:, ...]: a slice of all, which one further index reads,
// or into which one is put. What several operators read is x[:], whose gradients eager PyTorch adds
// up before those of x.
bool is_whole_slice(const Node* node) {
  if (!slices_whole_dimension(node))
    return false;
  const auto& uses = node->output()->uses();
  if (uses.size() != 1 || uses[0].offset != 0)
    return false;
  const auto kind = uses[0].user->kind();
  return kind == aten::slice || kind == aten::select || kind == aten::unsqueeze ||
         kind == aten::index || kind == aten::select_scatter || kind == aten::slice_scatter;
}

// Returns whether the block has complex constants. LibTorch's peephole pass takes every number for
// a real one, and throws at x * 1j.
bool has_complex_constant(Block* block) {
  bool found = false;
  for_each_node(block, [&](Node* node) {
    found = found || (node->kind() == c10::prim::Constant &&
                      node->output()->type()->kind() == c10::TypeKind::ComplexType);
  });
  return found;
}

// Puts an alias between each target of a gradient and its readers. LibTorch's pass replaces t(t(x))
// by x, which other operators may read as well: its gradient is another one.
void keep_targets_apart(Graph& graph) {
  std::vector<Value*> targets;
  for (auto* node : graph.nodes()) {
    if (node->kind() != symbols::kGradient)
      continue;
    const auto request = GradientRequest::of(*node);
    const auto operands = node->inputs().slice(static_cast<size_t>(request.num_outputs),
                                               static_cast<size_t>(request.num_targets));
    targets.insert(targets.end(), operands.begin(), operands.end());
  }
  for (auto* target : targets) {
    if (target->node()->kind() != aten::t)
      continue;
    auto* alias = graph.create(aten::alias, {target});
    alias->insertAfter(target->node());
    alias->copyMetadata(target->node());
    alias->output()->setType(target->type());
    target->replaceAllUsesAfterNodeWith(alias, alias->output());
  }
}

// Hides the numbers of  x * 1  and  x + 0  from LibTorch's pass, which takes x in their place
// though x may be of integers or booleans, whose sum with a number has another type, or of negative
// zeros.
class HiddenNumbers {
 public:
  explicit HiddenNumbers(Graph& graph) : graph_(graph) {
    for_each_node(graph.block(), [&](Node* node) {
      static const std::unordered_set<c10::Symbol> kinds{aten::add, aten::sub, aten::mul,
                                                         aten::div};
      if (kinds.count(node->kind()) == 0 || !contains_tensor(*node->input(0)->type()) ||
          contains_tensor(*node->input(1)->type()))
        return;
      const auto number = torch::jit::toIValue(node->input(1));
      if (!number)
        return;
      numbers_.push_back(*number);
      node->replaceInput(1, graph.addInput()->setType(node->input(1)->type()));
    });
  }
  // LibTorch's pass may have removed the constants, which nothing has read.
  ~HiddenNumbers() {
    const torch::jit::WithInsertPoint guard(*graph_.nodes().begin());
    for (; !numbers_.empty(); numbers_.pop_back()) {
      const auto last = graph_.inputs().size() - 1;
      graph_.inputs()[last]->replaceAllUsesWith(graph_.insertConstant(numbers_.back()));
      graph_.eraseInput(last);
    }
  }
  HiddenNumbers(const HiddenNumbers&) = delete;
  HiddenNumbers& operator=(const HiddenNumbers&) = delete;

 private:
  Graph& graph_;
  std::vector<c10::IValue> numbers_;  // each of the inputs that were added, in their order
};

std::vector<Value*> tensor_constants(Block* block) {
  std::vector<Value*> constants;
  for_each_node(block, [&](Node* node) {
    if (node->kind() == c10::prim::Constant &&
        node->output()->type()->kind() == c10::TypeKind::TensorType)
      constants.push_back(node->output());
  });
  return constants;
}

void keep_ranks_only(at::ArrayRef<Value*> values) {
  for (auto* value : values) {
    const auto type = value->type()->cast<c10::TensorType>();
    if (type != nullptr && value->node()->kind() != c10::prim::Constant)
      value->setType(
          c10::TensorType::create(std::nullopt, std::nullopt, type->dim(), std::nullopt));
  }
}

}  // namespace

std::vector<InputAssumption> specialize_inputs(const std::shared_ptr<Graph>& graph,
                                               const std::vector<c10::IValue>& inputs) {
  std::vector<InputAssumption> assumptions;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto* value = graph->inputs()[i + 1];
    InputAssumption assumption;
    assumption.input = i;
    if (auto optional = value->type()->cast<c10::OptionalType>()) {
      assumption.is_none = inputs[i].isNone();
      const torch::jit::WithInsertPoint guard(graph->block()->nodes().front());
      if (assumption.is_none) {
        value->replaceAllUsesWith(graph->insertConstant(c10::IValue()));
      } else {
        auto* cast = graph->insertUncheckedCast(value, optional->getElementType());
        value->replaceAllUsesAfterNodeWith(cast->node(), cast);
        value = cast;
      }
    }
    if (inputs[i].isTensor() && inputs[i].toTensor().defined() &&
        value->type()->kind() == c10::TypeKind::TensorType) {
      const auto& tensor = inputs[i].toTensor();
      assumption.rank = tensor.dim();
      value->setType(c10::TensorType::create(std::nullopt, std::nullopt,
                                             static_cast<size_t>(tensor.dim()), std::nullopt));
    }
    assumptions.push_back(assumption);
  }
  return assumptions;
}

void remove_idle_dropout(Graph& graph) {
  remove_idle_dropout(graph.block());
}

void remove_whole_slices(Graph& graph) {
  std::vector<Node*> found;
  for_each_node(graph.block(), [&](Node* node) {
    if (is_whole_slice(node))
      found.push_back(node);
  });
  for (auto* node : found) {
    node->output()->replaceAllUsesWith(node->input(0));
    node->destroy();
  }
}

void replace_view_as(Graph& graph) {
  std::vector<Node*> found;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == aten::expand_as || node->kind() == aten::view_as ||
        node->kind() == aten::reshape_as)
      found.push_back(node);
  });
  for (auto* node : found) {
    const torch::jit::WithInsertPoint guard(node);
    const auto kind = node->kind() == aten::expand_as ? aten::expand
                      : node->kind() == aten::view_as ? aten::view
                                                      : aten::reshape;
    auto* sizes = graph.insert(aten::size, {node->input(1)});
    auto* view = graph.insert(kind, {node->input(0), sizes});
    view->node()->copyMetadata(node);
    view->node()->copyAttributes(*node);
    node->output()->replaceAllUsesWith(view);
    view->copyMetadata(node->output());
    node->destroy();
  }
}

void propagate_constants(const std::shared_ptr<Graph>& given) {
  auto graph = given;  // LibTorch's pass takes a reference
  std::unordered_set<size_t> known;
  for (const auto* constant : tensor_constants(graph->block()))
    known.insert(constant->unique());
  torch::jit::ConstantPropagation(graph);
  for (auto* constant : tensor_constants(graph->block())) {
    if (known.count(constant->unique()) != 0)
      continue;
    const auto uses = constant->uses();
    Value* copy = nullptr;
    for (const auto& use : uses) {
      if (!use.user->outputs().empty() && makes_new_tensor(use.user->output(0)))
        continue;
      if (copy == nullptr) {
        const torch::jit::WithInsertPoint guard(constant->node()->next());
        copy = graph->insert(aten::clone, {constant});
      }
      use.user->replaceInput(use.offset, copy);
    }
  }
}

void simplify(const std::shared_ptr<Graph>& graph) {
  if (has_complex_constant(graph->block()))
    return;
  keep_targets_apart(*graph);
  const HiddenNumbers hidden(*graph);
  torch::jit::PeepholeOptimize(graph);
}

void propagate_shapes(const std::shared_ptr<Graph>& graph) {
  try {
    torch::jit::PropagateInputShapes(graph);
  } catch (const std::exception& error) {
    GRAPH_DEBUG("shapes are not propagated: ", error.what());
  }
  for_each_node(graph->block(), [](Node* node) {
    keep_ranks_only(node->outputs());
    for (auto* block : node->blocks())
      keep_ranks_only(block->inputs());
  });
}

}  // namespace aten_recompute
