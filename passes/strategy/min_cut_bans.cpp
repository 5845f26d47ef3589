#include "passes/strategy/min_cut_bans.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <span>
#include <utility>

#include "rules/recomputability.h"

namespace aten_recompute {
namespace {

// max_dist_from_bw is ignored from this distance on, whatever its value: PyTorch's rule, and the
// reason why its default, the same number, bans nothing.
constexpr int64_t kMaxDistance = 1000;

// Returns the number without trailing zeros.
std::string to_text(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

// Bans the node unless it has a reason already. Views are never banned, as they cost nothing to
// make again, and tags of the program come before heuristics.
void ban(const BanInput& input, int32_t node, const std::string& reason, Bans& bans) {
  const auto& problem = input.graph.problem;
  if (problem.is_view[node] == 0 && !asks_to_recompute(strongest_tag(problem, input.tags, node)))
    bans.emplace(node, reason);
}

// Returns whether a backward operator that cannot be fused with the node reads its result, or a
// view of it. The backward would then have to write a recomputed result to memory.
bool is_materialized_in_backward(const BanInput& input, int32_t node) {
  const auto& problem = input.graph.problem;
  std::vector<int32_t> found{node};
  std::set<int32_t> seen;
  while (!found.empty()) {
    const auto producer = found.back();
    found.pop_back();
    for (auto reader : input.operators.readers(producer)) {
      if (!problem.in_forward(reader) && !input.operators.fuses(producer, reader))
        return true;
      if (problem.is_view[reader] != 0 && seen.insert(reader).second)
        found.push_back(reader);
    }
  }
  return false;
}

int64_t tensor_bytes(const BanInput& input, std::span<const int32_t> values) {
  int64_t bytes = 0;
  for (auto value : values) {
    const auto found = input.profile.tensor_bytes.find(input.graph.values[value]->unique());
    bytes += found == input.profile.tensor_bytes.end() ? 0 : found->second;
  }
  return bytes;
}

bool is_reduction(const BanInput& input, int32_t node) {
  const auto read = static_cast<double>(tensor_bytes(input, input.graph.problem.inputs[node]));
  const auto made = static_cast<double>(tensor_bytes(input, input.graph.problem.outputs[node]));
  return made * input.options.reduction_ratio < read;
}

// Returns why the operator itself speaks against running it again; empty where nothing does.
std::string reason_of_operator(const BanInput& input, int32_t node) {
  const auto& options = input.options;
  const auto& problem = input.graph.problem;
  const auto* ir_node = input.graph.nodes[node];
  const auto tag = strongest_tag(problem, input.tags, node);
  if (tag == Tag::kMustSave || (tag == Tag::kPreferSave && !options.aggressive_recomputation))
    return std::string("tagged ") + to_string(tag);
  if (problem.is_view[node] != 0)
    return "";
  if (input.types.random(ir_node) && !options.recompute_random)
    return "random (recompute_random)";
  if (options.ban_if_not_in_allowlist) {
    if (!input.types.recomputable(ir_node))
      return "not among recomputable_ops (ban_if_not_in_allowlist)";
  } else if (input.types.compute_intensive(ir_node)) {
    return "among compute_intensive_ops";
  }
  if (options.ban_if_materialized_backward && is_materialized_in_backward(input, node))
    return "written to memory in the backward (ban_if_materialized_backward)";
  const auto distance = input.operators.distance(node);
  if (distance < kMaxDistance && distance > options.max_dist_from_bw)
    return "far from the backward (max_dist_from_bw)";
  if (options.ban_if_reduction && is_reduction(input, node)) {
    return to_text(options.reduction_ratio) + " times smaller than its operands (ban_if_reduction)";
  }
  return "";
}

void ban_by_operator(const BanInput& input, Bans& bans) {
  const auto& problem = input.graph.problem;
  for (size_t i = 0; i < problem.num_forward; ++i) {
    const auto node = static_cast<int32_t>(i);
    if (!input.operators.takes_part(node))
      continue;
    if (!problem.recomputable[node]) {
      bans.emplace(node, std::string(to_string(recompute_veto(input.graph.nodes[node]))));
    } else if (const auto reason = reason_of_operator(input, node); !reason.empty()) {
      ban(input, node, reason, bans);
    }
  }
}

// Follows readers from `start` on up to position `end`. Returns the position of the first operator
// that cannot be fused with what it reads, or `end` where all can.
int32_t find_first_unfusible(const BanInput& input, const std::vector<int32_t>& start,
                             int32_t end) {
  struct Step {
    int32_t order;
    int32_t node;
    bool fuses;
    // clang-tidy takes a 0 in the comparison that the compiler writes for a null pointer.
    // NOLINTNEXTLINE(modernize-use-nullptr)
    auto operator<=>(const Step&) const = default;
  };
  const auto& operators = input.operators;
  std::set<Step> ahead;
  for (auto node : start)
    ahead.insert({operators.order(node), node, true});
  while (!ahead.empty()) {
    const auto step = *ahead.begin();
    ahead.erase(ahead.begin());
    if (!step.fuses)
      return step.order;
    for (auto reader : operators.readers(step.node)) {
      if (input.graph.problem.in_forward(reader) && operators.order(reader) <= end)
        ahead.insert({operators.order(reader), reader, operators.fuses(step.node, reader)});
    }
  }
  return end;
}

// Bans readers of a value that is read nearby and again behind an operator that does not fuse: a
// compiler could not fuse the recomputed readers with each other.
void ban_used_far_apart(const BanInput& input, Bans& bans) {
  const auto& operators = input.operators;
  const auto& problem = input.graph.problem;
  for (size_t i = 0; i < problem.num_forward; ++i) {
    const auto producer = static_cast<int32_t>(i);
    if (!operators.takes_part(producer) || operators.is_collection(producer))
      continue;
    std::vector<int32_t> readers;
    int32_t last = 0;
    for (auto reader : operators.readers(producer)) {
      if (!problem.in_forward(reader))
        continue;
      readers.push_back(reader);
      last = std::max(last, operators.order(reader));
    }
    if (readers.empty())
      continue;
    const auto first_unfusible = find_first_unfusible(input, readers, last);
    for (auto reader : readers) {
      if (operators.order(reader) > first_unfusible && operators.fuses(producer, reader))
        ban(input, reader, "reads a value used far apart (ban_if_used_far_apart)", bans);
    }
  }
}

// Bans the ends of long chains of fusible operators. Each of these is cheap, but without a ban a
// residual stream could be recomputed from the start of the network.
void ban_long_fusible_chains(const BanInput& input, Bans& bans) {
  const auto& operators = input.operators;
  const auto& problem = input.graph.problem;
  std::set<int32_t> visited;
  for (size_t i = 0; i < problem.num_forward; ++i) {
    const auto start = static_cast<int32_t>(i);
    if (!operators.takes_part(start) || operators.is_collection(start))
      continue;
    const auto end = operators.order(start) + input.options.max_fusible_depth;
    std::set<std::pair<int32_t, int32_t>> chain{{operators.order(start), start}};  // order, node
    while (!chain.empty()) {
      const auto [order, node] = *chain.begin();
      chain.erase(chain.begin());
      if (!visited.insert(node).second)
        continue;
      if (order > end && chain.empty()) {
        ban(input, node, "end of a long fusible chain (ban_if_long_fusible_chains)", bans);
        break;
      }
      for (auto reader : operators.readers(node)) {
        if (problem.in_forward(reader) && operators.fuses(node, reader) && bans.count(reader) == 0)
          chain.insert({operators.order(reader), reader});
      }
    }
  }
}

}  // namespace

Bans find_bans(const BanInput& input) {
  Bans bans;
  ban_by_operator(input, bans);
  if (input.options.ban_if_used_far_apart)
    ban_used_far_apart(input, bans);
  if (input.options.ban_if_long_fusible_chains)
    ban_long_fusible_chains(input, bans);
  return bans;
}

}  // namespace aten_recompute
