#include "passes/strategy/min_cut.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "passes/strategy/min_cut_bans.h"
#include "passes/strategy/operator_graph.h"
#include "passes/strategy/operator_types.h"
#include "passes/strategy/tags.h"
#include "planner/graph/flow_network.h"

namespace aten_recompute {
namespace {

// Distances beyond this one weigh no more than it.
constexpr int64_t kMaxWeightedDistance = 100;

// Returns the options with those bans off that `aggressive_recomputation` turns off.
MinCutOptions effective(MinCutOptions options) {
  if (options.aggressive_recomputation) {
    options.ban_if_used_far_apart = false;
    options.ban_if_long_fusible_chains = false;
    options.ban_if_materialized_backward = false;
    options.ban_if_not_in_allowlist = false;
  }
  return options;
}

// What saving a value costs.
class SavingCosts {
 public:
  SavingCosts(const Problem& problem, const OperatorGraph& operators, const MinCutOptions& options)
      : problem_(problem),
        operators_(operators),
        options_(options),
        base_values_(base_values(problem)),
        live_to_end_(live_to_end(problem)) {}

  // Returns the capacity of the value's edge: its bytes, weighted.
  int64_t capacity(int32_t value) const {
    const auto producer = problem_.producer[value];
    const auto distance =
        std::clamp<int64_t>(operators_.distance_of_value(value), 1, kMaxWeightedDistance);
    double weight = std::pow(options_.distance_weight, static_cast<double>(distance));
    const auto& readers = operators_.readers_of_value(value);
    const bool materialized =
        producer < 0 || std::any_of(readers.begin(), readers.end(), [&](int32_t reader) {
          return !operators_.fuses(producer, reader);
        });
    if (!materialized)
      weight *= options_.not_materialized_weight;
    return static_cast<int64_t>(static_cast<double>(bytes(value)) * weight);
  }

 private:
  // Returns the bytes that saving the value keeps in memory. What the region returns is held in any
  // case; a region input counts, because saving it prevents the caller from freeing it.
  int64_t bytes(int32_t value) const {
    const auto bases = base_values_[value];
    if (std::all_of(bases.begin(), bases.end(), [&](int32_t base) { return live_to_end_[base]; }))
      return 0;
    int64_t bytes = 0;
    for (auto storage : problem_.storages[value])
      bytes += problem_.bytes[storage];
    return bytes;
  }

  const Problem& problem_;
  const OperatorGraph& operators_;
  const MinCutOptions& options_;
  const JaggedArray base_values_;
  const std::vector<bool> live_to_end_;
};

// The flow network that min_cut.h describes. A value without a vertex costs nothing to save.
struct RegionNetwork {
  FlowNetwork flow;
  std::vector<size_t> operators;  // per forward node: its vertex; 0: none
  std::vector<size_t> values;     // per value: its vertex; 0: none
};

class NetworkBuilder {
 public:
  NetworkBuilder(const GraphProblem& graph, const MinCutOptions& options,
                 const OperatorGraph& operators, const std::vector<Tag>& tags, const Bans& bans)
      : graph_(graph),
        problem_(graph.problem),
        options_(options),
        operators_(operators),
        tags_(tags),
        bans_(bans),
        costs_(problem_, operators, options) {
    network_.operators.assign(problem_.num_forward, 0);
    network_.values.assign(problem_.num_values(), 0);
  }

  RegionNetwork build(const JointGraph& joint, const std::vector<bool>& is_attribute) {
    add_region_inputs(joint, is_attribute);
    for (size_t i = 0; i < problem_.num_nodes; ++i) {
      const auto node = static_cast<int32_t>(i);
      if (!problem_.in_forward(node))
        add_reads(node, FlowNetwork::kSink);
      else if (operators_.takes_part(node))
        add_operator(node);
    }
    return network_;
  }

