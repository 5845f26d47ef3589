// Problems as JSON, for tools, tests and solvers.
#pragma once

#include <string>

#include "planner/model/problem.h"

namespace aten_recompute {

// Conversion to and from JSON. problem_from_json() throws std::invalid_argument with a message that
// names what is wrong.
std::string to_json(const Problem& problem);
Problem problem_from_json(const std::string& text);

}  // namespace aten_recompute
