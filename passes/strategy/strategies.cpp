#include "passes/strategy/strategies.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "common/strategy_traits.h"
#include "ir/forward_values.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/strategy/graph_view.h"
#include "planner/graph/segments.h"
#include "rules/recomputability.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;

std::vector<Node*> forward_operators(const JointGraph& joint) {
  auto nodes = joint.forward_nodes();
  std::erase_if(nodes, [](const Node* node) { return node->kind() == c10::prim::Constant; });
  return nodes;
}

// Returns everything that is saved by default, except the values for which `recompute` holds.
SavePlan drop_where(const JointGraph& joint, const std::function<bool(Value*)>& recompute) {
  auto plan = save_everything(joint);
  for (auto* node : forward_operators(joint)) {
    for (auto* output : node->outputs()) {
      if (plan.saved.count(output->unique()) != 0 && recompute(output)) {
        plan.saved.erase(output->unique());
      }
    }
  }
  return plan;
}

// A keyword may start with "%", as the IR prints names.
bool name_contains(const std::string& name, const std::string& keyword) {
  return name.find(keyword[0] == '%' ? keyword.substr(1) : keyword) != std::string::npos;
}

// Returns what words of the strategy are compared with: the operator's name or the value's.
std::string name_for(const Value* value, StrategyKind strategy) {
  return strategy == StrategyKind::kOps ? value->node()->kind().toUnqualString()
                                        : value->debugName();
}

bool matches(const std::string& name, const std::string& word, StrategyKind strategy) {
  return strategy == StrategyKind::kOps ? name == word : name_contains(name, word);
}

const std::vector<std::string>& words_of(const Options& options) {
  return options.strategy == StrategyKind::kOps ? options.ops : options.keywords;
}

// Returns the values that a node of another layer reads, and for a view what it views: the
// recomputation of that layer starts there.
std::unordered_set<size_t> layer_boundaries(const JointGraph& joint,
                                            const std::unordered_map<size_t, int64_t>& layers) {
  std::unordered_set<size_t> boundaries;
  for (auto* node : forward_operators(joint)) {
    int64_t layer = -1;
    for (auto* output : node->outputs())
      layer = std::max(layer, layers.at(output->unique()));
    for (auto* input : node->inputs()) {
      const auto found = layers.find(input->unique());
      if (found == layers.end() || found->second == layer)
        continue;
      Value* base = input;
      while (is_pure_view(base->node()) && layers.count(base->node()->input(0)->unique()) != 0) {
        base = base->node()->input(0);
      }
      boundaries.insert(base->unique());
    }
  }
  return boundaries;
}

SavePlan plan_layers(const PlanInput& input, const std::function<bool(int64_t)>& selected) {
  const auto layers = value_layers(input.joint);
  const auto boundaries = layer_boundaries(input.joint, layers);
  auto plan =
      drop_where(input.joint, [&](Value* value) { return selected(layers.at(value->unique())); });
  // The input of a layer is kept even if only the recomputation of the layer reads it.
  for (auto* node : forward_operators(input.joint)) {
    for (auto* output : node->outputs()) {
      if (boundaries.count(output->unique()) != 0 &&
          output->type()->kind() == c10::TypeKind::TensorType &&
          recompute_veto(node) == RecomputeVeto::kNone) {
        plan.saved.insert(output->unique());
      }
    }
  }
  return plan;
}

// Returns the bytes that the value keeps alive; for a view, those of what it views.
int64_t kept_bytes(const Value* value, const ValueBytes& bytes) {
  while (true) {
    const auto found = bytes.find(value->unique());
    if (found == bytes.end())
      return 0;
    if (found->second != 0 || !may_alias_an_argument(value->node()))
      return found->second;
    value = value->node()->input(0);
  }
}

// Returns the stretches of the forward between the separators, which stand in its order.
std::vector<Segment> segments_between(const std::vector<Value*>& separators, const PlanInput& input,
                                      const SavePlan& everything) {
  std::vector<Segment> segments(separators.size() + 1);
  size_t current = 0;
  for (auto* node : forward_operators(input.joint)) {
    for (auto* output : node->outputs()) {
      if (everything.saved.count(output->unique()) != 0)
        segments[current].saved_bytes += kept_bytes(output, input.bytes);
    }
    if (current < separators.size() && separators[current]->node() == node) {
      segments[current].separator_bytes = kept_bytes(separators[current], input.bytes);
      ++current;
    }
  }
  return segments;
}

