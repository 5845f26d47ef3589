// Removes operators of a region that return their argument itself because there is nothing to do:
// to() of a tensor that has the type already, contiguous() of a contiguous tensor.
//
// In eager PyTorch such a call leaves no node: readers of its result read the argument, and the
// gradients of all readers are added in the order of use. A node would first add up the gradients
// of its own result, and with three gradients another order of addition gives another sum.
//
// The same applies to what an operator is composed of: rms_norm reads its input twice, converted to
// the type that it computes in, or the input itself if it has that type already. Such a node is
// marked (symbols::kHasComputedType), as is one whose operands have a common size already
// (ir/common_size.h).
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/lru_cache.h"
#include "runtime/program.h"

namespace aten_recompute {

// Finds and removes such operators of one region.
class NoopElimination {
 public:
  // `graph` is a region's forward. It is not changed.
  explicit NoopElimination(const std::shared_ptr<torch::jit::Graph>& graph);

  // Returns, for each node where it matters, whether it returns its argument, or whether its parts
  // read it; empty if there are no such nodes. Runs, without effects, everything that the nodes
  // depend on. This is repeated only for inputs of another type or, where a result may depend on
  // them, other sizes or strides. If an operator throws, returns false for every node, because the
  // region's own run throws again. Thread-safe.
  std::vector<bool> find(const std::vector<c10::IValue>& inputs);

  // Returns the graph without the nodes that return their argument, and with marks on those whose
  // parts read it. `returned` is a result of find().
  std::shared_ptr<torch::jit::Graph> fold(const std::vector<bool>& returned) const;

 private:
  // Returns the properties of the inputs that the results of find() depend on.
  std::vector<int64_t> signature(const std::vector<c10::IValue>& inputs) const;
  // Runs the nodes' dependencies and returns the flags.
  std::vector<bool> compute_flags(std::vector<c10::IValue> inputs) const;

  struct Known {
    std::vector<int64_t> signature;
    std::vector<bool> returned;
  };

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<size_t> nodes_;               // positions in the graph
  bool needs_layout_ = false;               // the flags depend on sizes and strides
  bool draws_numbers_ = false;              // random ones, while flags are computed
  std::unique_ptr<Program> flags_program_;  // computes the flags
  std::vector<size_t> read_inputs_;         // inputs that it reads
  std::mutex mutex_;
  LruCache<Known> known_{64};
};

}  // namespace aten_recompute
