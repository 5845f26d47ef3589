#include "planner/model/simulator.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>

namespace aten_recompute {
namespace {

// Finds the peaks of a run, and sums what exceeds a limit: each step of the first slot counts by
// itself, each other slot with its worst step.
class PeakCount {
 public:
  PeakCount(const Problem& problem, int64_t limit_bytes)
      : problem_(problem), limit_bytes_(limit_bytes) {}

  // Needs to be called from the last step to the first. `index` is that of the step.
  void add(size_t index, const Step& step, int64_t bytes) {
    if (bytes > found_.peak_bytes) {
      found_.peak_bytes = bytes;
      found_.peak_step = static_cast<int32_t>(index);
    }
    if (problem_.is_before_loss(step.slot))
      found_.forward_peak_bytes = std::max(found_.forward_peak_bytes, bytes);
    if (step.slot == 0 || step.slot != slot_)
      close_slot();
    slot_ = step.slot;
    peak_bytes_ = std::max(peak_bytes_, bytes);
  }

  // Writes what was found into `result`.
  void finish(Simulation& result) {
    close_slot();
    result.peak_bytes = found_.peak_bytes;
    result.peak_step = found_.peak_step;
    result.forward_peak_bytes = found_.forward_peak_bytes;
    result.excess = total_;
  }

 private:
  void close_slot() {
    if (peak_bytes_ > limit_bytes_)
      total_ += static_cast<double>(peak_bytes_ - limit_bytes_);
    peak_bytes_ = 0;
  }

