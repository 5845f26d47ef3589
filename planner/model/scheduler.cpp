#include "planner/model/scheduler.h"

#include <algorithm>

namespace aten_recompute {

Scheduler::State::State(const Problem& problem)
    : last_use(problem.num_values()),
      is_pending(problem.num_all_nodes()),
      is_wanted(problem.num_all_nodes()) {}

Scheduler::Scheduler(const Problem& problem)
    : problem_(problem),
      tables_(problem),
      tracked_(problem, tables_, tables_.recomputable),
      state_(problem) {}

void Scheduler::drops_only(const std::vector<int32_t>& values) {
  // Where nodes of the forward are served, plans drop what the backward does not read in the slot
  // of its last use.
  if (problem_.num_served_forward == 0)
    tracked_ = TrackedValues(problem_, tables_, values);
}

// Returns the availability of what the current slot makes.
uint8_t Scheduler::made_now() const {
  return problem_.is_before_loss(state_.slot) ? kFromForward : kFromBackward;
}

// Records that the current slot uses the base values of `value`.
void Scheduler::note_use(int32_t value, Schedule& schedule) {
  const auto first = tracked_.first_base[value];
  if (first < 0)
    return;
  const auto slot = state_.slot;
  const auto note_base = [&](int32_t base) {
    auto& last_use = state_.last_use[base];
    if (last_use == slot)
      return;
    schedule.gaps.push_back({base, last_use, slot, state_.available[base] == kAbsent});
    last_use = slot;
    state_.used_in_slot.push_back(base);
  };
  if (first == value) {
    note_base(value);
    return;
  }
  for (auto base : tracked_.bases[value])
    note_base(base);
}

// Returns the node that recomputes `value`: the one that the plan chooses, unless that is an
// alternative that makes only other outputs.
int32_t Scheduler::node_for(int32_t value, const RetentionPlan& plan) const {
  const auto producer = problem_.producer[value];
  const auto chosen = plan.chosen(producer);
  if (chosen == producer)
    return problem_.again_of(producer);
  const auto outputs = problem_.outputs[chosen];
  return std::find(outputs.begin(), outputs.end(), value) != outputs.end() ? chosen : producer;
}

// Adds the nodes that have to run for `value` to be in memory to the reruns.
void Scheduler::require(int32_t value, const RetentionPlan& plan, Schedule& schedule) {
  auto& stack = state_.stack;
  stack.push_back(value);
  while (!stack.empty()) {
    const auto next = stack.back();
    stack.pop_back();
    note_use(next, schedule);
    const auto producer = problem_.producer[next];
    if (state_.available[next] != kAbsent) {
      if (producer >= 0 && problem_.optional[producer])
        state_.is_wanted[producer] = 1;
      continue;
    }
    const auto node = node_for(next, plan);
    if (state_.is_pending[node])
      continue;
    state_.is_pending[node] = 1;
    state_.reruns.push_back({producer, node});
    for (auto input : tracked_.needs[node])
      stack.push_back(input);
  }
}

void Scheduler::add_rerun(int32_t node, Schedule& schedule) {
  uint64_t output_mask = 0;
  const auto outputs = problem_.outputs[node];
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (state_.available[outputs[k]] == kAbsent)
      output_mask |= output_bit(k);
  }
  schedule.steps.push_back({node, state_.slot, output_mask, reusable_operands(node)});
  for (auto output : outputs) {
    if (state_.available[output] != kAbsent)
      continue;
    state_.available[output] = made_now();
    schedule.is_recomputed[output] |=
        problem_.is_before_loss(state_.slot) ? kRecomputedBeforeLoss : kRecomputedAfterLoss;
    note_made(output);
  }
}

// Outputs that nobody asked for can be dropped at the end of the slot, too.
void Scheduler::note_made(int32_t output) {
  if (!tracked_.is_tracked[output] || state_.last_use[output] == state_.slot)
    return;
  state_.last_use[output] = state_.slot;
  state_.used_in_slot.push_back(output);
}

// Returns Step::reusable_operands for a run of `node` in the current slot.
uint32_t Scheduler::reusable_operands(int32_t node) const {
  if (problem_.is_one_program || problem_.is_before_loss(state_.slot) ||
      !tables_.may_overwrite_forward[node])
    return ~uint32_t{0};
  const auto values = problem_.overwrites[node];
  uint32_t mask = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const auto bases = tables_.base_values[values[k]];
    if (std::all_of(bases.begin(), bases.end(),
                    [&](int32_t base) { return state_.available[base] == kFromBackward; })) {
      mask |= uint32_t{1} << k;
    }
  }
  return mask;
}

