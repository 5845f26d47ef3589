#include "backend/autograd/out_of_memory_text.h"

#include <exception>
#include <string>

#include "common/size_text.h"
#include "planner/search/budget.h"
#include "runtime/out_of_memory.h"

namespace aten_recompute {
namespace {

std::string explanation(const CompiledRegion& region) {
  const auto& plan = *region.plan();
  const auto predicted = plan.metrics.predicted_peak_bytes;
  std::string text =
      "aten_recompute: the plan of this step has a predicted peak of " + nearest_size(predicted);
  if (const auto measured = region.measured_peak_bytes(); measured >= 0)
    text += ", measured " + nearest_size(measured);
  Simulator simulator(*plan.problem);
  const auto smallest = simulator.run(plan_leanest(*plan.problem, *plan.unplanned)).peak_bytes;
  if (smallest < predicted)
    return text + "; a memory_budget can go down to " + size_at_least(smallest);
  return text + ", and no plan has a smaller one: use a smaller batch, or smaller inputs";
}

}  // namespace

void explain_if_out_of_memory(const CompiledRegion& region, bool is_alone,
                              c10::Error& error) noexcept try {
  if (region.plan() == nullptr || !is_out_of_memory(error))
    return;
  region.note_out_of_memory();
  if (is_alone)
    error.add_context(explanation(region));
} catch (const std::exception&) {
  // There is no memory for an explanation, either. The error itself says what is wrong.
}

}  // namespace aten_recompute
