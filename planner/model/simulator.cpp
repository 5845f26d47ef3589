#include "planner/model/simulator.h"

#include <algorithm>

namespace aten_recompute {

Simulator::Simulator(const Problem& problem)
    : problem_(problem), scheduler_(problem), base_seconds_(problem.base_seconds()) {
  find_storages();
  for (size_t node = 0; node < problem.num_all_nodes(); ++node)
    describe(static_cast<int32_t>(node));
  for (auto value : problem.results) {
    const auto producer = problem.producer[value];
    const bool backward = producer >= 0 && !problem.in_forward(producer);
    (backward ? backward_results_ : forward_results_).push_back(value);
  }
  live_.resize(problem.num_values());
  captured_.resize(problem.num_values());
  references_.resize(problem.num_storages());
}

void Simulator::find_storages() {
  std::vector<int32_t> row;
  std::vector<int32_t> num_values(problem_.num_storages(), 0);
  for (size_t value = 0; value < problem_.num_values(); ++value) {
    row.clear();
    for (auto storage : problem_.storages[value]) {
      if (!problem_.held[storage] && problem_.bytes[storage] > 0) {
        row.push_back(storage);
        ++num_values[storage];
      }
    }
    storages_.push_back(row);
  }
  for (size_t value = 0; value < problem_.num_values(); ++value) {
    const auto storages = storages_[value];
    const bool own = storages.size() == 1 && num_values[storages[0]] == 1;
    own_bytes_.push_back(own ? problem_.bytes[storages[0]] : -1);
  }
}

void Simulator::describe(int32_t node) {
  const auto& problem = problem_;
  NodeMemory memory;
  memory.seconds = problem.seconds[node];
  memory.workspace_bytes = problem.workspace_bytes[node];
  memory.replay_bytes = problem.replay_bytes[node];
  memory.makes_views = problem.is_view[node] != 0;
  memory.reads.begin = static_cast<int32_t>(reads_.size());
  for (auto value : problem.inputs[node]) {
    const bool again = std::any_of(reads_.begin() + memory.reads.begin, reads_.end(),
                                   [&](const Read& read) { return read.value == value; });
    if (!again && !storages_[value].empty())
      reads_.push_back({value, own_bytes_[value]});
  }
  memory.reads.end = static_cast<int32_t>(reads_.size());

  const auto outputs = problem.outputs[node];
  memory.makes.begin = static_cast<int32_t>(makes_.size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!storages_[outputs[k]].empty())
      makes_.push_back({outputs[k], output_bit(k), own_bytes_[outputs[k]]});
  }
  memory.makes.end = static_cast<int32_t>(makes_.size());

  memory.overwrites.begin = static_cast<int32_t>(overwrites_.size());
  const auto candidates = problem.overwrites[node];
  for (size_t k = 0; k < candidates.size(); ++k) {
    const auto own = storages_[outputs[0]];
    const auto other = storages_[candidates[k]];
    const bool single = own.size() == 1 && problem.storages[outputs[0]].size() == 1 &&
                        other.size() == 1 && problem.storages[candidates[k]].size() == 1;
    if (single && own[0] != other[0] && problem.bytes[own[0]] == problem.bytes[other[0]]) {
      overwrites_.push_back({candidates[k], other[0], uint32_t{1} << k, problem.bytes[other[0]]});
    }
  }
  memory.overwrites.end = static_cast<int32_t>(overwrites_.size());
  nodes_.push_back(memory);
}

void Simulator::add(int32_t value, int64_t own_bytes) {
  if (own_bytes >= 0) {
    alive_ += own_bytes;
    return;
  }
  for (auto storage : storages_[value]) {
    if (references_[storage]++ == 0)
      alive_ += problem_.bytes[storage];
  }
}

void Simulator::remove(int32_t value, int64_t own_bytes) {
  live_[value] = kDead;
  if (own_bytes >= 0) {
    alive_ -= own_bytes;
    return;
  }
  for (auto storage : storages_[value]) {
    if (--references_[storage] == 0)
      alive_ -= problem_.bytes[storage];
  }
}

bool Simulator::is_freed_before_backward(int32_t value) const {
  const auto& freed_before_backward = problem_.freed_before_backward;
  return std::find(freed_before_backward.begin(), freed_before_backward.end(), value) !=
         freed_before_backward.end();
}

// Of results that the backward makes again.
int64_t Simulator::bytes_held_beside() const {
  std::vector<int32_t> storages;
  for (auto value : forward_results_) {
    const auto own = storages_[value];
    if (!own.empty() && scheduler_.is_made_again(value) && !is_freed_before_backward(value))
      storages.insert(storages.end(), own.begin(), own.end());
  }
  std::sort(storages.begin(), storages.end());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  int64_t bytes = 0;
  for (auto storage : storages)
    bytes += problem_.bytes[storage];
  return bytes;
}

// The end of the step. What the caller holds and the backward makes again is there twice until the
// backward begins.
void Simulator::begin_with_results() {
  std::fill(live_.begin(), live_.end(), kDead);
  std::fill(references_.begin(), references_.end(), 0);
  runs_again_.assign(problem_.replay_bytes.size(), 0);
  alive_ = 0;
  at_loss_ = 0;
  held_beside_ = bytes_held_beside();
  const auto keep = [&](int32_t value) {
    if (live_[value])
      return;
    live_[value] = kAlive;
    add(value, own_bytes_[value]);
  };
  for (auto value : backward_results_)
    keep(value);
  for (auto value : forward_results_) {
    if (!scheduler_.is_made_again(value) && !is_freed_before_backward(value))
      keep(value);
  }
  alive_ += held_beside_ + problem_.held_by_caller;
}

