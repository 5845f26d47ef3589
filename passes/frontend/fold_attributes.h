// Attributes of the module that the compiled graph takes as constants.
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

// One attribute that a specialisation was compiled for; it has to hold that value again for the
// compiled graph to be used.
struct FoldedAttribute {
  std::vector<std::string> path;  // {"blocks", "3", "dropout", "training"}
  c10::IValue value;              // bool, int, float, str or None
  bool not_none = false;          // an Optional attribute that is set: its value is not compared
  int64_t rank = -1;              // of a tensor: that alone is compared
};

// Names of the attributes that the graph sets: what is read of them may differ within a call.
std::unordered_set<std::string> set_attributes(torch::jit::Graph& graph);

// Names of the attributes that lead from the graph's first input to `value`; nothing where they do
// not.
std::optional<std::vector<std::string>> path_from_root(torch::jit::Value* value,
                                                       const torch::jit::Graph& graph);

// What `root` holds there.
std::optional<c10::IValue> read_path(c10::intrusive_ptr<c10::ivalue::Object> root,
                                     const std::vector<std::string>& path);

// Replaces reads of bool, int, float, str and None attributes by constants, except of attributes
// that the graph sets. An Optional attribute that is not None is given its element type. `root` is
// what the graph's first input will be. Needs: inline_modules() has run.
std::vector<FoldedAttribute> fold_attributes(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const c10::intrusive_ptr<c10::ivalue::Object>& root);

// Moves reads of attributes that the graph does not set out of `if`s: reading costs nothing, and a
// check of an attribute's type is then no operator on tensors inside the `if`.
void hoist_attributes(const std::shared_ptr<torch::jit::Graph>& graph);

// Does `root` still hold what was folded?
bool holds(const FoldedAttribute& attribute, const c10::intrusive_ptr<c10::ivalue::Object>& root);

}  // namespace aten_recompute
