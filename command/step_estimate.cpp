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

void check_reachable(const json& estimate) {
  for (const auto& budget : estimate["budgets"]) {
    if (budget["reachable"].get<bool>())
      continue;
    throw Failure(Exit::kBudgetUnreachable,
                  "budget " + budget["budget"].get<std::string>() +
                      ": no plan keeps the peak under " +
                      byte_text(budget["budget_bytes"].get<int64_t>()) + "; the smallest peak is " +
                      byte_text(estimate["smallest_peak_bytes"].get<int64_t>()));
  }
}

}  // namespace aten_recompute::command