SavePlan plan_segments(const PlanInput& input, const GraphView& view,
                       const std::vector<Value*>& separators) {
  const auto everything = save_everything(input.joint);
  const auto keep = choose_separators(segments_between(separators, input, everything),
                                      input.options.segment_count);
  // Values that no gradient passes through (dropout masks, padding masks, indices) are small or
  // expensive to recompute, and separators do not replace them: they are all saved.
  SavePlan plan;
  const std::unordered_set<Node*> vertices(view.nodes.begin(), view.nodes.end());
  for (auto* node : forward_operators(input.joint)) {
    if (vertices.count(node) != 0)
      continue;
    for (auto* output : node->outputs()) {
      if (everything.saved.count(output->unique()) != 0)
        plan.saved.insert(output->unique());
    }
  }
  for (size_t i = 0; i < separators.size(); ++i) {
    if (keep[i])
      plan.saved.insert(separators[i]->unique());
  }
  return plan;
}

}  // namespace

bool needs_profile(const Options& options) {
  return options.profile || !options.exact || traits_of(options).needs_profile;
}

std::vector<SavePlan> segment_plans(const PlanInput& input) {
  const auto view = view_forward(input.joint, input.is_attribute);
  const auto separators = single_value_separators(view);
  const auto by_source = separators_by_source(view);
  std::vector<SavePlan> plans{plan_segments(input, view, separators)};
  if (by_source != separators)
    plans.push_back(plan_segments(input, view, by_source));
  return plans;
}

UnmatchedWords unmatched_words(const JointGraph& joint, const Options& options) {
  UnmatchedWords unmatched;
  if (!traits_of(options).matches_words)
    return unmatched;
  drop_where(joint, [&](Value* value) {
    unmatched.names.insert(name_for(value, options.strategy));
    return false;
  });
  for (const auto& word : words_of(options)) {
    if (std::none_of(unmatched.names.begin(), unmatched.names.end(), [&](const std::string& name) {
          return matches(name, word, options.strategy);
        }))
      unmatched.words.insert(word);
  }
  return unmatched;
}

ValueBytes value_bytes(const GraphProblem& graph) {
  ValueBytes bytes;
  const auto& problem = graph.problem;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const auto node = problem.producer[i];
    if (node < 0)
      continue;
    bytes[graph.values[i]->unique()] =
        problem.is_view[node] ? 0 : problem.value_bytes(static_cast<int32_t>(i));
  }
  return bytes;
}

std::unordered_map<size_t, int64_t> value_layers(const JointGraph& joint) {
  std::unordered_map<size_t, int64_t> layers;
  for (auto* node : forward_operators(joint)) {
    int64_t layer = node->hasAttribute(symbols::kLayer) ? node->i(symbols::kLayer) : -1;
    for (auto* input : node->inputs()) {
      const auto found = layers.find(input->unique());
      if (found != layers.end())
        layer = std::max(layer, found->second);
    }
    if (node->kind() == symbols::kMarkLayer) {
      layer = torch::jit::constant_as<int64_t>(node->input(1)).value_or(layer);
    }
    for (auto* output : node->outputs())
      layers[output->unique()] = layer;
  }
  return layers;
}

SavePlan plan_all_layers(const PlanInput& input) {
  return plan_layers(input, [](int64_t) { return true; });
}

SavePlan plan_some_layers(const PlanInput& input) {
  const auto& options = input.options;
  if (!options.layer_ratio) {
    return plan_layers(input, [&](int64_t layer) {
      return layer >= options.layer_start &&
             (layer - options.layer_start) % options.layer_stride == 0;
    });
  }
  std::set<int64_t> layers;
  for (const auto& [unique, layer] : value_layers(input.joint)) {
    if (layer >= 0)
      layers.insert(layer);
  }
  const auto count =
      static_cast<int64_t>(std::llround(*options.layer_ratio * static_cast<double>(layers.size())));
  std::set<int64_t> first;
  for (auto layer : layers) {
    if (static_cast<int64_t>(first.size()) < count)
      first.insert(layer);
  }
  return plan_layers(input, [&](int64_t layer) { return first.count(layer) != 0; });
}

SavePlan plan_words(const PlanInput& input) {
  const auto& words = words_of(input.options);
  const auto strategy = input.options.strategy;
  return drop_where(input.joint, [&](Value* value) {
    const auto name = name_for(value, strategy);
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& word) { return matches(name, word, strategy); });
  });
}

}  // namespace aten_recompute
