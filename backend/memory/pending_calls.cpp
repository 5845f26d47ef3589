#include "backend/memory/pending_calls.h"

#include <algorithm>
#include <utility>

namespace aten_recompute {

namespace {

// Returns the entry of a call in the list of those that wait.
auto find(auto& waiting, const auto& call) {
  return std::find_if(waiting.begin(), waiting.end(),
                      [&](const auto& each) { return each.number == call.number(); });
}

}  // namespace

PendingCalls& PendingCalls::of_process() {
  // Never destroyed, because calls that are static objects may outlive it.
  static auto* instance = new std::shared_ptr<PendingCalls>(std::make_shared<PendingCalls>());
  return **instance;
}

uint64_t PendingCalls::next_number() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_added_;
}

std::unique_ptr<PendingCalls::Call> PendingCalls::add(Kept kept) {
  const auto thread = std::this_thread::get_id();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto number = num_added_++;
  auto& calls = calls_[thread];
  calls.bytes += kept.bytes;
  calls.waiting.push_back({number, std::move(kept)});
  // A program may call for ever without a backward. Earlier calls count only where there was more
  // than after all later ones.
  while (!calls.returned.empty() && calls.returned.back().second <= calls.bytes)
    calls.returned.pop_back();
  calls.returned.emplace_back(number, calls.bytes);
  return std::make_unique<Call>(shared_from_this(), thread, number);
}

void PendingCalls::end(const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto calls = calls_.find(call.thread_);
  if (calls == calls_.end())
    return;
  auto& waiting = calls->second.waiting;
  const auto found = find(waiting, call);
  if (found == waiting.end())
    return;
  calls->second.bytes -= found->kept.bytes;
  waiting.erase(found);
  if (waiting.empty())
    calls_.erase(calls);
}

PendingCalls::Others PendingCalls::begin_backward(const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto calls = calls_.find(call.thread_);
  if (calls == calls_.end())
    return {};
  if (!calls->second.returned.empty())
    find_others(calls->second);
  const auto found = find(calls->second.waiting, call);
  return found == calls->second.waiting.end() ? Others{} : found->others;
}

void PendingCalls::find_others(CallsOfThread& calls) {
  // What has waited longer is a result that the program keeps, such as one that it printed.
  constexpr uint64_t kMostBackwards = 32;
  // A plan is of no use to calls of others that keep so many times as much.
  constexpr double kNegligible = 16.0;
  struct OfPlan {
    double planned_bytes = 0.0;
    double bytes = 0.0;    // of all its calls
    double largest = 0.0;  // of one of them
    double most = 0.0;     // of all calls at once, while one of them waited
  };
  double kept_for_long = 0.0;
  for (auto& each : calls.waiting) {
    if (each.num_backwards++ >= kMostBackwards)
      kept_for_long += each.kept.bytes;
  }
  std::map<CallerBehavior*, OfPlan> plans;
  double most = calls.bytes;  // since the call at hand has returned
  auto returned = calls.returned.rbegin();
  for (auto each = calls.waiting.rbegin(); each != calls.waiting.rend(); ++each) {
    for (; returned != calls.returned.rend() && returned->first >= each->number; ++returned)
      most = std::max(most, returned->second);
    if (each->num_backwards > kMostBackwards)
      continue;
    auto& plan = plans[each->kept.caller.get()];
    plan.planned_bytes = each->kept.planned_bytes;
    plan.bytes += each->kept.bytes;
    plan.largest = std::max(plan.largest, each->kept.bytes);
    plan.most = std::max(plan.most, most - kept_for_long);
  }
  double largest_plan = 0.0;
  for (const auto& [caller, plan] : plans)
    largest_plan = std::max(largest_plan, plan.bytes);
  // Each plan leaves room for what the others keep if they make as much again as it does. Its
  // largest call has the least beside it, and needs the most itself.
  std::map<CallerBehavior*, double> like_planned;
  for (const auto& [caller, plan] : plans) {
    const bool counts = plan.planned_bytes > 0.0 && largest_plan <= kNegligible * plan.bytes;
    like_planned[caller] = counts ? (plan.most - plan.largest) / plan.planned_bytes : 0.0;
    caller->see_other_calls(like_planned[caller]);
  }
  int64_t num_earlier = 0;
  uint64_t first_earlier = 0;
  int64_t num_later = 0;
  for (const auto& each : calls.waiting)
    num_later += each.num_backwards <= kMostBackwards ? 1 : 0;
  for (auto& each : calls.waiting) {
    if (each.num_backwards > kMostBackwards)
      continue;
    --num_later;
    if (each.num_backwards == 1)
      each.others = {num_earlier, first_earlier, num_later > 0,
                     like_planned[each.kept.caller.get()]};
    if (num_earlier++ == 0)
      first_earlier = each.number;
  }
  calls.returned.clear();
}

}  // namespace aten_recompute
