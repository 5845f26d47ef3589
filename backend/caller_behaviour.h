// What the caller does between the forward of a region and its backward, as far as memory depends
// on it.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "passes/pipeline.h"

namespace aten_recompute {

// Shared by all compiled regions of a region that were planned with one profile. Thread-safe.
//
// A profile takes every incoming gradient for a tensor with memory for all of its elements, the
// loss to need as much again, and the caller to hold on to the outputs. But the gradient of a sum
// is one number, expanded; an output that the loss does not read has none; and the output in
// `f(x).sum().backward()` is gone when the backward begins. Then the prediction is too high, and a
// fraction of it is no fraction of the peak.
class CallerBehaviour {
 public:
  // `assumed`: what the profile went by. `peak_bytes`: what was predicted. `loss_is_measured`:
  // see_loss() is called where a loss takes more than was planned for. Otherwise an output counts
  // as let go only behind a sum, as other losses may hold tensors as large as the output.
  CallerBehaviour(SeenInCalls assumed, int64_t peak_bytes, bool loss_is_measured);

  // Where several regions run in a call, most outputs are for other regions to read, and how long
  // they stay is known. Once this is called, only the outputs with these numbers, and those of
  // earlier calls of it, count as the caller's.
  void count_only(const std::vector<size_t>& outputs);

  // One output that requires grad, at the beginning of a backward.
  struct Output {
    std::vector<int64_t> sizes;
    size_t element_bytes = 0;
    at::Tensor gradient;  // undefined: there is none
    bool is_freed_before_backward = false;
  };
  void see(const std::vector<Output>& outputs);

  // A loss takes more than was planned for; as multiples of the gradients that it makes
  // (SeenInCalls).
  void see_loss(double loss_factor, double held_factor);

  // All gradients were whole and all outputs held, so there is nothing that see() could change.
  bool is_settled() const { return settled_.load(std::memory_order_relaxed); }
  // The caller behaves otherwise than was assumed, and it matters for the peak.
  bool differs() const { return differs_.load(std::memory_order_relaxed); }
  // What held in all backwards so far.
  ExpandedDimensions expanded() const;
  std::vector<bool> freed_before_backward() const;
  std::optional<double> loss_factor() const;
  double held_factor() const;

 private:
  // The bytes that gradients, loss and outputs take if the caller behaves as `behaviour` says.
  int64_t bytes_of(const std::vector<Output>& outputs, const SeenInCalls& behaviour) const;
  bool counts(size_t output) const;
  bool has_other_loss() const;

  const SeenInCalls assumed_;
  const int64_t peak_bytes_;
  const bool loss_is_measured_;
  mutable std::mutex mutex_;
  SeenInCalls seen_;
  std::optional<std::vector<size_t>> counted_;  // nothing: all
  bool has_seen_ = false;
  std::atomic<bool> differs_{false};
  std::atomic<bool> settled_{false};
};

}  // namespace aten_recompute
