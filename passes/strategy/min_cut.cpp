#include "passes/strategy/min_cut.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "ir/symbols.h"
#include "passes/strategy/operator_types.h"
#include "passes/strategy/tags.h"
#include "planner/graph/flow_network.h"
#include "rules/recomputability.h"

namespace aten_recompute {
namespace {

namespace prim = c10::prim;

constexpr int64_t kUnreachable = std::numeric_limits<int32_t>::max();
// From here on max_dist_from_bw is not looked at, whatever it is: PyTorch's rule, and the reason
// why its default, the same number, bans nothing.
constexpr int64_t kMaxDistance = 1000;
// The weight of a distance grows no further.
constexpr int64_t kMaxWeightedDistance = 100;

// A list or tuple that exists to hand its elements to one operator: that operator reads them.
bool collects(const torch::jit::Node* node) {
  return node->kind() == prim::ListConstruct || node->kind() == prim::TupleConstruct ||
         node->kind() == symbols::kOptionalList;
}

MinCutOptions effective(MinCutOptions options) {
  if (options.aggressive_recomputation) {
    options.ban_if_used_far_apart = false;
    options.ban_if_long_fusible_chains = false;
    options.ban_if_materialized_backward = false;
    options.ban_if_not_in_allowlist = false;
  }
  return options;
}

// Of a number without trailing zeros.
std::string text_of(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

class Planner {
 public:
  Planner(const JointGraph& joint, const GraphProblem& graph, const Profile& profile,
          const std::vector<bool>& is_attribute, const MinCutOptions& options)
      : joint_(joint),
        graph_(graph),
        problem_(graph.problem),
        profile_(profile),
        is_attribute_(is_attribute),
        options_(effective(options)),
        types_(options.recomputable_ops, options.compute_intensive_ops, options.recompute_random),
        tags_(value_tags(graph)),
        roots_(base_values(problem_)),
        stays_(stays_for_caller(problem_)) {}

  MinCutPlan run() {
    classify();
    find_readers();
    find_distances();
    ban_by_operator();
    if (options_.ban_if_used_far_apart)
      ban_used_far_apart();
    if (options_.ban_if_long_fusible_chains)
      ban_long_fusible_chains();
    return cut();
  }

 private:
  bool is_forward(int32_t node) const { return problem_.in_forward(node); }
  bool is_view(int32_t node) const { return problem_.is_view[node] != 0; }

  // Operators of the forward that make tensors and always run. An optional one serves the choice
  // between an operator and what can stand in for it, which is not made here.
  bool takes_part(int32_t node) const {
    return is_forward(node) && !problem_.outputs[node].empty() && !problem_.optional[node];
  }

  bool fuses(int32_t maker, int32_t reader) const {
    return concatenates_[reader] || (fusible_[maker] && fusible_[reader]);
  }

  void classify() {
    for (size_t node = 0; node < problem_.num_nodes; ++node) {
      fusible_.push_back(types_.fusible(graph_.nodes[node]));
      concatenates_.push_back(types_.concatenates(graph_.nodes[node]));
    }
    order_.resize(problem_.num_nodes);
    int32_t next = 0;
    for (size_t node = 0; node < problem_.num_forward; ++node) {
      if (takes_part(static_cast<int32_t>(node)) && !collects(graph_.nodes[node]))
        order_[node] = next++;
    }
  }

  // From the last node to the first, so that who reads a list is known before who is in it.
  void find_readers() {
    value_readers_.resize(problem_.num_values());
    readers_.resize(problem_.num_nodes);
    for (size_t i = problem_.num_nodes; i-- > 0;) {
      const auto node = static_cast<int32_t>(i);
      if (is_forward(node) && !takes_part(node))
        continue;
      for (auto output : problem_.outputs[node])
        readers_[node].insert(value_readers_[output].begin(), value_readers_[output].end());
      for (auto input : problem_.inputs[node]) {
        auto& readers = value_readers_[input];
        if (collects(graph_.nodes[node])) {
          readers.insert(readers_[node].begin(), readers_[node].end());
        } else {
          readers.insert(node);
        }
      }
    }
  }

  // Operators between a value and the nearest backward node that depends on it.
  void find_distances() {
    distance_.assign(problem_.num_nodes, 0);
    for (size_t i = problem_.num_forward; i-- > 0;)
      distance_[i] = distance_over(readers_[i]);
  }

  int64_t distance_over(const std::set<int32_t>& readers) const {
    int64_t distance = kUnreachable;
    for (auto reader : readers)
      distance = std::min(distance, distance_[reader] + 1);
    return distance;
  }

  // ---- bans ----

  Tag tag_of(int32_t node) const {
    auto tag = Tag::kNone;
    for (auto output : problem_.outputs[node])
      tag = std::max(tag, tags_[output]);
    return tag;
  }

  // Views cost nothing to make again, and what the program says comes before what heuristics say.
  void ban(int32_t node, const std::string& reason) {
    const auto tag = tag_of(node);
    if (is_view(node) || tag == Tag::kMustRecompute || tag == Tag::kPreferRecompute)
      return;
    reasons_.emplace(node, reason);
  }

  void ban_by_operator() {
    for (size_t i = 0; i < problem_.num_forward; ++i) {
      const auto node = static_cast<int32_t>(i);
      if (!takes_part(node))
        continue;
      if (!problem_.recomputable[node]) {
        reasons_.emplace(node, std::string(to_string(recompute_veto(graph_.nodes[node]))));
      } else if (const auto reason = reason_of(node); !reason.empty()) {
        ban(node, reason);
      }
    }
  }

  std::string reason_of(int32_t node) const {
    const auto* ir = graph_.nodes[node];
    const auto tag = tag_of(node);
    if (tag == Tag::kMustSave || (tag == Tag::kPreferSave && !options_.aggressive_recomputation))
      return std::string("tagged ") + to_string(tag);
    if (is_view(node))
      return "";
    if (types_.random(ir) && !options_.recompute_random)
      return "random (recompute_random)";
    if (options_.ban_if_not_in_allowlist) {
      if (!types_.recomputable(ir))
        return "not among recomputable_ops (ban_if_not_in_allowlist)";
    } else if (types_.compute_intensive(ir)) {
      return "among compute_intensive_ops";
    }
    if (options_.ban_if_materialized_backward && materialized_in_backward(node))
      return "written to memory in the backward (ban_if_materialized_backward)";
    if (distance_[node] < kMaxDistance && distance_[node] > options_.max_dist_from_bw)
      return "far from the backward (max_dist_from_bw)";
    if (options_.ban_if_reduction && reduces(node)) {
      return text_of(options_.reduction_ratio) +
             " times smaller than its operands (ban_if_reduction)";
    }
    return "";
  }

  // A backward operator reads it, or a view of it, that it cannot be fused with.
  bool materialized_in_backward(int32_t node) const {
    std::vector<int32_t> found{node};
    std::set<int32_t> seen;
    while (!found.empty()) {
      const auto maker = found.back();
      found.pop_back();
      for (auto reader : readers_[maker]) {
        if (!is_forward(reader) && !fuses(maker, reader))
          return true;
        if (is_view(reader) && seen.insert(reader).second)
          found.push_back(reader);
      }
    }
    return false;
  }

  bool reduces(int32_t node) const {
    int64_t read = 0;
    for (auto input : problem_.inputs[node])
      read += tensor_bytes(input);
    int64_t made = 0;
    for (auto output : problem_.outputs[node])
      made += tensor_bytes(output);
    return static_cast<double>(made) * options_.reduction_ratio < static_cast<double>(read);
  }

  int64_t tensor_bytes(int32_t value) const {
    const auto found = profile_.tensor_bytes.find(graph_.values[value]->unique());
    return found == profile_.tensor_bytes.end() ? 0 : found->second;
  }

  // A value that is read nearby and, behind something that does not fuse, once more: recomputing
  // both readers, a compiler could not fuse the two.
  void ban_used_far_apart() {
    for (size_t i = 0; i < problem_.num_forward; ++i) {
      const auto maker = static_cast<int32_t>(i);
      if (!takes_part(maker) || collects(graph_.nodes[maker]))
        continue;
      std::vector<int32_t> readers;
      for (auto reader : readers_[maker]) {
        if (is_forward(reader))
          readers.push_back(reader);
      }
      if (readers.empty())
        continue;
      const auto last = *std::max_element(readers.begin(), readers.end(),
                                          [&](auto a, auto b) { return order_[a] < order_[b]; });
      const auto first_unfusible = find_first_unfusible(readers, order_[last]);
      for (auto reader : readers) {
        if (order_[reader] > first_unfusible && fuses(maker, reader))
          ban(reader, "reads a value used far apart (ban_if_used_far_apart)");
      }
    }
  }

  // The position of the first operator, following readers from `start` up to position `end`, that
  // does not fuse with what it reads.
  int32_t find_first_unfusible(const std::vector<int32_t>& start, int32_t end) const {
    struct Step {
      int32_t order;
      int32_t node;
      bool fuses;
      auto operator<=>(const Step&) const = default;
    };
    std::set<Step> ahead;
    for (auto node : start)
      ahead.insert({order_[node], node, true});
    while (!ahead.empty()) {
      const auto step = *ahead.begin();
      ahead.erase(ahead.begin());
      if (!step.fuses)
        return step.order;
      for (auto reader : readers_[step.node]) {
        if (is_forward(reader) && order_[reader] <= end)
          ahead.insert({order_[reader], reader, fuses(step.node, reader)});
      }
    }
    return end;
  }

  // Operators on elements are cheap, but not so cheap that a residual stream could be computed
  // again from the start of the network.
  void ban_long_fusible_chains() {
    std::set<int32_t> visited;
    for (size_t i = 0; i < problem_.num_forward; ++i) {
      const auto start = static_cast<int32_t>(i);
      if (!takes_part(start) || collects(graph_.nodes[start]))
        continue;
      std::set<std::pair<int32_t, int32_t>> chain{{order_[start], start}};  // order, node
      while (!chain.empty()) {
        const auto [order, node] = *chain.begin();
        chain.erase(chain.begin());
        if (!visited.insert(node).second)
          continue;
        if (order > order_[start] + options_.max_fusible_depth && chain.empty()) {
          ban(node, "end of a long fusible chain (ban_if_long_fusible_chains)");
          break;
        }
        for (auto reader : readers_[node]) {
          if (is_forward(reader) && fuses(node, reader) && reasons_.count(reader) == 0)
            chain.insert({order_[reader], reader});
        }
      }
    }
  }

  // ---- the network ----

  // What saving the value keeps in memory. A region input is the caller's, but a plan that needs it
  // keeps the caller from letting it go; outputs are held in any case.
  int64_t bytes_of(int32_t value) const {
    if (std::all_of(roots_[value].begin(), roots_[value].end(),
                    [&](int32_t root) { return stays_[root]; })) {
      return 0;
    }
    int64_t bytes = 0;
    for (auto storage : problem_.storages[value])
      bytes += problem_.bytes[storage];
    return bytes;
  }

  int64_t capacity_of(int32_t value) const {
    const auto& readers = value_readers_[value];
    const auto maker = problem_.producer[value];
    const auto distance = std::clamp<int64_t>(distance_over(readers), 1, kMaxWeightedDistance);
    double weight = std::pow(options_.distance_weight, static_cast<double>(distance));
    const bool materialized =
        maker < 0 || std::any_of(readers.begin(), readers.end(),
                                 [&](int32_t reader) { return !fuses(maker, reader); });
    if (!materialized)
      weight *= options_.not_materialized_weight;
    return static_cast<int64_t>(static_cast<double>(bytes_of(value)) * weight);
  }

  // A list of tensors that were there before; a view that is not to be saved.
  bool is_never_saved(int32_t value) const {
    const auto node = problem_.producer[value];
    if (!is_view(node) || reasons_.count(node) != 0)
      return false;
    return options_.recompute_views ||
           graph_.values[value]->type()->kind() != c10::TypeKind::TensorType;
  }

  MinCutPlan cut() {
    FlowNetwork network;
    std::vector<size_t> operators(problem_.num_forward, 0);
    std::vector<size_t> values(problem_.num_values(), 0);
    add_region_inputs(network, values);
    for (size_t i = 0; i < problem_.num_nodes; ++i) {
      const auto node = static_cast<int32_t>(i);
      if (is_forward(node) && !takes_part(node))
        continue;
      const auto reader =
          is_forward(node) ? (operators[node] = network.add_vertex()) : FlowNetwork::kSink;
      for (auto input : problem_.inputs[node]) {
        if (values[input] != 0)
          network.add_uncuttable_edge(values[input], reader);
      }
      if (!is_forward(node))
        continue;
      const auto tag = tag_of(node);
      if (reasons_.count(node) != 0) {
        network.add_uncuttable_edge(FlowNetwork::kSource, reader);
      } else if (tag == Tag::kMustRecompute || tag == Tag::kPreferRecompute) {
        network.add_uncuttable_edge(reader, FlowNetwork::kSink);
      }
      for (auto output : problem_.outputs[node]) {
        values[output] = network.add_vertex();
        if (is_never_saved(output)) {
          network.add_uncuttable_edge(reader, values[output]);
        } else {
          network.add_edge(reader, values[output], capacity_of(output));
        }
      }
    }

    const auto needed = network.sink_side();
    MinCutPlan result;
    for (size_t i = 0; i < problem_.num_values(); ++i) {
      const auto node = problem_.producer[i];
      if (node >= 0 && values[i] != 0 && needed[values[i]] && !needed[operators[node]])
        result.plan.saved.insert(graph_.values[i]->unique());
      // Also where the operator runs again for another of its results.
      if (tags_[i] == Tag::kMustSave)
        result.plan.saved.insert(graph_.values[i]->unique());
    }
    for (const auto& [node, reason] : reasons_) {
      if (distance_[node] < kUnreachable)
        result.banned.push_back({problem_.value_names[problem_.outputs[node][0]], reason});
    }
    return result;
  }

  void add_region_inputs(FlowNetwork& network, std::vector<size_t>& values) const {
    for (size_t i = 0; i < joint_.num_inputs; ++i) {
      const auto found = graph_.index.find(joint_.graph->inputs()[i]);
      if (found == graph_.index.end() ||
          (is_attribute_[i] && options_.treat_parameters_as_free_to_save)) {
        continue;
      }
      const auto value = found->second;
      values[value] = network.add_vertex();
      network.add_edge(FlowNetwork::kSource, values[value], capacity_of(value));
    }
  }

  const JointGraph& joint_;
  const GraphProblem& graph_;
  const Problem& problem_;
  const Profile& profile_;
  const std::vector<bool>& is_attribute_;
  const MinCutOptions options_;
  const OperatorTypes types_;
  const std::vector<Tag> tags_;
  const JaggedArray roots_;
  const std::vector<bool> stays_;

  std::vector<bool> fusible_;
  std::vector<bool> concatenates_;
  std::vector<int32_t> order_;  // per forward node: its place among those that take part
  std::vector<std::set<int32_t>> value_readers_;  // nodes; through lists
  std::vector<std::set<int32_t>> readers_;        // per node: readers of its results
  std::vector<int64_t> distance_;                 // per node
  std::map<int32_t, std::string> reasons_;        // of banned nodes
};

}  // namespace

MinCutPlan plan_min_cut(const JointGraph& joint, const GraphProblem& graph, const Profile& profile,
                        const std::vector<bool>& is_attribute, const MinCutOptions& options) {
  return Planner(joint, graph, profile, is_attribute, options).run();
}

std::string summary(const MinCutPlan& plan, const GraphProblem& graph) {
  auto counted = [](size_t count, const std::string& word) {
    return (count == 0 ? "no" : std::to_string(count)) + " " + word + (count > 1 ? "s" : "");
  };
  std::map<std::string, size_t> counts;
  for (const auto& banned : plan.banned)
    ++counts[banned.reason];
  std::string reasons;
  for (const auto& [reason, count] : counts)
    reasons += (reasons.empty() ? ": " : ", ") + std::to_string(count) + " " + reason;

  int64_t bytes = 0;
  std::set<int32_t> storages;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (plan.plan.saved.count(graph.values[i]->unique()) == 0)
      continue;
    for (auto storage : graph.problem.storages[i]) {
      if (!graph.problem.held[storage] && storages.insert(storage).second)
        bytes += graph.problem.bytes[storage];
    }
  }
  char size[32];
  std::snprintf(size, sizeof(size), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return "min_cut: " + counted(plan.banned.size(), "operator") + " banned from running again" +
         reasons + "; " + counted(plan.plan.saved.size(), "value") + " saved, " + size;
}

}  // namespace aten_recompute
