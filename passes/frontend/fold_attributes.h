// Turns attributes of the module into constants of the compiled graph.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// An attribute that a specialisation was compiled for. The compiled graph may be used only while
// the attribute still has this value.
struct FoldedAttribute {
  std::vector<std::string> path;  // {"blocks", "3", "dropout", "training"}
  c10::IValue value;              // bool, int, float, str or None
  bool not_none = false;  // for an Optional attribute that is set; its value is not compared
  int64_t rank = -1;      // for a tensor, of which only the rank is compared
};

// Returns the names of the attributes that the graph sets. Their values may change within a call.
std::unordered_set<std::string> set_attributes(torch::jit::Graph& graph);

// Returns the names of the attributes that lead from the graph's first input to `value`; nullopt if
// `value` is not read from that input.
std::optional<std::vector<std::string>> path_from_root(torch::jit::Value* value,
                                                       const torch::jit::Graph& graph);

// Returns the value at `path` in `root`; nullopt if there is none.
std::optional<c10::IValue> read_path(c10::intrusive_ptr<c10::ivalue::Object> root,
                                     const std::vector<std::string>& path);

// Replaces reads of bool, int, float, str and None attributes by constants, and gives Optional
// attributes that are not None their element type. Leaves attributes that the graph sets alone.
// Returns the attributes that the graph now relies on. `root` is the module that the graph's first
// input will be. Needs inline_modules() to have run.
std::vector<FoldedAttribute> fold_attributes(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const c10::intrusive_ptr<c10::ivalue::Object>& root);

// Moves reads of attributes that the graph does not set out of `if`s. Reading costs nothing, and an
// `if` that checks an attribute then has no attribute read inside, which would keep it out of
// regions.
void hoist_attributes(const std::shared_ptr<torch::jit::Graph>& graph);

// Returns whether `root` still has the value that was folded.
bool holds(const FoldedAttribute& attribute, const c10::intrusive_ptr<c10::ivalue::Object>& root);

}  // namespace aten_recompute
