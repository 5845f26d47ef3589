// Paths for the tests of what is recorded.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <set>
#include <string>
#include <vector>

#include "passes/frontend/path/record_path.h"

namespace aten_recompute::test {

// Records the path of a call of the module's forward, as record_path() does.
RecordedPath record(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                    const std::set<int64_t>& kept = {},
                    const std::set<std::vector<std::string>>& carried = {});

}  // namespace aten_recompute::test
