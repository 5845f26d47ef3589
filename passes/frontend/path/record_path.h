// Finds the straight line of operators that a call takes through a method.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "passes/frontend/path/apart_memory.h"
#include "passes/frontend/path/path_gradients.h"
#include "passes/frontend/rewrites/fold_attributes.h"
#include "passes/frontend/rewrites/structure.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// A method without control flow and, as far as possible, without containers.
struct RecordedPath {
  // Has the inputs and outputs of the method. aten_recompute::check_path stands where the method
  // decided something by a value that is not known before the call. Its attribute symbols::kDecides
  // is the place of the `if` among those of the method, in their order; -1 for others.
  std::shared_ptr<torch::jit::Graph> graph;

  // What the call needs to have in common with the one that was recorded, besides those checks.
  std::vector<FoldedAttribute> attributes;
  std::vector<Structure> inputs;  // of the method, without self
  at::ScalarType default_dtype = at::kFloat;
  std::optional<bool> grad_mode;     // set if the method asks whether gradients are enabled
  bool depends_on_autocast = false;  // the method has blocks of autocast, or asks for its settings
  bool changes_containers = false;   // of the caller
  bool has_changes = false;          // of what the caller can see; they come last in the graph
  ApartFrom apart;                   // tensors that must not share memory
};

struct PathOptions {
  // An `if` at one of these places becomes one operator instead (keep_branch.h), if it can, and
  // autocast casts nothing. The path then holds for both of its answers.
  std::set<int64_t> kept{};
  // These are tensors that the method writes to. They become values of the path, which are written
  // back at its end, so that no write stands between two regions.
  AttributePaths carried{};
  // These are numbers that change from call to call. They stay values, as sizes do.
  AttributePaths changing{};
  // The forward may need more than these bytes, and operators run without memory (meta_run.h), but
  // for small ones. What follows from elements of large tensors cannot be recorded then, nor what
  // is under autocast, and an answer that depends on the layout of a tensor may be another one than
  // in a call.
  std::optional<int64_t> memory_bytes = std::nullopt;
  // Tells what has requires_grad that is computed from gradients which the method asks for; may be
  // empty.
  OutputRequiresGrad output_requires_grad{};
};

// Runs the method on the inputs of a call and notes what it does: which branch it takes, how often
// a loop runs, what its lists and dicts hold. Sizes and other numbers stay values of the graph:
// only the answers of the questions that were asked about them are fixed. Changes that the caller
// can see (attributes, lists and dicts) come last in the graph, in their order.
//
// The run itself keeps nothing for a backward, leaves no effects, and draws no random numbers. It
// needs inline_modules() to have run, and does not change `graph`. Throws NotRecordable, with the
// reason, for a method that cannot be recorded.
RecordedPath record_path(const std::shared_ptr<torch::jit::Graph>& graph,
                         const c10::intrusive_ptr<c10::ivalue::Object>& self,
                         const std::vector<c10::IValue>& inputs, const PathOptions& options = {});

}  // namespace aten_recompute
