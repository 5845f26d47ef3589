// The memory of a training step in the format of torch.cuda.memory._snapshot().
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "backend/pictures/step_chart.h"

namespace aten_recompute {

/// https://pytorch.org/memory_viz and `python -m torch.cuda._memory_viz` open the result once it is
/// a pickle (common/pickle.h). Each walk is a device; where the arena of a method is known, it is
/// one device more, with what the operators of this process allocate. Layers and source lines are
/// frames.
nlohmann::json memory_snapshot(const std::vector<MethodChart>& methods);

}  // namespace aten_recompute
