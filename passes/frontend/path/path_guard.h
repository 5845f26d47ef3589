// Tells before a call whether it takes a recorded path.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

#include "passes/frontend/path/record_path.h"

namespace torch::jit {
struct Code;
struct Graph;
}  // namespace torch::jit

namespace aten_recompute {

// What a call needs to have in common with the recorded one, apart from attributes, which
// Assumptions::attributes has.
class PathGuard {
 public:
  // Moves the checks of the path that depend on the method's inputs and attributes alone from its
  // graph into this guard. The others stay in the graph, and raise an error during the call.
  explicit PathGuard(const RecordedPath& path);

  // Returns whether the inputs fit. Thread-safe.
  bool holds(const c10::intrusive_ptr<c10::ivalue::Object>& self,
             const std::vector<c10::IValue>& inputs) const;

  // Returns what differs in a call for which holds() returns false; `names` are those of the
  // inputs.
  std::string difference(const std::vector<c10::IValue>& inputs,
                         const std::vector<std::string>& names) const;

 private:
  std::vector<Structure> inputs_;
  at::ScalarType default_dtype_;
  std::optional<bool> grad_mode_;
  bool changes_containers_;
  ApartFrom apart_;
  std::shared_ptr<torch::jit::Code> code_;  // nullptr if there is nothing to compute
  std::vector<bool> expected_;              // its results
};

// A check that is made during a call.
struct PathCheck {
  bool expected = false;
  // What the condition compares a number or a text with: the length of a loop. None if it does not.
  c10::IValue bound;
  // Number of the `if` that it decides (RecordedPath::graph), if elements of tensors are the
  // reason; -1 otherwise.
  int64_t decision = -1;
};

// Returns whether two paths that agree up to these checks agree on what they ask, too.
bool ask_the_same(const PathCheck& a, const PathCheck& b);

// Removes checks of constants that hold. Gives the others their place in the order of the graph and
// returns them.
std::vector<PathCheck> number_checks(torch::jit::Graph& graph);

}  // namespace aten_recompute
