#include "passes/region/noop_elimination.h"

#include <c10/util/Exception.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <bit>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/common_size.h"
#include "ir/data_dependence.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"
#include "passes/manager/pass_manager.h"
#include "rules/recomputability.h"
#include "runtime/autograd_modes.h"
#include "runtime/random_state.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// Returns whether sizes and strides decide if the node returns its argument.
bool may_depend_on_layout(const Node* node) {
  if (has_fact(node, Fact::kReturnsArgumentOfSameLayout) || expands_to_common_size(node))
    return true;
  const auto& arguments = node->schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "memory_format" &&
        node->input(i)->type()->kind() != c10::TypeKind::NoneType)
      return true;
  }
  return false;
}

bool may_return_its_argument(const Node* node) {
  const auto& facts = operator_facts(node);
  return (facts.has(Fact::kReturnsArgumentOfSameType) ||
          facts.has(Fact::kReturnsArgumentOfSameLayout)) &&
         node->maybeSchema() != nullptr && node->outputs().size() == 1 &&
         node->input(0)->type()->kind() == c10::TypeKind::TensorType &&
         node->output()->type()->kind() == c10::TypeKind::TensorType &&
         !is_non_differentiable(node);
}

// Returns how many of the node's first arguments its parts may read themselves.
size_t arguments_read_by_parts(const Node* node) {
  if (node->maybeSchema() == nullptr)
    return 0;
  return expands_to_common_size(node) ? 2 : has_fact(node, Fact::kConvertsForItsParts) ? 1 : 0;
}

bool passes_a_gradient(const Node* node) {
  return !is_non_differentiable(node) &&
         std::any_of(node->outputs().begin(), node->outputs().end(),
                     [](const Value* value) { return contains_tensor(*value->type()); });
}

// Returns the positions of the nodes where it matters if they return their argument, or if their
// parts read it: the values that may be one tensor in eager PyTorch are read at least three times,
// and not all through one value.
std::vector<size_t> undecided_nodes(const Graph& graph) {
  // Values that may be one tensor.
  struct AliasGroup {
    std::vector<size_t> nodes;               // that may return their argument
    std::unordered_set<const Value*> names;  // values that are read
    size_t reads = 0;
  };
  std::unordered_map<const Value*, const Value*> origins;
  std::unordered_map<const Value*, AliasGroup> groups;
  auto origin_of = [&](const Value* value) {
    const auto found = origins.find(value);
    return found == origins.end() ? value : found->second;
  };
  auto read = [&](const Value* value) {
    auto& group = groups[origin_of(value)];
    group.names.insert(value);
    ++group.reads;
  };
  size_t position = 0;
  for (const auto* node : graph.nodes()) {
    if (is_cast(node)) {
      origins[node->output()] = origin_of(node->input(0));
    } else if (may_return_its_argument(node)) {
      const auto* origin = origin_of(node->input(0));
      origins[node->output()] = origin;
      groups[origin].nodes.push_back(position);
    } else if (passes_a_gradient(node)) {
      for (const auto* input : node->inputs())
        read(input);
      for (size_t i = 0; i < arguments_read_by_parts(node); ++i) {
        auto& group = groups[origin_of(node->input(i))];
        group.nodes.push_back(position);
        group.names.insert(node->output());  // stands for what the argument is made into
        ++group.reads;                       // at least two parts read it
      }
    }
    ++position;
  }
  for (const auto* output : graph.outputs())
    read(output);
  std::vector<size_t> undecided;
  for (auto& [origin, group] : groups) {
    // An input may be read outside the region as well, and then gets gradients from there, too.
    if (origin->node() == graph.param_node()) {
      group.names.insert(origin);
      ++group.reads;
    }
    if (group.reads > 2 && group.names.size() > 1)
      undecided.insert(undecided.end(), group.nodes.begin(), group.nodes.end());
  }
  std::sort(undecided.begin(), undecided.end());
  undecided.erase(std::unique(undecided.begin(), undecided.end()), undecided.end());
  return undecided;
}

