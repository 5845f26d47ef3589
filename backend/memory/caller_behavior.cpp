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

// How far numbers of calls may differ, as a share, so that no plan changes.
constexpr double kSameCalls = 0.02;
// Where their number has grown twice, plans leave room for so many times as many.
constexpr double kRoomForCalls = 1.25;
// How many steps with fewer calls make a new plan, if they follow each other, and how often that
// may happen. A single one may be a test of the module before the training.
constexpr size_t kStepsWithFewer = 4;
constexpr size_t kMostFewer = 3;

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

CallerBehavior::CallerBehavior(SeenInCalls assumed, int64_t peak_bytes, bool loss_is_measured)
    : assumed_(std::move(assumed)), peak_bytes_(peak_bytes), loss_is_measured_(loss_is_measured) {}

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
  differs_ = more > limit || -more > limit || has_other_loss() || seen_calls_.has_value();
  if (more > limit) {
    log_warning(
        LogTopic::kMemory,
        "memory_budget may be exceeded by this backward: the region's outputs and their gradients "
        "take " +
            std::to_string(more) +
            " bytes more than its plan assumes. The region is planned again before the next call");
  }
}

void CallerBehavior::see_other_calls(double count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto assumed = assumed_.caller.other_calls;
  if (count > assumed + kSameCalls * (1.0 + assumed)) {
    // Rollouts that have grown twice will grow again.
    const auto planned_for = assumed > 0.0 ? kRoomForCalls * count : count;
    seen_calls_ = std::max(seen_calls_.value_or(0.0), planned_for);
    differs_ = true;
  } else if (count * kRoomForCalls >= assumed) {
    num_steps_with_fewer_ = 0;
  } else if (assumed_.caller.num_fewer < kMostFewer && !differs_) {
    most_of_fewer_ = num_steps_with_fewer_ == 0 ? count : std::max(most_of_fewer_, count);
    if (++num_steps_with_fewer_ == kStepsWithFewer) {
      seen_calls_ = most_of_fewer_;
      differs_ = true;
    }
  }
}

double CallerBehavior::other_calls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return seen_calls_.value_or(assumed_.caller.other_calls);
}

size_t CallerBehavior::num_fewer() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_fewer =
      seen_calls_.value_or(assumed_.caller.other_calls) < assumed_.caller.other_calls;
  return assumed_.caller.num_fewer + (is_fewer ? 1 : 0);
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
