// Runs a method outside of training, with something else in place of its regions.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <string>
#include <vector>

#include "backend/region/region.h"
#include "common/options.h"
#include "passes/pipeline.h"
#include "passes/prepared_method.h"

namespace aten_recompute {

// Takes the inputs of a region and returns its outputs.
using RunRegion =
    std::function<std::vector<c10::IValue>(Region& region, std::vector<c10::IValue> inputs)>;

struct RegionWalk {
  c10::IValue result;  // of the method
  size_t num_regions = 0;
  std::vector<RegionBreak> breaks;
};

// Returns the inputs with the default values of arguments that are not given. Throws
// std::invalid_argument, in one line, where they do not fit the method, or there is no such method.
std::vector<c10::IValue> with_defaults(const torch::jit::Module& module, const std::string& method,
                                       const std::vector<c10::IValue>& inputs);

// Prepares the method as a lowered module does at its first call with these inputs, and runs it;
// `run_region` runs each of its regions. With `on_meta`, what operators outside of regions make is
// on the meta device. `inputs`
// are complete. Throws what `run_region` and operators throw.
RegionWalk walk_regions(const torch::jit::Module& module, const std::string& method,
                        const std::vector<c10::IValue>& inputs, const Options& options,
                        bool on_meta, const RunRegion& run_region);

}  // namespace aten_recompute
