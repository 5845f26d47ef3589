#include "backend/memory/pending_calls.h"

#include <algorithm>
#include <utility>

namespace aten_recompute {

PendingCalls& PendingCalls::of_process() {
  // Never destroyed, because calls that are static objects may outlive it.
  static auto* instance = new std::shared_ptr<PendingCalls>(std::make_shared<PendingCalls>());
  return **instance;
}

std::unique_ptr<PendingCalls::Call> PendingCalls::add(Kept kept) {
  const auto thread = std::this_thread::get_id();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto number = num_added_++;
  calls_[thread].push_back({number, std::move(kept)});
  return std::make_unique<Call>(shared_from_this(), thread, number);
}

void PendingCalls::end(const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = calls_.find(call.thread_);
  if (found == calls_.end())
    return;
  std::erase_if(found->second, [&](const Entry& each) { return each.number == call.number_; });
  if (found->second.empty())
    calls_.erase(found);
}

PendingCalls::Others PendingCalls::begin_backward(const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& calls = calls_[call.thread_];
  if (!calls.empty() && calls.back().num_backwards == 0)
    find_others(calls);
  const auto found = std::find_if(calls.begin(), calls.end(),
                                  [&](const Entry& each) { return each.number == call.number_; });
  return found == calls.end() ? Others{} : found->others;
}

void PendingCalls::find_others(Calls& calls) {
  // What has waited longer is a result that the program keeps, such as one that it printed.
  constexpr uint64_t kMostBackwards = 32;
  // A plan is of no use to calls of others that keep so many times as much.
  constexpr double kNegligible = 16.0;
  struct OfPlan {
    double planned_bytes = 0.0;
    double bytes = 0.0;    // of all its calls
    double largest = 0.0;  // of one of them
  };
  std::map<CallerBehavior*, OfPlan> plans;
  std::vector<Entry*> waiting;
  double all = 0.0;
  for (auto& each : calls) {
    if (each.num_backwards++ >= kMostBackwards)
      continue;
    waiting.push_back(&each);
    auto& plan = plans[each.kept.caller.get()];
    plan.planned_bytes = each.kept.planned_bytes;
    plan.bytes += each.kept.bytes;
    plan.largest = std::max(plan.largest, each.kept.bytes);
    all += each.kept.bytes;
  }
  double most = 0.0;
  for (const auto& [caller, plan] : plans)
    most = std::max(most, plan.bytes);
  // Each plan leaves room for what the others keep if they make as much again as it does. Its
  // largest call has the least beside it, and needs the most itself.
  std::map<CallerBehavior*, double> like_planned;
  for (const auto& [caller, plan] : plans) {
    const bool counts = plan.planned_bytes > 0.0 && most <= kNegligible * plan.bytes;
    like_planned[caller] = counts ? (all - plan.largest) / plan.planned_bytes : 0.0;
    caller->see_other_calls(like_planned[caller]);
  }
  int64_t num_earlier = 0;
  const auto count = static_cast<int64_t>(waiting.size());
  for (auto* each : waiting) {
    if (each->num_backwards == 1)
      each->others = {num_earlier, num_earlier + 1 < count, like_planned[each->kept.caller.get()]};
    ++num_earlier;
  }
}

}  // namespace aten_recompute
