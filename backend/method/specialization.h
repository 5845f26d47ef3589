// What a method is compiled to for one kind of call.
#pragma once

#include <ATen/core/jit_type.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "backend/planning/method_plans.h"
#include "backend/region/region.h"
#include "passes/prepared_method.h"
#include "runtime/autocast.h"

namespace torch::jit {
struct Code;
}

namespace aten_recompute {

// The compiled regions of a method in one kind of call.
struct CompiledCall {
  struct Run {
    std::shared_ptr<const CompiledRegion> compiled_region;
    std::vector<bool> is_attribute;  // per input of the region: it was read from the module
    size_t region = 0;               // among those of the specialization
  };
  std::vector<Run> runs;                   // in the order of the call
  std::shared_ptr<const MethodPlan> plan;  // for all of them together; nullptr if there is none
};

struct Specialization {
  Specialization();
  ~Specialization();

  c10::TypePtr self_type;
  AutocastState autocast;  // that of the calls
  // Operators outside of planned regions may read what regions cast under autocast.
  bool may_cast_outside = false;
  PreparedMethod method;
  std::vector<c10::intrusive_ptr<Region>> regions;
  std::shared_ptr<MethodPlans> plans;  // set where regions share a budget or a pinned plan
  std::unique_ptr<torch::jit::Code> code;
  size_t number = 0;  // in the order of compiling
  // The paths that the call left which this was compiled for: their numbers, and the places of the
  // checks that failed.
  std::vector<std::pair<size_t, size_t>> left_places;
  // The call that this was compiled for has raised an error, as PreparedMethod::seems_to_raise
  // says. Only calls that leave the same paths may follow it.
  std::atomic<bool> raised{false};
  std::atomic<bool> reported{false};
  std::atomic<bool> reported_rules{false};

  // Returns whether this thread has the settings of autocast that this was compiled for.
  bool fits_autocast() const;
  // Returns which inputs of a region were read from the module.
  std::vector<bool> is_attribute(size_t region) const;
  MethodPlans::List method_plans() const {
    return plans == nullptr ? MethodPlans::List{} : plans->plans();
  }
  // Returns the region's compiled regions in the plans for the whole method, or where there are
  // none, those that the region planned by itself.
  std::vector<std::shared_ptr<const CompiledRegion>> compiled_regions_of(
      const Region& region) const;
  // Returns those of all regions that the newest plan for the whole method runs, or where there is
  // none, all that the regions planned by themselves.
  std::vector<std::shared_ptr<const CompiledRegion>> newest_compiled_regions() const;
  // Returns what the last call that was compiled with gradients runs; no runs if there was none.
  // Of plans for several sizes, that is the newest.
  CompiledCall latest_call() const;
};

}  // namespace aten_recompute
