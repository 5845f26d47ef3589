// Numbers that a training loop sets on the module between its calls.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "passes/prepared_method.h"

namespace aten_recompute {

struct Specialization;

// Returns the int and float attributes of which there are specializations for several values, none
// of which is that of `self` now: a temperature or the weight of a loss that changes in every step.
// It is better read in each call than compiled for each of its values.
AttributePaths changing_numbers(const std::vector<std::shared_ptr<Specialization>>& specializations,
                                const c10::intrusive_ptr<c10::ivalue::Object>& self);

// Returns whether a specialization was compiled for the value of one of these attributes.
bool is_compiled_for_any(const Specialization& specialization, const AttributePaths& paths);

}  // namespace aten_recompute
