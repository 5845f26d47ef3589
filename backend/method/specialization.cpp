#include "backend/method/specialization.h"

#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>

namespace aten_recompute {

// They are defined where Code is known.
Specialization::Specialization() = default;
Specialization::~Specialization() = default;

bool Specialization::fits_autocast() const {
  return autocast == AutocastState::current().for_graph(method.depends_on_autocast);
}

std::vector<bool> Specialization::is_attribute(size_t region) const {
  return attribute_flags(method.regions.nodes[region]);
}

std::vector<std::shared_ptr<const CompiledRegion>> Specialization::compiled_regions_of(
    const Region& region) const {
  std::vector<std::shared_ptr<const CompiledRegion>> compiled_regions;
  for (const auto& plan : method_plans()) {
    for (const auto& run : plan->runs) {
      if (run.region == &region && run.compiled_region != nullptr)
        compiled_regions.push_back(run.compiled_region);
    }
  }
  return compiled_regions.empty() ? region.compiled_regions() : compiled_regions;
}

std::vector<std::shared_ptr<const CompiledRegion>> Specialization::newest_compiled_regions() const {
  std::vector<std::shared_ptr<const CompiledRegion>> newest;
  if (const auto plans = method_plans(); !plans.empty()) {
    for (const auto& run : plans.back()->runs) {
      if (run.compiled_region != nullptr)
        newest.push_back(run.compiled_region);
    }
    return newest;
  }
  for (const auto& region : regions) {
    const auto compiled_regions = region->compiled_regions();
    newest.insert(newest.end(), compiled_regions.begin(), compiled_regions.end());
  }
  return newest;
}

CompiledCall Specialization::latest_call() const {
  CompiledCall call;
  const auto add = [&](size_t region, std::shared_ptr<const CompiledRegion> compiled_region) {
    if (compiled_region != nullptr)
      call.runs.push_back({std::move(compiled_region), is_attribute(region), region});
  };
  if (const auto plans = method_plans(); !plans.empty()) {
    call.plan = plans.back();
    for (const auto& run : call.plan->runs) {
      const auto found = std::find_if(regions.begin(), regions.end(), [&](const auto& region) {
        return region.get() == run.region;
      });
      add(static_cast<size_t>(found - regions.begin()), run.compiled_region);
    }
    return call;
  }
  for (size_t i = 0; i < regions.size(); ++i) {
    if (const auto compiled_regions = regions[i]->compiled_regions(); !compiled_regions.empty())
      add(i, compiled_regions.back());
  }
  return call;
}

}  // namespace aten_recompute
