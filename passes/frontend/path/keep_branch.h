// Makes one operator of an `if` that data decide, so that a path holds for both of its answers.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "passes/frontend/path/path_builder.h"

namespace torch::jit {
class AliasDb;
}

namespace aten_recompute {

// How the values that an `if` reads are found while a path is recorded.
struct BranchValues {
  std::function<Item&(torch::jit::Value*)> item_of;
  // Returns an attribute of the module, or of one of its submodules.
  std::function<Item&(Item& object, torch::jit::Node* get_attribute)> attribute_of;
};

// An `if` as a graph of its own, for aten_recompute::branch (runtime/branch.h).
struct KeptBranch {
  std::shared_ptr<torch::jit::Graph> graph;
  // What its inputs are; one for each use, so that gradients are added in eager's order.
  std::vector<Item> operands;
  std::vector<c10::TypePtr> types;
};

// Returns whether a result of the `if` may be what it reads, and something writes to one of the
// two. It must not become one operator then, which would copy what it reads. `aliases` are those of
// its graph.
bool is_result_changed(torch::jit::Node* node, const torch::jit::AliasDb& aliases);

// Takes a copy of an `if`. Throws NotRecordable where it has effects or random numbers, contains a
// loop or many operators (a plan decides about such a branch as a whole), returns something else
// than tensors and numbers, or where something is written to what it reads or returns. `node` is
// not changed.
KeptBranch keep_branch(torch::jit::Node* node, const BranchValues& values);

}  // namespace aten_recompute
