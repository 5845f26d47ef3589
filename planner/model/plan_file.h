// Plans as JSON, which people can read and later runs can follow.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "planner/model/simulator.h"

namespace aten_recompute {

// Returns the part of a plan file for one region, a JSON object:
//
//   "region"      fingerprint of the region's graph: operators and structure, without sizes
//   "peak_bytes", "saved_bytes", "seconds", "recompute_seconds"    as simulated
//   "saved"       [{"value", "bytes", "layer"}]: what the backward finds in memory, largest first;
//                 without "layer" where that is the root or not known
//   "recomputed"  the same of what is made again
//   "drop"        {value: [slot, ...]}: the slots at whose end the value is dropped, to be
//                 recomputed later; slot 0 is the end of the forward, slot b the b-th operator of the backward
//   "instead"     {value: operator}: the operator that recomputes the value in place of its own
//   "handed"      [value, ...]: given values, by index, that another region makes again
//   "steps"       ["relu_3_result, for aten::threshold_backward", ...]: what is recomputed, in
//                 order; for the reader only
//
// "drop", "instead" and "handed" are the plan. The rest follows from them. A plan that is read has
// the values in "handed" dropped at the end of the forward.
std::string plan_to_json(const Problem& problem, const RetentionPlan& plan,
                         const std::vector<int32_t>& handed = {});

// The places of the branches that a method keeps as one operator, by the name of the method.
using KeptBranches = std::map<std::string, std::set<int64_t>>;

// Returns a plan file with these parts, each from plan_to_json(). A region that runs several times
// has a part for each run, in the order of the runs; so do several equal regions. The file's
// "kept_branches" is {method: [place, ...]}, because a region has a fingerprint only with its
// branches.
std::string plan_file(const std::vector<std::string>& regions, const KeptBranches& kept = {});

// Returns the places under "kept_branches"; empty if the file has none. Throws
// std::invalid_argument, with a message of one line, for anything else than lists of whole numbers.
KeptBranches kept_branches_of(const std::string& text);

// Returns the plan for this problem: the last part of the file with the region's fingerprint.
// Throws std::invalid_argument, with a message of one line, if the text is no plan file, and a
// PlanMismatchError, which is one, too, if it has no part for this region or names something that
// the region does not have.
RetentionPlan plan_from_file(const Problem& problem, const std::string& text);

// Returns the plans for regions that run one after the other; equal ones take a part each. Throws
// as plan_from_file() does.
std::vector<RetentionPlan> plans_from_file(const std::vector<const Problem*>& runs,
                                           const std::string& text);

// Throws as plan_from_file() does if the text is not a plan file of a known format.
void check_plan_file(const std::string& text);

}  // namespace aten_recompute
