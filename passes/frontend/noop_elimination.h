// Operators of a region that return their very argument where there is nothing to do: to() of a
// tensor that has the type, contiguous() of one that is.
//
// In eager such a call is no operator: what reads its result reads the argument, and gradients of
// all readers are added in the order of their use. As a node of its own it would first add up those
// of its result, and with three gradients that is another number.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/lru_cache.h"
#include "runtime/program.h"

namespace aten_recompute {

class ReturnedArguments {
 public:
  // `graph` is a region's forward; not changed.
  explicit ReturnedArguments(const std::shared_ptr<torch::jit::Graph>& graph);

  // For each node of which it matters: does it return its argument? Known from a run of what the
  // nodes depend on, without effects, that is repeated only for inputs of another type or, where a
  // result may depend on them, other sizes or strides. Empty: there are no such nodes.
  // Thread-safe.
  std::vector<bool> find(const std::vector<c10::IValue>& inputs);

  // The graph without the nodes that return their argument.
  std::shared_ptr<torch::jit::Graph> fold(const std::vector<bool>& returned) const;

 private:
  // What the answer depends on.
  std::vector<int64_t> signature(const std::vector<c10::IValue>& inputs) const;
  std::vector<bool> look(std::vector<c10::IValue> inputs) const;

  struct Known {
    std::vector<int64_t> signature;
    std::vector<bool> returned;
  };

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<size_t> nodes_;  // positions in the graph
  bool needs_layout_ = false;  // the answer depends on sizes and strides
  std::unique_ptr<Program> question_;
  std::vector<size_t> read_inputs_;  // by the question
  std::mutex mutex_;
  LruCache<Known> known_{64};
};

}  // namespace aten_recompute