  const Problem& problem_;
  int64_t limit_bytes_;
  Simulation found_;
  int32_t slot_ = -1;
  int64_t peak_bytes_ = 0;
  double total_ = 0.0;
};

}  // namespace

Simulator::State::State(const Problem& problem)
    : life(problem.num_values()),
      references(problem.num_storages()),
      is_rerun(problem.num_all_nodes()) {}

Simulator::Simulator(const Problem& problem)
    : problem_(problem),
      tables_(problem),
      incoming_bytes_(problem.incoming_bytes()),
      scheduler_(problem),
      state_(problem),
      run_{RetentionPlan(problem), {}, {}, {}, std::vector<uint8_t>(problem.num_values(), 0)} {}

// Counts the memory of a value as alive, unless another value alive lies in it.
inline void Simulator::add(int32_t value, int64_t own_bytes) {
  if (own_bytes >= 0) {
    state_.alive_bytes += own_bytes;
    return;
  }
  for (auto storage : tables_.storages[value]) {
    if (state_.references[storage]++ == 0)
      state_.alive_bytes += problem_.bytes[storage];
  }
}

inline void Simulator::remove(int32_t value, int64_t own_bytes) {
  state_.life[value] = kDead;
  if (own_bytes >= 0) {
    state_.alive_bytes -= own_bytes;
    return;
  }
  for (auto storage : tables_.storages[value]) {
    if (--state_.references[storage] == 0)
      state_.alive_bytes -= problem_.bytes[storage];
  }
}

inline void Simulator::keep(int32_t value) {
  if (state_.life[value])
    return;
  state_.life[value] = kAlive;
  add(value, tables_.own_bytes[value]);
}

// Returns whether the backward makes `value`, or what it views, again.
bool Simulator::is_recomputed(int32_t value) const {
  const auto bases = scheduler_.tables().base_values[value];
  return std::any_of(bases.begin(), bases.end(), [&](int32_t base) {
    return (run_.schedule.is_recomputed[base] & kRecomputedAfterLoss) != 0;
  });
}

// Returns the bytes of results that the caller holds while the backward makes a copy of them.
int64_t Simulator::bytes_of_copied_results() const {
  std::vector<int32_t> storages;
  for (auto value : tables_.forward_results) {
    const auto own = tables_.storages[value];
    if (!own.empty() && is_recomputed(value) && !tables_.is_freed_before_backward[value])
      storages.insert(storages.end(), own.begin(), own.end());
  }
  std::sort(storages.begin(), storages.end());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  int64_t bytes = 0;
  for (auto storage : storages)
    bytes += problem_.bytes[storage];
  return bytes;
}

// Begins the walk at the end of the step. Results that the backward recomputes are counted
// separately, because the caller's and the backward's are two copies. With `retains_graph`, what
// the backward reads of the forward is there, too.
void Simulator::begin_with_results(bool retains_graph) {
  std::fill(state_.life.begin(), state_.life.end(), kDead);
  std::fill(state_.references.begin(), state_.references.end(), 0);
  std::fill(state_.is_rerun.begin(), state_.is_rerun.end(), 0);
  state_.alive_bytes = 0;
  state_.at_loss_bytes = 0;
  state_.copied_results_bytes = bytes_of_copied_results();
  for (auto value : tables_.backward_results)
    keep(value);
  state_.gradient_bytes = state_.alive_bytes;
  for (auto value : tables_.forward_results) {
    if (!is_recomputed(value) && !tables_.is_freed_before_backward[value])
      keep(value);
  }
  state_.alive_bytes += state_.copied_results_bytes;
  state_.end_bytes = state_.alive_bytes;
  state_.alive_bytes += problem_.held_by_caller;
  state_.freed_bytes = 0;
  if (retains_graph)
    keep_captured();
}

// Keeps what the backward reads of the forward.
void Simulator::keep_captured() {
  const auto& steps = run_.schedule.steps;
  for (size_t i = steps.size(); i-- > 0 && !problem_.is_before_loss(steps[i].slot);) {
    const auto& node = tables_.nodes[steps[i].node];
    for (auto k = node.reads.begin; k < node.reads.end; ++k) {
      const auto value = tables_.reads[k].value;
      const auto producer = problem_.producer[value];
      if (producer >= 0 && problem_.in_forward(producer) && !is_recomputed(value))
        keep(value);
    }
  }
}

// Goes from the beginning of the backward to the end of the forward, past the loss.
void Simulator::turn_to_forward(Simulation& result) {
  state_.alive_bytes -= state_.copied_results_bytes;
  run_.captured.assign(state_.life.begin(), state_.life.end());
  for (auto value : tables_.forward_results) {
    if (!is_recomputed(value) && !tables_.is_freed_before_backward[value])
      continue;
    const auto before = state_.alive_bytes;
    keep(value);
    if (tables_.is_freed_before_backward[value])
      state_.freed_bytes += state_.alive_bytes - before;
  }
  // The loss makes the gradients of other calls, too.
  const auto other_gradients = bytes_of_other_calls(incoming_bytes_);
  state_.at_loss_bytes = state_.alive_bytes + problem_.loss_bytes + other_gradients;
  state_.alive_bytes -= problem_.held_by_caller;
  for (auto value : problem_.incoming) {
    run_.captured[value] = false;
    if (state_.life[value])
      remove(value, tables_.own_bytes[value]);
  }
  result.saved_bytes = state_.alive_bytes;
}

// Returns the bytes of outputs that nothing reads: they are freed as soon as the node has run.
inline int64_t Simulator::bytes_of_unread_outputs(const MemoryTables::Node& node,
                                                  uint64_t output_mask) const {
  int64_t bytes = 0;
  for (auto i = node.outputs.begin; i < node.outputs.end; ++i) {
    const auto& output = tables_.outputs[i];
    const bool is_taken = (output_mask & output.output_mask) != 0;
    if (node.is_view || (is_taken && state_.life[output.value]))
      continue;
    if (output.own_bytes >= 0) {
      bytes += output.own_bytes;
      continue;
    }
    for (auto storage : tables_.storages[output.value]) {
      if (state_.references[storage] == 0 || !is_taken)
        bytes += problem_.bytes[storage];
    }
  }
  return bytes;
}

// Adds the values that are read by this node and by no later one, with the given life.
inline void Simulator::read(const MemoryTables::Node& node, Life life) {
  for (auto i = node.reads.begin; i < node.reads.end; ++i) {
    const auto& read = tables_.reads[i];
    if (state_.life[read.value])
      continue;
    state_.life[read.value] = life;
    add(read.value, read.own_bytes);
  }
}

// Returns the bytes of the operand whose memory output 0 takes over; 0 if there is none.
inline int64_t Simulator::bytes_overwritten(const MemoryTables::Node& node,
                                            uint32_t reusable_operands) const {
  if (state_.life[tables_.outputs[node.outputs.begin].value] != kAlive)
    return 0;
  for (auto i = node.overwrites.begin; i < node.overwrites.end; ++i) {
    const auto& other = tables_.overwrites[i];
    if (state_.life[other.value] == kDiesHere &&
        (reusable_operands & other.reusable_operands) != 0 &&
        (tables_.own_bytes[other.value] >= 0 || state_.references[other.storage] == 1)) {
      return other.bytes;
    }
  }
  return 0;
}

// Adds what the step reads to what is alive after it. Returns the bytes alive while it runs.
inline int64_t Simulator::enter_step(const Step& step, const MemoryTables::Node& node) {
  int64_t extra = node.workspace_bytes;
  if (node.replay_bytes > 0 && problem_.runs_again(step.node, step.slot)) {
    extra += node.replay_bytes;  // the generator's present state, which is restored afterward
    if (!state_.is_rerun[step.node])
      state_.alive_bytes += node.replay_bytes;
    state_.is_rerun[step.node] = 1;
  }
  extra += bytes_of_unread_outputs(node, step.output_mask);
  if (node.overwrites.begin == node.overwrites.end) {
    read(node, kAlive);
  } else {
    read(node, kDiesHere);
    extra -= bytes_overwritten(node, step.reusable_operands);
    for (auto i = node.reads.begin; i < node.reads.end; ++i)
      state_.life[tables_.reads[i].value] = kAlive;
  }
  return state_.alive_bytes + extra;
}

// Removes what the step makes: before the step it does not exist.
inline void Simulator::leave_step(const Step& step, const MemoryTables::Node& node) {
  if (node.replay_bytes > 0 && state_.is_rerun[step.node] &&
      !problem_.runs_again(step.node, step.slot))
    state_.alive_bytes -= node.replay_bytes;
  for (auto i = node.outputs.begin; i < node.outputs.end; ++i) {
    const auto& output = tables_.outputs[i];
    if ((step.output_mask & output.output_mask) != 0 && state_.life[output.value])
      remove(output.value, output.own_bytes);
  }
}

// Walks from the last step to the first: a value is alive from the run that made it to its last
// read.
Simulation Simulator::walk(int64_t limit_bytes, bool retains_graph) {
  Simulation result;
  const auto& steps = run_.schedule.steps;
  auto& step_bytes = run_.step_bytes;
  step_bytes.resize(steps.size());
  begin_with_results(retains_graph);
  PeakCount count(problem_, limit_bytes);
  double seconds = 0.0;
  bool in_backward = true;
  for (size_t i = steps.size(); i-- > 0;) {
    const auto& step = steps[i];
    const auto& node = tables_.nodes[step.node];
    const bool is_forward = problem_.is_before_loss(step.slot);
    if (is_forward && in_backward) {
      in_backward = false;
      turn_to_forward(result);
    }
    seconds += node.seconds;
    // The loss counts with the forward's last step.
    const auto bytes = std::max(state_.at_loss_bytes, enter_step(step, node));
    state_.at_loss_bytes = 0;
    step_bytes[i] = bytes;
    count.add(i, step, bytes);
    leave_step(step, node);
  }
  count.finish(result);
  result.recompute_seconds = seconds - tables_.base_seconds;
  return result;
}

Simulation Simulator::walk_all(int64_t limit_bytes) {
  auto result = walk(limit_bytes, /*retains_graph=*/false);
  run_.other_bytes.clear();
  if (problem_.other_calls > 0.0 || problem_.retains_graph)
    add_others(result, limit_bytes);
  return result;
}

// Returns what other calls hold, if each holds so many bytes.
int64_t Simulator::bytes_of_other_calls(int64_t bytes) const {
  return static_cast<int64_t>(problem_.other_calls * static_cast<double>(bytes));
}

// Adds to each step what other calls and backwards hold. How much the calls keep is known at the
// end of the walk.
void Simulator::add_others(Simulation& result, int64_t limit_bytes) {
  const auto& steps = run_.schedule.steps;
  const auto alone = run_.step_bytes;
  if (problem_.retains_graph)
    add_retained_graph();
  if (problem_.other_calls > 0.0)
    add_other_calls(result.saved_bytes);
  PeakCount count(problem_, limit_bytes);
  run_.other_bytes.resize(steps.size());
  for (size_t i = steps.size(); i-- > 0;) {
    run_.other_bytes[i] = run_.step_bytes[i] - alone[i];
    count.add(i, steps[i], run_.step_bytes[i]);
  }
  count.finish(result);
}

// The first backward leaves what it has read in memory. A second one releases that, and finds the
// gradients of the first.
void Simulator::add_retained_graph() {
  const auto& steps = run_.schedule.steps;
  auto of_second = run_.step_bytes;
  const auto handed_on = handed_on_bytes();
  walk(std::numeric_limits<int64_t>::max(), /*retains_graph=*/true);
  add_dropped_captures();
  for (size_t i = 0; problem_.repeats_backward && i < steps.size(); ++i) {
    if (!problem_.is_before_loss(steps[i].slot))
      of_second[i] += state_.gradient_bytes - handed_on[i];
    run_.step_bytes[i] = std::max(run_.step_bytes[i], of_second[i]);
  }
}

// A retained graph holds values, too, that the backward drops and makes again: the walk counts the
// new ones.
void Simulator::add_dropped_captures() {
  const auto& steps = run_.schedule.steps;
  const auto begin = static_cast<size_t>(
      std::find_if(steps.begin(), steps.end(),
                   [&](const Step& step) { return !problem_.is_before_loss(step.slot); }) -
      steps.begin());
  struct Capture {
    size_t dropped_after = 0;  // step; the walk counts the memory until then
    bool is_made_again = false;
  };
  std::unordered_map<int32_t, Capture> captures;  // by storage
  for (size_t value = 0; value < run_.captured.size(); ++value) {
    if (run_.captured[value] == 0 || !is_recomputed(static_cast<int32_t>(value)))
      continue;
    for (auto storage : tables_.storages[value])
      captures[storage] = {begin, false};
  }
  const auto for_each_capture = [&](int32_t value, const auto& see) {
    for (auto storage : tables_.storages[value]) {
      if (const auto found = captures.find(storage); found != captures.end())
        see(found->second);
    }
  };
  for (size_t i = begin; i < steps.size(); ++i) {
    const auto& node = tables_.nodes[steps[i].node];
    for (auto k = node.reads.begin; k < node.reads.end; ++k) {
      for_each_capture(tables_.reads[k].value, [&](Capture& capture) {
        if (!capture.is_made_again)
          capture.dropped_after = i + 1;
      });
    }
    for (auto k = node.outputs.begin; k < node.outputs.end && !node.is_view; ++k) {
      for_each_capture(tables_.outputs[k].value,
                       [](Capture& capture) { capture.is_made_again = true; });
    }
  }
  for (const auto& [storage, capture] : captures) {
    for (size_t i = capture.dropped_after; i < steps.size(); ++i)
      run_.step_bytes[i] += problem_.bytes[storage];
  }
}

// Returns, per step after the loss, the bytes of the gradients of parameters that have been handed
// on when it begins: that is after the last step that makes or reads one.
std::vector<int64_t> Simulator::handed_on_bytes() const {
  const auto& steps = run_.schedule.steps;
  std::vector<bool> is_result(problem_.num_values(), false);
  for (auto value : tables_.backward_results)
    is_result[value] = true;
  std::vector<int64_t> added(problem_.num_values(), 0);  // bytes that are added, until seen
  int64_t handed_on = 0;
  for (auto value : problem_.added_results) {
    if (is_result[value] && tables_.own_bytes[value] > 0)
      handed_on += added[value] = tables_.own_bytes[value];
  }
  const auto see = [&](int32_t value) { handed_on -= std::exchange(added[value], 0); };
  std::vector<int64_t> bytes(steps.size(), 0);
  for (size_t i = steps.size(); i-- > 0 && !problem_.is_before_loss(steps[i].slot);) {
    const auto& node = tables_.nodes[steps[i].node];
    for (auto k = node.reads.begin; k < node.reads.end; ++k)
      see(tables_.reads[k].value);
    for (auto k = node.outputs.begin; k < node.outputs.end; ++k)
      see(tables_.outputs[k].value);
    bytes[i] = handed_on;
  }
  return bytes;
}

// In the forward and in its own backward, this call is the last one: all others wait. In the
// backward of the one before, which is like it, one fewer waits, and the gradients of this call are
// there. Those of parameters are added to them, so what the backward under way has handed on needs
// no memory beside them.
void Simulator::add_other_calls(int64_t saved_bytes) {
  const auto& steps = run_.schedule.steps;
  const auto waiting_bytes = saved_bytes - state_.freed_bytes + incoming_bytes_;
  const auto of_all = bytes_of_other_calls(waiting_bytes);
  const auto of_all_but_one =
      problem_.retains_graph ? of_all : std::max<int64_t>(0, of_all - waiting_bytes);
  const auto handed_on = handed_on_bytes();
  for (size_t i = 0; i < steps.size(); ++i) {
    run_.step_bytes[i] += problem_.is_before_loss(steps[i].slot)
                              ? bytes_of_other_calls(saved_bytes)
                              : std::max(of_all, of_all_but_one + state_.end_bytes - handed_on[i]);
  }
}

Simulation Simulator::run(const RetentionPlan& plan, int64_t limit_bytes) {
  run_.plan = plan;
  if (scheduler_.run(run_.plan, run_.schedule, max_steps_))
    return walk_all(limit_bytes);
  run_.step_bytes.clear();
  run_.other_bytes.clear();
  Simulation endless;
  endless.peak_bytes = std::numeric_limits<int64_t>::max();
  endless.recompute_seconds = endless.excess = std::numeric_limits<double>::infinity();
  return endless;
}

PeakStep Simulator::peak(const Simulation& simulation) {
  const auto& steps = run_.schedule.steps;
  if (steps.empty())
    return {};
  begin_with_results(/*retains_graph=*/false);
  Simulation ignored;
  bool in_backward = true;
  for (size_t i = steps.size(); i-- > 0;) {
    const auto& step = steps[i];
    const auto& node = tables_.nodes[step.node];
    if (problem_.is_before_loss(step.slot) && in_backward) {
      in_backward = false;
      turn_to_forward(ignored);
    }
    if (i == static_cast<size_t>(simulation.peak_step)) {
      auto peak = describe_peak(simulation);
      peak.step = simulation.peak_step;
      peak.node = step.node;
      return peak;
    }
    enter_step(step, node);
    state_.at_loss_bytes = 0;
    leave_step(step, node);
  }
  return {};
}

// Returns the bytes of the memory that these values lie in and `except` do not.
int64_t Simulator::bytes_of(const std::vector<int32_t>& values,
                            const std::vector<int32_t>& except) const {
  std::set<int32_t> storages;
  for (auto value : values)
    storages.insert(tables_.storages[value].begin(), tables_.storages[value].end());
  for (auto value : except) {
    for (auto storage : tables_.storages[value])
      storages.erase(storage);
  }
  int64_t bytes = 0;
  for (auto storage : storages)
    bytes += problem_.bytes[storage];
  return bytes;
}

// Describes the step that the walk has come to and not entered yet, which is the peak.
PeakStep Simulator::describe_peak(const Simulation& simulation) {
  PeakStep peak;
  const auto& step = run_.schedule.steps[simulation.peak_step];
  const auto bytes = simulation.peak_bytes;
  const auto of_others = run_.other_bytes.empty() ? 0 : run_.other_bytes[simulation.peak_step];
  if (state_.at_loss_bytes > 0 && state_.at_loss_bytes + of_others == bytes) {
    peak.at_loss = true;
    peak.operand_bytes = bytes_of(tables_.forward_results, {});
    peak.workspace_bytes = problem_.loss_bytes;
    peak.other_bytes = bytes - peak.operand_bytes - peak.workspace_bytes;
    return peak;
  }
  const auto& node = tables_.nodes[step.node];
  std::vector<int32_t> own;  // what the node reads, then what it makes, too
  for (auto i = node.reads.begin; i < node.reads.end; ++i)
    own.push_back(tables_.reads[i].value);
  peak.operand_bytes = bytes_of(own, {});
  for (auto i = node.outputs.begin; !node.is_view && i < node.outputs.end; ++i)
    own.push_back(tables_.outputs[i].value);
  peak.result_bytes = bytes_of(own, {}) - peak.operand_bytes;
  peak.workspace_bytes = node.workspace_bytes;
  if (node.replay_bytes > 0 && problem_.runs_again(step.node, step.slot))
    peak.workspace_bytes += node.replay_bytes;
  peak.alone_bytes = peak.operand_bytes + peak.result_bytes + peak.workspace_bytes;
  add_held_results(peak, step, own);
  if (node.overwrites.begin != node.overwrites.end) {
    peak.alone_bytes -= tables_.overwrites[node.overwrites.begin].bytes;  // equal for all of them
    read(node, kDiesHere);
    peak.result_bytes -= bytes_overwritten(node, step.reusable_operands);
  }
  peak.other_bytes = bytes - peak.operand_bytes - peak.result_bytes - peak.workspace_bytes;
  return peak;
}

// Adds what is alive in the step for the caller, not for the step (`own`) or a later one.
void Simulator::add_held_results(PeakStep& peak, const Step& step,
                                 const std::vector<int32_t>& own) const {
  const auto alive = [&](const std::vector<int32_t>& values) {
    std::vector<int32_t> found;
    std::copy_if(values.begin(), values.end(), std::back_inserter(found),
                 [&](int32_t value) { return state_.life[value] != kDead; });
    return found;
  };
  peak.gradient_bytes = bytes_of(alive(tables_.backward_results), own);
  if (problem_.is_before_loss(step.slot))
    return;
  const auto& base_values = scheduler_.tables().base_values;
  const auto is_read = read_by_backward(problem_, base_values);
  auto outputs = alive(tables_.forward_results);
  std::erase_if(outputs, [&](int32_t value) {
    const auto bases = base_values[value];
    return std::any_of(bases.begin(), bases.end(), [&](int32_t base) { return is_read[base]; });
  });
  peak.output_bytes = bytes_of(outputs, own) + state_.copied_results_bytes;
}

}  // namespace aten_recompute
