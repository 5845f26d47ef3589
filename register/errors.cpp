// What Python needs to raise errors by their class. PyTorch's bindings pass on the message only;
// python/aten_recompute/_errors.py asks for the rest.
#include <aten_recompute/errors.h>
#include <torch/library.h>

#include <nlohmann/json.hpp>
#include <string>

#include "common/typed_errors.h"
#include "planner/model/explain_peak.h"

namespace aten_recompute {
namespace {

using nlohmann::json;

json fields_of(const Error& error) {
  if (const auto* budget = dynamic_cast<const BudgetUnreachableError*>(&error)) {
    return {{"smallest_peak_bytes", budget->smallest_peak_bytes},
            {"limit_bytes", budget->limit_bytes},
            {"unplanned_peak_bytes", budget->unplanned_peak_bytes},
            {"peak_operator", json::parse(to_json(budget->peak_operator))}};
  }
  if (const auto* plan = dynamic_cast<const PlanMismatchError*>(&error))
    return {{"region", plan->region}};
  if (const auto* method = dynamic_cast<const NoSuchMethodError*>(&error))
    return {{"method", method->method}};
  if (const auto* option = dynamic_cast<const InvalidOptionError*>(&error))
    return {{"option", option->option}};
  if (const auto* rule = dynamic_cast<const InvalidRuleError*>(&error))
    return {{"op", rule->op}};
  return json::object();
}

// Returns the last error that was thrown with this message, as {"type": "...", "fields": {...}}; ""
// if there is none.
std::string describe_error(const std::string& message) {
  const auto error = remembered_error(message);
  if (error == nullptr)
    return "";
  return json{{"type", error->type()}, {"fields", fields_of(*error)}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

TORCH_LIBRARY_FRAGMENT(aten_recompute, m) {
  m.def("describe_error(str message) -> str", &describe_error);
}

}  // namespace
}  // namespace aten_recompute