// Adds the node and everything that it depends on to `needed`.
void add_dependencies(Node* node, std::unordered_set<Node*>& needed) {
  if (!needed.insert(node).second)
    return;
  for (auto* input : node->inputs())
    add_dependencies(input->node(), needed);
  for (auto* block : node->blocks()) {
    for (auto* inner : block->nodes())
      add_dependencies(inner, needed);
    add_dependencies(block->return_node(), needed);
  }
}

std::vector<Node*> nodes_of(Graph& graph) {
  return {graph.nodes().begin(), graph.nodes().end()};
}

// Inserts behind the node whether it returns its argument.
Value* insert_is_returned(Node* node) {
  auto& graph = *node->owningGraph();
  const torch::jit::WithInsertPoint guard(node->next());
  return graph.insert(c10::aten::__is__, {node->input(0), node->output()});
}

// Inserts before the node whether its parts read its arguments themselves.
Value* insert_is_read_by_parts(Node* node) {
  auto& graph = *node->owningGraph();
  const torch::jit::WithInsertPoint guard(node);
  if (expands_to_common_size(node)) {
    auto* size = graph.insert(c10::aten::size, {node->input(0)});
    return graph.insert(c10::aten::eq, {size, graph.insert(c10::aten::size, {node->input(1)})});
  }
  auto* type = graph.insert(c10::prim::dtype, {node->input(0)});
  // The operator that the rule of rms_norm asks (rules/kernels/normalization.cpp).
  static const auto computed_type = c10::Symbol::fromQualString("aten_recompute::computed_type");
  return graph.insert(c10::aten::eq, {type, graph.insert(computed_type, {type})});
}

// Gives the operator copies of its tensors. It updates statistics without its schema saying so.
void copy_tensor_operands(Node* node, Graph& graph) {
  const torch::jit::WithInsertPoint guard(node);
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    if (node->input(i)->type()->kind() == c10::TypeKind::TensorType)
      node->replaceInput(i, graph.insert(c10::aten::clone, {node->input(i)}));
  }
}

enum Kind : int64_t { kOther, kTensor, kList, kInt, kBool, kDouble, kDevice };

// Appends what identifies the value's type and, with `with_layout`, its sizes and strides.
void append_signature(std::vector<int64_t>& numbers, const IValue& value, bool with_layout) {
  if (value.isTensor() && value.toTensor().defined()) {
    const auto& tensor = value.toTensor();
    numbers.insert(numbers.end(),
                   {kTensor, tensor.dim(), static_cast<int64_t>(tensor.scalar_type()),
                    static_cast<int64_t>(tensor.layout()),
                    static_cast<int64_t>(tensor.device().type()), tensor.device().index(),
                    static_cast<int64_t>(tensor.is_conj()), static_cast<int64_t>(tensor.is_neg())});
    if (!with_layout)
      return;
    numbers.insert(numbers.end(), tensor.sizes().begin(), tensor.sizes().end());
    if (tensor.layout() == at::kStrided)
      numbers.insert(numbers.end(), tensor.strides().begin(), tensor.strides().end());
  } else if (value.isList()) {
    numbers.insert(numbers.end(), {kList, static_cast<int64_t>(value.toListRef().size())});
    for (const auto& element : value.toListRef())
      append_signature(numbers, element, with_layout);
  } else if (value.isInt()) {
    numbers.insert(numbers.end(), {kInt, value.toInt()});
  } else if (value.isBool()) {
    numbers.insert(numbers.end(), {kBool, static_cast<int64_t>(value.toBool())});
  } else if (value.isDouble()) {
    numbers.insert(numbers.end(), {kDouble, std::bit_cast<int64_t>(value.toDouble())});
  } else if (value.isDevice()) {
    numbers.insert(numbers.end(), {kDevice, static_cast<int64_t>(value.toDevice().type()),
                                   value.toDevice().index()});
  } else {
    numbers.push_back(kOther);
  }
}

}  // namespace

