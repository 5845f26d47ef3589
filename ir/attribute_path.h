// Places of values in a module: names of attributes, and elements of containers.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Returns the names of the attributes that lead from the graph's first input to `value`; nullopt if
// `value` is not read from that input.
std::optional<std::vector<std::string>> path_from_root(torch::jit::Value* value,
                                                       const torch::jit::Graph& graph);

// Returns the step of a path that leads from a list or tuple to the element with this index, or
// from a dict to the value with this key, an int or str.
std::string element_step(const c10::IValue& key);

// Returns the value at `path` in `root`; nullopt if there is none.
std::optional<c10::IValue> read_path(const c10::intrusive_ptr<c10::ivalue::Object>& root,
                                     const std::vector<std::string>& path);

}  // namespace aten_recompute
