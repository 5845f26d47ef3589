// Strategy `budget`: the fastest plan whose simulated peak fits, or the leanest whose time does.
#pragma once

#include "backend/options.h"
#include "passes/plan/decisions.h"

namespace aten_recompute {

// `unplanned` keeps what the backward reads: what a fraction is a fraction of, and where the search
// starts. Throws std::runtime_error where no plan is found that fits; the message names the
// smallest peak that can be reached.
Decisions plan_budget(const Problem& problem, const Decisions& unplanned, const Options& options);

// The smallest peak that a short search finds.
Decisions plan_leanest(const Problem& problem, const Decisions& unplanned);

}  // namespace aten_recompute
