// Strategy `min_cut`: finds the values to save for the backward by a minimum cut, with the method
// and the heuristics of PyTorch's min_cut_rematerialization_partition.
#pragma once

#include <string>
#include <vector>

#include "common/options.h"
#include "ir/save_plan.h"
#include "passes/profile/region_profile.h"
#include "passes/strategy/graph_problem.h"
#include "passes/strategy/strategies.h"

namespace aten_recompute {

struct MinCutPlan {
  SavePlan plan;
  std::vector<Banned> banned;  // those that the backward depends on, in the order of the forward
};

// Plans by a flow network of the forward. Each operator is a vertex, and so is each value that it
// makes; the edge between them is the only one that a cut may contain. Its capacity is what saving
// the value costs.
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
// it; on the source's side is what only the forward needs. A value on the sink's side whose
// operator is on the source's side crosses the cut and is saved. All other values that the backward
// needs are recomputed, from operands that are saved or recomputed themselves, because uncuttable
// edges lead
//
//   - from a value to the operators that read it: an operator that runs again needs its operands
//   - from a value to the sink: the backward reads the value
//   - from the source to an operator: it must not run again (banned)
//   - from an operator to the sink: it has to run again (tagged must_recompute or prefer_recompute)
//   - from a view to its result, with `recompute_views`: views are not saved
//   - from a node that makes a list to the list: its elements are saved instead
//
// A region input has no operator: its edge starts at the source. A capacity is the value's bytes,
// times 1.1 for each operator between the value and the backward, times 2 if a compiler would not
// write the value to memory in the forward. A view counts the bytes of its storage, because saving
// it keeps that alive; a region output counts none. Bans and weights are the options of
// MinCutOptions; docs/min_cut.md lists them.
//
// `is_attribute[i]`: region input i is a parameter or buffer of the module.
// Throws std::invalid_argument where tags contradict each other.
MinCutPlan plan_min_cut(const JointGraph& joint, const GraphProblem& graph, const Profile& profile,
                        const std::vector<bool>& is_attribute, const MinCutOptions& options);

// Returns one line for the log: how many operators are banned, for which reasons, and what is
// saved.
std::string summary(const MinCutPlan& plan, const GraphProblem& graph);

}  // namespace aten_recompute
