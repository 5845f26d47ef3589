// Strategy `min_cut`: what to save for the backward, as a minimum cut; the method of PyTorch's
// min_cut_rematerialization_partition, with its heuristics.
#pragma once

#include <string>
#include <vector>

#include "common/options.h"
#include "ir/save_plan.h"
#include "passes/profile/profile.h"
#include "passes/strategy/graph_problem.h"

namespace aten_recompute {

// An operator that may not run again, and why; by its first result.
struct Banned {
  std::string value;
  std::string reason;
};

struct MinCutPlan {
  SavePlan plan;
  std::vector<Banned> banned;  // in forward order; only what the backward depends on
};

// A flow network of the forward. Each operator is a vertex, and so is each value it makes; between
// them is the one edge that a cut may contain. Its capacity is what saving the value costs.
//
//   h = mm(x, w)               source
//   a = exp(h)                    | banned: mm is compute-intensive
//   y = sin(a)                   (mm)---h's bytes--->[h]---->(exp)---a's bytes--->[a]
//   backward_start()                                         (sin)<-----------------+
//   da = mul(dy, cos(a))          ^ x, w: in memory            |                    |
//   dh = mul(da, a)                 anyway                 y's bytes          the backward
//                                                              v              reads a
//                                                             [y]                   v
//                                                                                  sink
//
// On the sink's side are the values that the backward needs and the operators that run again for
// it, on the source's side what only the forward has. A value whose operator is on the source's
// side while the value itself is on the sink's crosses the cut: it is saved. Everything that is
// needed and not saved is then computed again, and nothing without its operands, as uncuttable
// edges lead
//
//   - from a value to the operators that read it: what runs again needs its operands
//   - from a value to the sink: the backward reads it
//   - from the source to an operator: it may not run again (banned)
//   - from an operator to the sink: it has to run again (tagged must_recompute)
//   - from a view to its result, with `recompute_views`: views are not saved; and always from the
//     making of a list to the list, as it is its elements that are saved
//
// A region input has no operator: its edge starts at the source. Capacities are bytes (of the
// storage, for a view: saving it keeps that alive; none, for a region output), times 1.1 for each
// operator between the value and the backward, times 2 if the forward would not have to write the
// value to memory. Bans and weights are the options of MinCutOptions; docs/min_cut.md lists them.
//
// `is_attribute[i]`: region input i was read from the module (parameter or buffer).
// Throws std::invalid_argument where tags contradict each other.
MinCutPlan plan_min_cut(const JointGraph& joint, const GraphProblem& graph, const Profile& profile,
                        const std::vector<bool>& is_attribute, const MinCutOptions& options);

// One line for the log: how many operators are banned, for which reasons, and what is saved.
std::string summary(const MinCutPlan& plan, const GraphProblem& graph);

}  // namespace aten_recompute