bool Scheduler::is_viewed_by_backward(int32_t base) const {
  const auto spans = tables_.view_spans[base];
  for (size_t i = 0; i < spans.size(); i += 2) {
    if (spans[i] <= state_.slot && state_.slot < spans[i + 1])
      return true;
  }
  return false;
}

bool Scheduler::stays_once_made_again(int32_t base) const {
  if (problem_.again.empty())
    return false;
  const auto producer = problem_.producer[base];
  return producer >= 0 && problem_.again_of(producer) != producer;
}

// Drops, at the end of the current slot, the values that the plan drops there, or in an earlier
// slot after which idle nodes have run.
void Scheduler::drop_values(const RetentionPlan& plan) {
  for (auto base : state_.used_in_slot) {
    const auto last_use = static_cast<size_t>(state_.last_use[base]);
    if (!plan.dropped(base, last_use) || is_viewed_by_backward(base) || stays_once_made_again(base))
      continue;
    if (tables_.stays_before_loss[base] == 0 || !problem_.is_before_loss(state_.slot))
      drop(base);
  }
  state_.used_in_slot.clear();
}

// Views go with what they view, apart from those that nothing can make again.
void Scheduler::drop(int32_t base) {
  state_.available[base] = kAbsent;
  for (auto view : tables_.views[base]) {
    if (problem_.recomputable[problem_.producer[view]])
      state_.available[view] = kAbsent;
  }
}

void Scheduler::pass_loss() {
  for (auto value : tables_.absent_after_loss)
    state_.available[value] = kAbsent;
}

void Scheduler::reset(const RetentionPlan& plan, Schedule& schedule) {
  schedule.steps.assign(tables_.first_steps.begin(), tables_.first_steps.end());
  schedule.gaps.clear();
  schedule.is_recomputed.assign(problem_.num_values(), 0);
  if (tables_.any_optional)
    std::fill(state_.is_wanted.begin(), state_.is_wanted.end(), 0);
  std::fill(state_.last_use.begin(), state_.last_use.end(), 0);
  state_.used_in_slot.clear();
  state_.available = tables_.available_at_start;
  const bool has_views = problem_.num_served_forward > 0;  // the backward makes its own
  for (auto value : tables_.recomputable) {
    if (!plan.dropped_in_first_slot(value) || tables_.stays_before_loss[value] != 0)
      continue;
    if (has_views)
      drop(value);
    else
      state_.available[value] = kAbsent;
  }
}

// Runs a served node, and before it what has to be recomputed for it.
void Scheduler::run_slot(int32_t node, const RetentionPlan& plan, Schedule& schedule) {
  // What a plan chooses for a node of the forward is for later runs.
  const auto chosen = problem_.in_forward(node) ? node : plan.chosen(node);
  for (auto input : tracked_.needs[chosen])
    require(input, plan, schedule);
  auto& reruns = state_.reruns;
  if (!reruns.empty()) {
    std::sort(reruns.begin(), reruns.end(), [](const Rerun& a, const Rerun& b) {
      return a.position != b.position ? a.position < b.position : a.node < b.node;
    });
    for (const auto& rerun : reruns) {
      add_rerun(rerun.node, schedule);
      state_.is_pending[rerun.node] = 0;
    }
    reruns.clear();
  }
  schedule.steps.push_back({chosen, state_.slot, ~uint64_t{0}, reusable_operands(chosen)});
  for (auto output : problem_.outputs[chosen]) {
    state_.available[output] = made_now();
    if (problem_.in_forward(node))
      note_made(output);
  }
  if (!tables_.is_idle[static_cast<size_t>(node) + 1])
    drop_values(plan);
}

// Removes the first runs of optional forward nodes that nothing reads.
void Scheduler::leave_out_unwanted(Schedule& schedule) const {
  std::erase_if(schedule.steps, [&](const Step& step) {
    return problem_.optional[step.node] && !state_.is_wanted[step.node] &&
           problem_.in_forward(step.node) && !problem_.runs_again(step.node, step.slot);
  });
}

bool Scheduler::run(const RetentionPlan& plan, Schedule& schedule, size_t max_steps) {
  reset(plan, schedule);
  const auto num_first = schedule.steps.size();
  for (auto node = problem_.first_served(); node < problem_.num_nodes; ++node) {
    state_.slot = problem_.slot_of(node);
    if (node == problem_.num_forward)
      pass_loss();
    run_slot(static_cast<int32_t>(node), plan, schedule);
    if (schedule.steps.size() - num_first > max_steps) {
      schedule.steps.clear();
      schedule.gaps.clear();
      return false;
    }
  }
  if (tables_.any_optional)
    leave_out_unwanted(schedule);
  return true;
}

}  // namespace aten_recompute
