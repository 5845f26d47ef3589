// Brings a method's graph into a form in which regions can be found.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

#include "passes/frontend/path/path_guard.h"
#include "passes/frontend/rewrites/fold_attributes.h"
#include "passes/frontend/rewrites/small_passes.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Everything that must hold for a prepared graph to be used for a call.
struct Assumptions {
  std::vector<FoldedAttribute> attributes;
  std::vector<InputAssumption> inputs;
  std::shared_ptr<const PathGuard> path;  // of a method that was recorded; otherwise nullptr
  bool gradients_are_disabled = false;    // otherwise they may be enabled or not

  // Returns whether the assumptions hold for a call on `self` with these inputs.
  bool hold(const c10::intrusive_ptr<c10::ivalue::Object>& self,
            const std::vector<c10::IValue>& inputs) const;

  // Returns, for people, the first assumption that does not hold; "" if all do. `names` are those
  // of the inputs.
  std::string difference(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                         const std::vector<c10::IValue>& inputs,
                         const std::vector<std::string>& names) const;
};

// Folds what is constant for this call: attributes but for those in `changing`, None or not, ranks
// of inputs. Returns what the graph now assumes. Needs inline_modules() to have run.
Assumptions fold_call(const std::shared_ptr<torch::jit::Graph>& graph,
                      const c10::intrusive_ptr<c10::ivalue::Object>& self,
                      const std::vector<c10::IValue>& inputs, const AttributePaths& changing = {});

// Returns whether no result depends on a condition: every `if` only checks, there is no loop, and
// no method is called through an interface, whose class only a call shows.
bool is_straight_line(torch::jit::Graph& graph);

// Brings `graph`, which fold_call() has folded, into the form that form_regions() needs: without
// `if`s on attributes, None or dim(), without tuples between operators, without dropout in
// evaluation, with loops over modules unrolled, and with functional operators in place of in-place
// ones on values that the method made itself. Adds what the graph now assumes besides.
void prepare(const std::shared_ptr<torch::jit::Graph>& graph,
             const c10::intrusive_ptr<c10::ivalue::Object>& self, Assumptions& assumptions);

// Does what prepare() does for the graph of a recorded path, which has no control flow.
void prepare_recorded(const std::shared_ptr<torch::jit::Graph>& graph,
                      const c10::intrusive_ptr<c10::ivalue::Object>& self,
                      Assumptions& assumptions);

}  // namespace aten_recompute