NoopElimination::NoopElimination(const std::shared_ptr<Graph>& graph)
    : graph_(graph), nodes_(undecided_nodes(*graph)) {
  if (nodes_.empty())
    return;
  auto flags_graph = graph->copy();
  const auto all = nodes_of(*flags_graph);
  std::unordered_set<Node*> needed;
  while (!flags_graph->outputs().empty())
    flags_graph->eraseOutput(0);
  std::vector<size_t> decidable;
  for (auto position : nodes_) {
    auto* node = all[position];
    const bool by_layout = may_depend_on_layout(node);
    if (by_layout) {
      std::unordered_set<Node*> before;
      add_dependencies(node, before);
      if (std::any_of(before.begin(), before.end(), [](const Node* each) {
            return !each->blocks().empty() || has_sizes_of_data(each);
          }))
        continue;
    }
    needs_layout_ = needs_layout_ || by_layout;
    decidable.push_back(position);
    auto* flag = arguments_read_by_parts(node) > 0 ? insert_is_read_by_parts(node)
                                                   : insert_is_returned(node);
    flags_graph->registerOutput(flag);
    add_dependencies(flag->node(), needed);
  }
  nodes_ = std::move(decidable);
  const auto extended = nodes_of(*flags_graph);
  for (auto node = extended.rbegin(); node != extended.rend(); ++node) {
    if (needed.count(*node) == 0) {
      (*node)->destroy();
      continue;
    }
    draws_numbers_ = draws_numbers_ || draws_random_numbers(*node);
    if (updates_hidden_state(*node))
      copy_tensor_operands(*node, *flags_graph);
  }
  for (size_t i = 0; i < flags_graph->inputs().size(); ++i) {
    if (flags_graph->inputs()[i]->hasUses())
      read_inputs_.push_back(i);
  }
  flags_program_ = std::make_unique<Program>(std::move(flags_graph));
}

std::vector<int64_t> NoopElimination::signature(const std::vector<IValue>& inputs) const {
  std::vector<int64_t> numbers;
  for (auto i : read_inputs_)
    append_signature(numbers, inputs[i], needs_layout_);
  return numbers;
}

std::vector<bool> NoopElimination::compute_flags(std::vector<IValue> inputs) const {
  const RestoreGenerators restore(inputs, draws_numbers_);
  const WithoutAutograd guard;
  auto registers = flags_program_->start(std::move(inputs));
  flags_program_->run(registers, 0, flags_program_->instructions().size());
  std::vector<bool> returned;
  for (size_t i = 0; i < nodes_.size(); ++i)
    returned.push_back(flags_program_->take_output(registers, i).toBool());
  return returned;
}

std::vector<bool> NoopElimination::find(const std::vector<IValue>& inputs) {
  if (nodes_.empty())
    return {};
  auto now = signature(inputs);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto* found = known_.find([&](const Known& each) { return each.signature == now; }))
    return found->returned;
  std::vector<bool> returned;
  try {
    returned = compute_flags(inputs);
  } catch (const c10::Error&) {
    return std::vector<bool>(nodes_.size(), false);  // the region's own run throws it again
  }
  known_.insert({std::move(now), returned});
  return returned;
}

std::shared_ptr<Graph> NoopElimination::fold(const std::vector<bool>& returned) const {
  if (std::find(returned.begin(), returned.end(), true) == returned.end())
    return graph_;
  auto graph = graph_->copy();
  run_pass(Pass::kNoopElimination, graph, [&] {
    const auto nodes = nodes_of(*graph);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!returned[i])
        continue;
      auto* node = nodes[nodes_[i]];
      if (arguments_read_by_parts(node) > 0) {
        node->i_(expands_to_common_size(node) ? kHasCommonSize : symbols::kHasComputedType, 1);
        continue;
      }
      node->output()->replaceAllUsesWith(node->input(0));
      node->destroy();
    }
  });
  return graph;
}

}  // namespace aten_recompute
