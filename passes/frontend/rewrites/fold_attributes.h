// Turns attributes of the module into constants of the compiled graph.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "passes/frontend/rewrites/structure.h"

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Paths of attributes, from the module, as FoldedAttribute::path.
using AttributePaths = std::set<std::vector<std::string>>;

// An attribute that a specialization was compiled for. The compiled graph may be used only while
// the attribute still has this value.
struct FoldedAttribute {
  // {"blocks", "3", "dropout", "training"}; an element of a list, tuple or dict is a step of its
  // own, which element_step() gives.
  std::vector<std::string> path;
  c10::IValue value;      // bool, int, float, str or None
  bool not_none = false;  // for an Optional attribute that is set; its value is not compared
  int64_t rank = -1;      // for a tensor, of which only the rank is compared
  // For a tensor or a container, of which only the structure is compared.
  std::shared_ptr<const Structure> structure = nullptr;
  // For an object of which only is compared whether it is the one at this other path.
  std::optional<std::vector<std::string>> other_object = std::nullopt;
  bool is_other_object = true;
};

// Returns whether a graph was compiled for the value of an int or float attribute.
bool is_number(const FoldedAttribute& attribute);

// Returns the names of the attributes that the graph sets. Their values may change within a call.
std::unordered_set<std::string> set_attributes(torch::jit::Graph& graph);

// Replaces reads of bool, int, float, str and None attributes by constants, and gives Optional
// attributes that are not None their element type. Leaves attributes that the graph sets alone,
// and those in `changing`. Returns the attributes that the graph now relies on. `root` is the
// module that the graph's first input will be. Needs inline_modules() to have run.
std::vector<FoldedAttribute> fold_attributes(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const c10::intrusive_ptr<c10::ivalue::Object>& root,
                                             const AttributePaths& changing = {});

// Moves reads of attributes that the graph does not set out of `if`s. Reading costs nothing, and an
// `if` that checks an attribute then has no attribute read inside, which would keep it out of
// regions.
void hoist_attributes(const std::shared_ptr<torch::jit::Graph>& graph);

// Returns whether `root` still has the value that was folded.
bool holds(const FoldedAttribute& attribute, const c10::intrusive_ptr<c10::ivalue::Object>& root);

// Returns how the attribute differs where it does not hold: "attribute training is False instead of
// True".
std::string difference(const FoldedAttribute& attribute,
                       const c10::intrusive_ptr<c10::ivalue::Object>& root);

}  // namespace aten_recompute
