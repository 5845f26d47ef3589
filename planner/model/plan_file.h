// A plan as JSON: to be read by a person, and to be followed again.
#pragma once

#include <string>
#include <vector>

#include "planner/model/simulator.h"

namespace aten_recompute {

// One region's part of a plan file, a JSON object:
//
//   "region"      fingerprint of the region's graph: operators and names, no sizes
//   "peak_bytes", "saved_bytes", "seconds", "recompute_seconds"    as simulated
//   "saved"       [{"value", "bytes"}], what the backward finds in memory, largest first
//   "drop"        {value: [slot, ...]}: in which slots it is let go, to be computed again; slot 0
//   is
//                 the end of the forward, slot b the b-th operator of the backward
//   "instead"     {value: operator}: computed again by this operator in place of its own
//   "steps"       ["relu_3_result, for aten::threshold_backward", ...]: what is computed again, in
//                 order; for the reader only
//
// "drop" and "instead" are the plan; the rest follows from them.
std::string plan_to_json(const Problem& problem, const RetentionPlan& decisions);

// A plan file of several regions' parts, each as plan_to_json() gives it. A region that runs
// several times, or several equal ones, have a part for each run, in the order in which they run.
std::string plan_file(const std::vector<std::string>& regions);

// The decisions for this problem in a plan file: its last part for such a region. Throws
// std::invalid_argument, in one line, if the text is no plan file, has no part for this region, or
// names what the region does not have.
RetentionPlan plan_from_file(const Problem& problem, const std::string& text);

// The same for regions that run one after the other: equal ones have a part each.
std::vector<RetentionPlan> plans_from_file(const std::vector<const Problem*>& runs,
                                           const std::string& text);

// Checks that the text is a plan file of a known format; throws as above.
void check_plan_file(const std::string& text);

}  // namespace aten_recompute