 private:
  void add_region_inputs(const JointGraph& joint, const std::vector<bool>& is_attribute) {
    for (size_t i = 0; i < joint.num_inputs; ++i) {
      const auto found = graph_.index.find(joint.graph->inputs()[i]);
      if (found == graph_.index.end() ||
          (is_attribute[i] && options_.treat_parameters_as_free_to_save)) {
        continue;
      }
      const auto value = found->second;
      network_.values[value] = network_.flow.add_vertex();
      network_.flow.add_edge(FlowNetwork::kSource, network_.values[value], costs_.capacity(value));
    }
  }

  void add_operator(int32_t node) {
    auto& flow = network_.flow;
    const auto vertex = flow.add_vertex();
    network_.operators[node] = vertex;
    add_reads(node, vertex);
    if (bans_.count(node) != 0)
      flow.add_uncuttable_edge(FlowNetwork::kSource, vertex);
    else if (asks_to_recompute(strongest_tag(problem_, tags_, node)))
      flow.add_uncuttable_edge(vertex, FlowNetwork::kSink);
    for (auto output : problem_.outputs[node]) {
      network_.values[output] = flow.add_vertex();
      if (is_never_saved(output))
        flow.add_uncuttable_edge(vertex, network_.values[output]);
      else
        flow.add_edge(vertex, network_.values[output], costs_.capacity(output));
    }
  }

  void add_reads(int32_t node, size_t reader) {
    for (auto input : problem_.inputs[node]) {
      if (network_.values[input] != 0)
        network_.flow.add_uncuttable_edge(network_.values[input], reader);
    }
  }

  // A list is never saved, but its elements are; nor is a view under `recompute_views`.
  bool is_never_saved(int32_t value) const {
    const auto producer = problem_.producer[value];
    if (problem_.is_view[producer] == 0 || bans_.count(producer) != 0)
      return false;
    return options_.recompute_views ||
           graph_.values[value]->type()->kind() != c10::TypeKind::TensorType;
  }

  const GraphProblem& graph_;
  const Problem& problem_;
  const MinCutOptions& options_;
  const OperatorGraph& operators_;
  const std::vector<Tag>& tags_;
  const Bans& bans_;
  const SavingCosts costs_;
  RegionNetwork network_;
};

// Returns the values that cross the minimum cut, and those that are tagged must_save.
SavePlan saved_values(const RegionNetwork& network, const GraphProblem& graph,
                      const std::vector<Tag>& tags) {
  const auto& problem = graph.problem;
  const auto needed = network.flow.sink_side();
  SavePlan plan;
  for (size_t i = 0; i < problem.num_values(); ++i) {
    const auto producer = problem.producer[i];
    const auto vertex = network.values[i];
    const bool crosses =
        producer >= 0 && vertex != 0 && needed[vertex] && !needed[network.operators[producer]];
    // The tag also counts where the operator runs again for another of its results.
    if (crosses || tags[i] == Tag::kMustSave)
      plan.saved.insert(graph.values[i]->unique());
  }
  return plan;
}

// Returns the banned operators that the backward depends on.
std::vector<Banned> reported_bans(const Bans& bans, const Problem& problem,
                                  const OperatorGraph& operators) {
  std::vector<Banned> reported;
  for (const auto& [node, reason] : bans) {
    if (operators.distance(node) < OperatorGraph::kUnreachable)
      reported.push_back({problem.value_names[problem.outputs[node][0]], reason});
  }
  return reported;
}

}  // namespace

MinCutPlan plan_min_cut(const JointGraph& joint, const GraphProblem& graph, const Profile& profile,
                        const std::vector<bool>& is_attribute, const MinCutOptions& given) {
  const auto options = effective(given);
  const OperatorTypes types(options.recomputable_ops, options.compute_intensive_ops,
                            options.recompute_random);
  const auto tags = value_tags(graph);
  const OperatorGraph operators(graph, types);
  const auto bans = find_bans({graph, profile, options, types, operators, tags});
  const auto network =
      NetworkBuilder(graph, options, operators, tags, bans).build(joint, is_attribute);
  return {saved_values(network, graph, tags), reported_bans(bans, graph.problem, operators)};
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
