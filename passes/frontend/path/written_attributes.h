// What a recorded path writes to.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Returns the paths, from the module on, of the attributes whose memory the graph writes to;
// nullopt if it writes to something else that the caller can see.
std::optional<std::vector<std::vector<std::string>>> written_attributes(torch::jit::Graph& graph);

}  // namespace aten_recompute
