// Says where the memory of a step is largest.
#pragma once

#include <aten_recompute/errors.h>

#include <string>

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

}  // namespace aten_recompute
