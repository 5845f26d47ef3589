#include "backend/memory/caller_behavior.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/log.h"

namespace aten_recompute {
namespace {

// Error of a prediction that is tolerated, as a fraction of the peak.
constexpr double kTolerance = 0.03;
// A share of the peak that is not worth another plan.
constexpr double kNegligible = 1e-4;

// How far numbers may differ, as a share, so that no plan changes.
constexpr double kSameNumber = 0.02;
// Where a number has grown twice, plans leave room for so many times as much.
constexpr double kRoom = 1.25;
// How many steps with a smaller number make a new plan, if they follow each other. A single one may
// be a test of the module before the training. Each time it takes twice as many.
constexpr size_t kStepsWithFewer = 4;
constexpr size_t kMostDoublings = 20;

std::vector<bool> expanded_dimensions(const CallerBehavior::Output& output) {
  const auto& gradient = output.gradient;
  std::vector<bool> expanded(output.sizes.size(), !gradient.defined());
  if (!gradient.defined() || gradient.layout() != at::kStrided ||
      gradient.dim() != static_cast<int64_t>(expanded.size()))
    return expanded;
  for (size_t i = 0; i < expanded.size(); ++i)
    expanded[i] = gradient.stride(static_cast<int64_t>(i)) == 0;
  return expanded;
}

bool is_on(bool flag) {
  return flag;
}

// Clears each flag in `flags` that is not set in `others`. Returns whether any flag changed.
bool turn_off(std::vector<bool>& flags, const std::vector<bool>& others) {
  bool changed = false;
  for (size_t i = 0; i < flags.size(); ++i) {
    changed = changed || (flags[i] && !others[i]);
    flags[i] = flags[i] && others[i];
  }
  return changed;
}

}  // namespace

SeenNumber::SeenNumber(double assumed, size_t num_fewer)
    : assumed_(assumed),
      num_steps_to_fall_(kStepsWithFewer << std::min(num_fewer, kMostDoublings)) {}

bool SeenNumber::see(double number, bool may_fall) {
  if (number > assumed_ + kSameNumber * (1.0 + assumed_)) {
    // Rollouts that have grown twice will grow again.
    const auto planned_for = assumed_ > 0.0 ? kRoom * number : number;
    changed_ = std::max(changed_.value_or(0.0), planned_for);
    return true;
  }
  if (number * kRoom * kRoom >= assumed_) {
    num_fewer_ = 0;
    return false;
  }
  if (!may_fall)
    return false;
  most_of_fewer_ = num_fewer_ == 0 ? number : std::max(most_of_fewer_, number);
  if (++num_fewer_ < num_steps_to_fall_)
    return false;
  changed_ = most_of_fewer_;
  return true;
}

CallerBehavior::CallerBehavior(SeenInCalls assumed, int64_t peak_bytes, bool loss_is_measured)
    : assumed_(std::move(assumed)),
      peak_bytes_(peak_bytes),
      loss_is_measured_(loss_is_measured),
      other_calls_(assumed_.caller.other_calls, assumed_.caller.num_fewer),
      retained_(assumed_.caller.retained, assumed_.caller.num_fewer) {}

void CallerBehavior::count_only(const std::vector<size_t>& outputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!counted_)
    counted_.emplace();
  counted_->insert(counted_->end(), outputs.begin(), outputs.end());
}

bool CallerBehavior::counts(size_t output) const {
  return !counted_ || std::find(counted_->begin(), counted_->end(), output) != counted_->end();
}

int64_t CallerBehavior::bytes_of(const std::vector<Output>& outputs,
                                 const SeenInCalls& behavior) const {
  int64_t bytes = 0;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!counts(k))
      continue;
    const auto& sizes = outputs[k].sizes;
    auto of_output = static_cast<int64_t>(outputs[k].element_bytes);
    auto of_gradient = of_output;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const bool is_expanded = k < behavior.profile.expanded.size() &&
                               i < behavior.profile.expanded[k].size() &&
                               behavior.profile.expanded[k][i];
      of_output *= sizes[i];
      of_gradient *= is_expanded ? 1 : sizes[i];
    }
    const bool is_freed_before_backward = k < behavior.caller.freed_before_backward.size() &&
                                          behavior.caller.freed_before_backward[k];
    bytes += 2 * of_gradient + (is_freed_before_backward ? 0 : of_output);
  }
  return bytes;
}

