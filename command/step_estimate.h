// Estimates of a file's step, for all subcommands that need one.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "command/arguments.h"

namespace aten_recompute::command {

// Loads the file without its tensors and returns what aten_recompute::estimate() does. Throws
// Failure.
nlohmann::json estimate_step(const Arguments& arguments, const std::vector<std::string>& budgets,
                             const std::string& device = "cpu");

// Throws Failure(kBudgetUnreachable) with the two figures.
[[noreturn]] void fail_unreachable(const std::string& budget, int64_t budget_bytes,
                                   int64_t smallest_bytes);

// Throws Failure(kBudgetUnreachable) that names the first budget of the estimate that no plan
// keeps, if there is one, unless the option "unreachable" lets another plan run.
void check_reachable(const nlohmann::json& estimate);

}  // namespace aten_recompute::command
