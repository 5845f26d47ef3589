// What estimates and profiles of a method on the meta device share.
#pragma once

#include <aten_recompute/estimate.h>

#include <optional>
#include <string>

#include "backend/estimate/meta_module.h"
#include "backend/estimate/region_walk.h"

namespace aten_recompute {

// Returns the device that the options name; nothing if they name none. Throws std::invalid_argument
// for what is no device.
std::optional<at::Device> device_of(const EstimateOptions& options);

// Walks through the regions of a method on the meta device. Throws UserError, in one line, where
// data would have to be known, or the results of an operator are not.
RegionWalk walk_on_meta(const MetaCall& call, const std::string& method, const Options& options,
                        const RunRegion& run_region);

}  // namespace aten_recompute
