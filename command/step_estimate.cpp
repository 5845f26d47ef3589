#include "command/step_estimate.h"

#include <aten_recompute/estimate.h>

#include <cstdint>

#include "command/failure.h"
#include "command/inputs.h"
#include "command/model_file.h"
#include "command/texts.h"

namespace aten_recompute::command {

using nlohmann::json;

json estimate_step(const Arguments& arguments, const std::vector<std::string>& budgets,
                   const std::string& device) {
  const auto options = options_beside_budgets(arguments, {"time_budget", "plan"});
  auto module = load_module(arguments.path, Tensors::kDescribed);
  if (arguments.train)
    module.train();
  const auto inputs = make_inputs(module, arguments.method, arguments.inputs, Tensors::kDescribed);
  return json::parse(
      estimate(module, inputs, budgets,
               {.method = arguments.method, .device = device, .options = options.dump()}));
}

void fail_unreachable(const std::string& budget, int64_t budget_bytes, int64_t smallest_bytes) {
  throw Failure(Exit::kBudgetUnreachable, "budget " + budget + ": no plan keeps the peak under " +
                                              byte_text_beside(budget_bytes, smallest_bytes) +
                                              "; the smallest peak is " +
                                              byte_text_beside(smallest_bytes, budget_bytes));
}

void check_reachable(const json& estimate) {
  for (const auto& budget : estimate["budgets"]) {
    // What runs instead of a plan that keeps the budget, if anything does, has a peak.
    if (!budget.contains("peak_bytes"))
      fail_unreachable(budget["budget"].get<std::string>(), budget["budget_bytes"].get<int64_t>(),
                       estimate["smallest_peak_bytes"].get<int64_t>());
  }
}

}  // namespace aten_recompute::command
