// The operators that strategy `min_cut` does not run again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/options.h"
#include "passes/profile/profile.h"
#include "passes/strategy/graph_problem.h"
#include "passes/strategy/operator_graph.h"
#include "passes/strategy/operator_types.h"
#include "passes/strategy/tags.h"

namespace aten_recompute {

// Reason by node of the planning problem.
using Bans = std::map<int32_t, std::string>;

struct BanInput {
  const GraphProblem& graph;
  const Profile& profile;
  const MinCutOptions& options;
  const OperatorTypes& types;
  const OperatorGraph& operators;
  const std::vector<Tag>& tags;  // per value
};

// Returns the operators of the forward that must not run again in the backward, because they cannot
// or because an option bans them; docs/min_cut.md lists the options.
Bans find_bans(const BanInput& input);

}  // namespace aten_recompute
