// A training step as a Chrome trace, which https://ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "backend/pictures/step_chart.h"

namespace aten_recompute {

/// Each walk is a process: slices of phases, in these of layers, and in these of operators; what is
/// alive is a counter.
/// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU describes the
/// format.
nlohmann::json perfetto_trace(const std::vector<MethodChart>& methods);

}  // namespace aten_recompute
