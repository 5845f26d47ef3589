#include "planner/model/simulator.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace aten_recompute {
namespace {

// Sums what exceeds a limit: each step of the first slot counts by itself, each other slot with its
// worst step.
class ExcessSum {
 public:
  explicit ExcessSum(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  void add(const Step& step, int64_t bytes) {
    if (step.slot == 0 || step.slot != slot_)
      close_slot();
    slot_ = step.slot;
    peak_bytes_ = std::max(peak_bytes_, bytes);
  }

  double total() {
    close_slot();
    return total_;
  }

 private:
  void close_slot() {
    if (peak_bytes_ > limit_bytes_)
      total_ += static_cast<double>(peak_bytes_ - limit_bytes_);
    peak_bytes_ = 0;
  }

  int64_t limit_bytes_;
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
      scheduler_(problem),
      state_(problem),
      run_{RetentionPlan(problem), {}, {}, std::vector<uint8_t>(problem.num_values(), 0)} {}

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
// separately, because the caller's and the backward's are two copies.
void Simulator::begin_with_results() {
  std::fill(state_.life.begin(), state_.life.end(), kDead);
  std::fill(state_.references.begin(), state_.references.end(), 0);
  std::fill(state_.is_rerun.begin(), state_.is_rerun.end(), 0);
  state_.alive_bytes = 0;
  state_.at_loss_bytes = 0;
  state_.copied_results_bytes = bytes_of_copied_results();
  for (auto value : tables_.backward_results)
    keep(value);
  for (auto value : tables_.forward_results) {
    if (!is_recomputed(value) && !tables_.is_freed_before_backward[value])
      keep(value);
  }
  state_.alive_bytes += state_.copied_results_bytes + problem_.held_by_caller;
}

// Goes from the beginning of the backward to the end of the forward, past the loss.
void Simulator::turn_to_forward(Simulation& result) {
  state_.alive_bytes -= state_.copied_results_bytes;
  run_.captured.assign(state_.life.begin(), state_.life.end());
  for (auto value : tables_.forward_results) {
    if (is_recomputed(value) || tables_.is_freed_before_backward[value])
      keep(value);
  }
  state_.at_loss_bytes = state_.alive_bytes + problem_.loss_bytes;
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
Simulation Simulator::walk(int64_t limit_bytes) {
  Simulation result;
  const auto& steps = run_.schedule.steps;
  auto& step_bytes = run_.step_bytes;
  step_bytes.resize(steps.size());
  begin_with_results();
  ExcessSum excess(limit_bytes);
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
    excess.add(step, bytes);
    if (bytes > result.peak_bytes) {
      result.peak_bytes = bytes;
      result.peak_step = static_cast<int32_t>(i);
    }
    if (is_forward)
      result.forward_peak_bytes = std::max(result.forward_peak_bytes, bytes);
    leave_step(step, node);
  }
  result.excess = excess.total();
  result.recompute_seconds = seconds - tables_.base_seconds;
  return result;
}

Simulation Simulator::run(const RetentionPlan& plan, int64_t limit_bytes) {
  run_.plan = plan;
  if (scheduler_.run(run_.plan, run_.schedule, max_steps_))
    return walk(limit_bytes);
  run_.step_bytes.clear();
  Simulation endless;
  endless.peak_bytes = std::numeric_limits<int64_t>::max();
  endless.recompute_seconds = endless.excess = std::numeric_limits<double>::infinity();
  return endless;
}

PeakStep Simulator::peak(const Simulation& simulation) {
  const auto& steps = run_.schedule.steps;
  if (steps.empty())
    return {};
  begin_with_results();
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
      auto peak = describe_peak(step, simulation.peak_bytes);
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

// Describes the step that the walk has come to and not entered yet. `bytes` are alive in it.
PeakStep Simulator::describe_peak(const Step& step, int64_t bytes) {
  PeakStep peak;
  if (state_.at_loss_bytes > 0 && state_.at_loss_bytes == bytes) {
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
