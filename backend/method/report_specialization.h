// The part of a report that one specialization has.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace aten_recompute {

struct Specialization;

// Returns regions, breaks and plans as docs/report.md says: {"regions": [{"variants": [...]}],
// "breaks": [...], "plans": [...]}.
nlohmann::json report_of(const Specialization& specialization);

}  // namespace aten_recompute
