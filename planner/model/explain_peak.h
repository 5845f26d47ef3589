// Says where the memory of a step is largest, and what would make it smaller.
#pragma once

#include <aten_recompute/errors.h>

#include <cstdint>
#include <string>

#include "common/options.h"
#include "planner/model/peak_step.h"
#include "planner/model/problem.h"

namespace aten_recompute {

// Returns the peak in terms of the program: the node's name and place, and the bytes of `peak`.
// The name is "loss" where the caller's loss is at the peak, "between regions" for operators
// outside of the regions, and "" where nothing runs.
PeakOperator peak_operator(const Problem& problem, const PeakStep& peak);

// Returns the JSON object that reports and errors have for it.
std::string to_json(const PeakOperator& peak);

// Returns a text such as "aten::relu of layer3.0 (resnet.py:52)", with the name of the file without
// its folders; "" where the operator has no name.
std::string describe(const PeakOperator& peak);

// Returns the end of a message about a budget of `limit_bytes` that no plan keeps, where `peak` is
// that of the leanest plan: "; the peak is at aten::relu of layer3.0 (resnet.py:52): operands 12.0
// MiB, results 8.0 MiB, workspace 4.0 MiB, other values 20.0 MiB", followed by what would help, if
// that is known. Returns "" where nothing runs.
std::string explanation(const Problem& problem, const PeakStep& peak, int64_t limit_bytes,
                        const Options& options);

}  // namespace aten_recompute
