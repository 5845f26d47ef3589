// What the caller does between a region's forward and its backward, as far as it affects memory.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "passes/pipeline.h"

namespace aten_recompute {

// A number that steps show and a plan assumes. It may fall again.
class SeenNumber {
 public:
  // `num_fewer` is how often it has fallen before.
  SeenNumber(double assumed, size_t num_fewer);

  // Notes the number of a step. Returns whether the plan should assume another one. `may_fall` says
  // that this may be a smaller one.
  bool see(double number, bool may_fall);
  // Returns what to assume, and whether that is less than was assumed.
  double get() const { return changed_.value_or(assumed_); }
  bool has_fallen() const { return get() < assumed_; }
  bool has_changed() const { return changed_.has_value(); }

 private:
  const double assumed_;
  const size_t num_steps_to_fall_;
  std::optional<double> changed_;
  double most_of_fewer_ = 0.0;  // in the steps that num_fewer_ counts
  size_t num_fewer_ = 0;        // steps with a smaller number, one after the other
};

// Observes outputs, their gradients and the loss. The compiled regions of one region that were
// planned with the same profile share one object. Thread-safe.
//
// A profile assumes that every incoming gradient has memory for all of its elements, that the loss
// needs as much again, and that the caller holds the outputs. But the gradient of a sum is one
// number, expanded; an output that the loss does not read has no gradient; and the output in
// `f(x).sum().backward()` is freed before the backward begins. The predicted peak is then too high,
// and so is a budget that is a fraction of it.
class CallerBehavior {
 public:
  // `assumed` is what the profile assumed, `peak_bytes` the predicted peak. `loss_is_measured` says
  // that see_loss() is called where a loss takes more than was planned for. Without it, an output
  // counts as freed before the backward only if its gradient is that of a sum, because other losses
  // may hold tensors as large as the output.
  CallerBehavior(SeenInCalls assumed, int64_t peak_bytes, bool loss_is_measured);

  // Makes only the outputs with these indices, and those given in earlier calls, count as the
  // caller's. Where several regions run in a call, other regions read most outputs, and the planner
  // knows how long these live.
  void count_only(const std::vector<size_t>& outputs);

  // The state of an output that requires grad, when a backward begins.
  struct Output {
    std::vector<int64_t> sizes;
    size_t element_bytes = 0;
    at::Tensor gradient;  // undefined where the output has none
    bool is_freed_before_backward = false;
  };
  // Notes the outputs that require grad, all of them and in order, when a backward begins. Logs a
  // warning where they and their gradients take more than was planned for.
  void see(const std::vector<Output>& outputs);

  // Notes how many other calls wait when the first backward of a step begins, and what a backward
  // leaves in memory (CallerAssumptions::other_calls and retained).
  void see_other_calls(double count);
  void see_retained(double retained);

  // What a loss takes in a step, as multiples of the bytes of the gradients that it makes
  // (SeenInCalls).
  struct Loss {
    double factor = 0.0;
    double held_factor = 0.0;
    int64_t gradient_bytes = 0;
    bool exceeds_plan = false;  // the step took more than its plan allows
  };
  // Notes what a loss takes. Where the step did not take more than its plan allows, a difference
  // from what was assumed that is negligible beside the peak is ignored: the factors of small
  // outputs change with their sizes.
  void see_loss(const Loss& loss);

  // Returns whether all gradients were whole and all outputs held; see() can then change nothing.
  bool is_settled() const { return settled_.load(std::memory_order_relaxed); }
  // Returns whether the caller behaves differently than assumed, so that the peak changes.
  bool differs() const { return differs_.load(std::memory_order_relaxed); }
  // These return what held in all backwards so far, as SeenInCalls has it. The factors are at least
  // those assumed; loss_factor() is nullopt where a loss was neither measured nor assumed.
  ExpandedDimensions expanded() const;
  std::vector<bool> freed_before_backward() const;
  std::optional<double> loss_factor() const;
  double held_factor() const;
  // These return the numbers that held in the last steps that showed others than were assumed.
  double other_calls() const;
  double retained() const;
  size_t num_fewer() const;

 private:
  // Returns the bytes of gradients, loss and outputs if the caller behaves as `behavior` says.
  int64_t bytes_of(const std::vector<Output>& outputs, const SeenInCalls& behavior) const;
  // Returns whether the output counts as the caller's (count_only()).
  bool counts(size_t output) const;
  // Notes a number of a step. Needs mutex_ to be held.
  void see_number(SeenNumber& number, double seen);
  // Returns whether a loss takes so little more than was assumed that no plan changes.
  bool is_as_assumed(const Loss& loss) const;
  // Returns whether the measured loss differs from the assumed one. Needs mutex_ to be held.
  bool has_other_loss() const;

  const SeenInCalls assumed_;
  const int64_t peak_bytes_;
  const bool loss_is_measured_;
  mutable std::mutex mutex_;
  SeenInCalls seen_;
  std::optional<std::vector<size_t>> counted_;  // nullopt: all outputs count
  bool has_seen_ = false;
  SeenNumber other_calls_;
  SeenNumber retained_;
  int64_t largest_bytes_ = 0;  // bytes_of(), as assumed, in the call with the largest outputs
  std::atomic<bool> differs_{false};
  std::atomic<bool> settled_{false};
};

}  // namespace aten_recompute