void CallerBehavior::see(const std::vector<Output>& outputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bool changed = !has_seen_;
  if (!has_seen_) {
    for (size_t k = 0; k < outputs.size(); ++k) {
      seen_.profile.expanded.emplace_back(outputs[k].sizes.size(), counts(k));
      seen_.caller.freed_before_backward.push_back(counts(k));
    }
    has_seen_ = true;
  }
  std::vector<bool> freed_before_backward;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const auto expanded = expanded_dimensions(outputs[k]);
    changed = turn_off(seen_.profile.expanded[k], expanded) || changed;
    const bool is_of_sum = std::all_of(expanded.begin(), expanded.end(), is_on);
    freed_before_backward.push_back(outputs[k].is_freed_before_backward &&
                                    (loss_is_measured_ || is_of_sum));
  }
  changed = turn_off(seen_.caller.freed_before_backward, freed_before_backward) || changed;
  // What makes no difference in a call with small outputs may make one in a later call.
  const auto assumed_bytes = bytes_of(outputs, assumed_);
  if (!changed && (differs_ || assumed_bytes <= largest_bytes_))
    return;
  largest_bytes_ = std::max(largest_bytes_, assumed_bytes);
  settled_ = std::none_of(seen_.caller.freed_before_backward.begin(),
                          seen_.caller.freed_before_backward.end(), is_on) &&
             std::none_of(
                 seen_.profile.expanded.begin(), seen_.profile.expanded.end(),
                 [](const auto& flags) { return std::any_of(flags.begin(), flags.end(), is_on); });
  const auto more = bytes_of(outputs, seen_) - assumed_bytes;
  const auto limit = static_cast<int64_t>(kTolerance * static_cast<double>(peak_bytes_));
  differs_ = more > limit || -more > limit || has_other_loss() || other_calls_.has_changed() ||
             retained_.has_changed();
  if (more > limit) {
    log_warning(
        LogTopic::kMemory,
        "memory_budget may be exceeded by this backward: the region's outputs and their gradients "
        "take " +
            std::to_string(more) +
            " bytes more than its plan assumes. The region is planned again before the next call");
  }
}

void CallerBehavior::see_number(SeenNumber& number, double seen) {
  // Where there will be another plan anyway, a smaller number can wait.
  differs_ = number.see(seen, /*may_fall=*/!differs_) || differs_;
}

void CallerBehavior::see_other_calls(double count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  see_number(other_calls_, count);
}

void CallerBehavior::see_retained(double retained) {
  const std::lock_guard<std::mutex> lock(mutex_);
  see_number(retained_, retained);
}

double CallerBehavior::other_calls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return other_calls_.get();
}

double CallerBehavior::retained() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return retained_.get();
}

size_t CallerBehavior::num_fewer() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return assumed_.caller.num_fewer + (other_calls_.has_fallen() || retained_.has_fallen() ? 1 : 0);
}

bool CallerBehavior::is_as_assumed(const Loss& loss) const {
  if (!assumed_.caller.loss_factor)
    return false;
  const auto more = std::max({0.0, loss.factor - *assumed_.caller.loss_factor,
                              loss.held_factor - assumed_.caller.held_factor});
  return more * static_cast<double>(loss.gradient_bytes) <=
         kNegligible * static_cast<double>(peak_bytes_);
}

void CallerBehavior::see_loss(const Loss& loss) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!loss.exceeds_plan && !differs_ && is_as_assumed(loss))
    return;
  seen_.caller.loss_factor =
      std::max(loss.factor, assumed_.caller.loss_factor.value_or(loss.factor));
  seen_.caller.held_factor = std::max(loss.held_factor, assumed_.caller.held_factor);
  differs_ = differs_ || has_other_loss();
}

bool CallerBehavior::has_other_loss() const {
  return seen_.caller.loss_factor && (seen_.caller.loss_factor != assumed_.caller.loss_factor ||
                                      seen_.caller.held_factor != assumed_.caller.held_factor);
}

std::optional<double> CallerBehavior::loss_factor() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return seen_.caller.loss_factor ? seen_.caller.loss_factor : assumed_.caller.loss_factor;
}

double CallerBehavior::held_factor() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::max(seen_.caller.held_factor, assumed_.caller.held_factor);
}

ExpandedDimensions CallerBehavior::expanded() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return seen_.profile.expanded;
}

std::vector<bool> CallerBehavior::freed_before_backward() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return seen_.caller.freed_before_backward;
}

}  // namespace aten_recompute