// Between backward and forward.
void Simulator::turn_to_forward(Simulation& result) {
  alive_ -= held_beside_;
  captured_.assign(live_.begin(), live_.end());
  for (auto value : forward_results_) {
    if (live_[value] || (!scheduler_.is_made_again(value) && !is_freed_before_backward(value)))
      continue;
    live_[value] = kAlive;
    add(value, own_bytes_[value]);
  }
  at_loss_ = alive_ + problem_.loss_bytes;
  alive_ -= problem_.held_by_caller;
  for (auto value : problem_.incoming) {
    captured_[value] = false;
    if (live_[value])
      remove(value, own_bytes_[value]);
  }
  result.saved_bytes = alive_;
}

// Outputs that nobody reads are freed as soon as they are there.
int64_t Simulator::bytes_made_unread(const NodeMemory& node, uint64_t output_mask) const {
  int64_t bytes = 0;
  for (auto i = node.makes.begin; i < node.makes.end; ++i) {
    const auto& make = makes_[i];
    const bool is_bound = (output_mask & make.output_mask) != 0;
    if (node.makes_views || (is_bound && live_[make.value]))
      continue;
    if (make.own_bytes >= 0) {
      bytes += make.own_bytes;
      continue;
    }
    for (auto storage : storages_[make.value]) {
      if (references_[storage] == 0 || !is_bound)
        bytes += problem_.bytes[storage];
    }
  }
  return bytes;
}

// What is not alive behind this step, and read in it, dies here, and is marked as `life`.
void Simulator::read(const NodeMemory& node, Life life) {
  for (auto i = node.reads.begin; i < node.reads.end; ++i) {
    const auto& read = reads_[i];
    if (live_[read.value])
      continue;
    live_[read.value] = life;
    add(read.value, read.own_bytes);
  }
}

// Of an operand that dies here, and whose memory the first output may have.
int64_t Simulator::bytes_taken_over(const NodeMemory& node, uint32_t reusable_operands) {
  if (live_[makes_[node.makes.begin].value] != kAlive)
    return 0;
  for (auto i = node.overwrites.begin; i < node.overwrites.end; ++i) {
    const auto& other = overwrites_[i];
    if (live_[other.value] == kDiesHere && (reusable_operands & other.reusable_operands) != 0 &&
        (own_bytes_[other.value] >= 0 || references_[other.storage] == 1)) {
      return other.bytes;
    }
  }
  return 0;
}

// From the last step to the first: a value is alive between the run that made it and the last read.
Simulation Simulator::walk(int64_t limit_bytes) {
  Simulation result;
  const auto& steps = scheduler_.steps();
  step_bytes_.resize(steps.size());
  begin_with_results();
  int32_t slot = -1;
  int64_t slot_peak = 0;
  auto close_slot = [&] {
    if (slot_peak > limit_bytes)
      result.excess += static_cast<double>(slot_peak - limit_bytes);
    slot_peak = 0;
  };
  double seconds = 0.0;
  bool in_backward = true;
  for (size_t i = steps.size(); i-- > 0;) {
    const auto& step = steps[i];
    const auto& node = nodes_[step.node];
    const bool forward = step.slot == 0;
    if (forward && in_backward) {
      in_backward = false;
      turn_to_forward(result);
    }
    if (forward || step.slot != slot) {
      close_slot();
      slot = step.slot;
    }
    seconds += node.seconds;

    int64_t extra = node.workspace_bytes;
    if (node.replay_bytes > 0 && !forward && problem_.in_forward(step.node)) {
      extra += node.replay_bytes;  // the generator's present state, which is put back
      if (!runs_again_[step.node])
        alive_ += node.replay_bytes;
      runs_again_[step.node] = 1;
    }
    extra += bytes_made_unread(node, step.output_mask);
    if (node.overwrites.begin == node.overwrites.end) {
      read(node, kAlive);
    } else {
      read(node, kDiesHere);
      extra -= bytes_taken_over(node, step.reusable_operands);
      for (auto k = node.reads.begin; k < node.reads.end; ++k)
        live_[reads_[k].value] = kAlive;
    }
    // The loss counts with the forward's last step.
    const int64_t during = std::max(at_loss_, alive_ + extra);
    at_loss_ = 0;
    step_bytes_[i] = during;
    slot_peak = std::max(slot_peak, during);
    if (during > result.peak_bytes) {
      result.peak_bytes = during;
      result.peak_step = static_cast<int32_t>(i);
    }
    if (forward)
      result.forward_peak_bytes = std::max(result.forward_peak_bytes, during);
    if (forward && node.replay_bytes > 0 && runs_again_[step.node])
      alive_ -= node.replay_bytes;

    for (auto k = node.makes.begin; k < node.makes.end; ++k) {
      const auto& make = makes_[k];
      if ((step.output_mask & make.output_mask) != 0 && live_[make.value])
        remove(make.value, make.own_bytes);
    }
  }
  close_slot();
  result.recompute_seconds = seconds - base_seconds_;
  return result;
}

Simulation Simulator::run(const RetentionPlan& decisions, int64_t limit_bytes) {
  if (scheduler_.run(decisions, max_steps_))
    return walk(limit_bytes);
  step_bytes_.clear();
  Simulation endless;
  endless.peak_bytes = std::numeric_limits<int64_t>::max();
  endless.recompute_seconds = endless.excess = std::numeric_limits<double>::infinity();
  return endless;
}

}  // namespace aten_recompute
