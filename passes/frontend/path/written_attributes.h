// What a recorded path writes to.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Returns the paths, from the module on, of the attributes whose memory the graph writes to;
// nullopt if it writes to something else that the caller can see.
std::optional<std::vector<std::vector<std::string>>> written_attributes(torch::jit::Graph& graph);

// Returns the paths of attributes that the graph writes back at its end, where nothing can raise an
// error any more: a call that raises has not changed them. The graph may consist of regions.
std::set<std::vector<std::string>> attributes_written_last(torch::jit::Graph& graph);

// Returns the paths of the attributes that nodes of the graph, those in regions not counted, write
// to in place.
std::set<std::vector<std::string>> attributes_written_in_place(torch::jit::Graph& graph);

}  // namespace aten_recompute
