// What a lowered method does where memory runs out (Options::retries_leaner).
#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "backend/method/before_call.h"
#include "backend/method/lowered_method.h"
#include "common/log.h"
#include "common/size_text.h"
#include "runtime/out_of_memory.h"

namespace aten_recompute {

c10::IValue LoweredMethod::run_or_retry(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                                        std::vector<c10::IValue> inputs) {
  if (ran_out_of_memory())
    go_leaner("the backward of a step");
  const auto specialization = find(self, inputs, {});
  if (!specialization->method.can_repeat)
    return run_planned(self, std::move(inputs));
  BeforeCall before(specialization->method.written, self, inputs);
  try {
    return run_planned(self, inputs);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error) || !go_leaner("a call"))
      throw;
  }
  before.restore();
  return run_planned(self, std::move(inputs));
}

bool LoweredMethod::ran_out_of_memory() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(specializations_.begin(), specializations_.end(), [](const auto& each) {
    const auto regions = each->newest_compiled_regions();
    return std::any_of(regions.begin(), regions.end(),
                       [](const auto& region) { return region->ran_out_of_memory(); });
  });
}

bool LoweredMethod::go_leaner(const char* what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t peak = 0;
  for (const auto& specialization : specializations_) {
    for (const auto& plan : specialization->method_plans())
      peak = std::max(peak, plan->metrics.predicted_peak_bytes);
    for (const auto& region : specialization->newest_compiled_regions()) {
      if (region->plan() != nullptr)
        peak = std::max(peak, region->plan()->metrics.predicted_peak_bytes);
    }
  }
  if (peak == 0 || !leaner_budget_.lower(peak))
    return false;
  forget_if([](const Specialization&) { return true; });
  log_warning(LogTopic::kMemory, method_ + ": " + what + " ran out of memory under a plan of " +
                                     nearest_size(peak) + "; plans are made again under " +
                                     nearest_size(*leaner_budget_.bytes()) + " (on_oom)");
  return true;
}

}  // namespace aten_recompute
