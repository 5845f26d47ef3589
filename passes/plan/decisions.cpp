#include "passes/plan/decisions.h"

#include <algorithm>

namespace aten_recompute {

Decisions::Decisions(const Problem& problem)
    : num_slots_(problem.num_backward() + 1), rules_(problem.num_values(), 0) {
  chosen_.resize(problem.num_all_nodes());
  for (size_t i = 0; i < chosen_.size(); ++i)
    chosen_[i] = static_cast<int32_t>(i);
}

void Decisions::set(int32_t value, size_t slot, bool dropped) {
  auto& rule = rules_[value];
  if (slot == 0) {
    rule = static_cast<uint8_t>(dropped ? rule | kDropAtForwardEnd : rule & ~kDropAtForwardEnd);
    return;
  }
  const bool exception = follows(rule, slot) != dropped;
  if (!exception && (rule & kHasExceptions) == 0)
    return;
  const auto wanted = key(value, slot);
  const auto place = std::lower_bound(exceptions_.begin(), exceptions_.end(), wanted);
  const bool found = place != exceptions_.end() && *place == wanted;
  if (exception && !found) {
    exceptions_.insert(place, wanted);
    rule |= kHasExceptions;
  } else if (!exception && found) {
    exceptions_.erase(place);
  }
}

void Decisions::set_always(int32_t value, bool dropped) {
  auto& rule = rules_[value];
  if ((rule & kHasExceptions) != 0) {
    const auto begin = std::lower_bound(exceptions_.begin(), exceptions_.end(), key(value, 0));
    const auto end = std::lower_bound(begin, exceptions_.end(), key(value + 1, 0));
    exceptions_.erase(begin, end);
  }
  rule = dropped ? kDropAtForwardEnd | kDropInBackward : 0;
}

bool Decisions::operator==(const Decisions& other) const {
  if (num_slots_ != other.num_slots_ || rules_.size() != other.rules_.size() ||
      chosen_ != other.chosen_) {
    return false;
  }
  for (size_t value = 0; value < rules_.size(); ++value) {
    const auto which = static_cast<int32_t>(value);
    const bool plain = ((rules_[value] | other.rules_[value]) & kHasExceptions) == 0;
    const size_t slots = plain ? std::min<size_t>(2, num_slots_) : num_slots_;
    for (size_t slot = 0; slot < slots; ++slot) {
      if (dropped(which, slot) != other.dropped(which, slot))
        return false;
    }
  }
  return true;
}

Decisions keep_what_is_read(const Problem& problem) {
  Decisions decisions(problem);
  const auto is_read = read_by_backward(problem, roots(problem));
  for (size_t value = 0; value < problem.num_values(); ++value)
    decisions.set(static_cast<int32_t>(value), 0, is_read[value] == 0);
  return decisions;
}

Simulator::Simulator(const Problem& problem)
    : problem_(problem),
      roots_(aten_recompute::roots(problem)),
      base_seconds_(problem.base_seconds()) {
  const size_t num_values = problem.num_values();
  std::vector<std::vector<int32_t>> views(num_values);
  is_root_.assign(num_values, 0);
  // What the caller holds and the backward reads stays in memory whatever is decided; a copy would
  // come on top. An output that the backward does not read is another matter: the caller may change
  // it in place, as with eager, so nothing may be computed from it later.
  const auto is_read = read_by_backward(problem, roots_);
  std::vector<uint8_t> is_held(num_values, 0);
  for (auto value : problem.results) {
    for (auto root : roots_[value])
      is_held[root] = is_read[root];
  }
  for (size_t value = 0; value < num_values; ++value) {
    const auto node = problem.producer[value];
    if (node < 0 || !problem.in_forward(node))
      continue;
    if (problem.is_view[node]) {
      for (auto root : roots_[value])
        views[root].push_back(static_cast<int32_t>(value));
    } else if (problem.recomputable[node] && !problem.optional[node] && !is_held[value] &&
               !problem.is_must_save(static_cast<int32_t>(value))) {
      is_root_[value] = 1;
      if (problem.value_bytes(static_cast<int32_t>(value)) > 0)
        droppable_.push_back(static_cast<int32_t>(value));
    }
  }
  for (const auto& row : views)
    views_.push_back(row);
  find_pins();
  std::vector<uint8_t> read_later(num_values, 0);
  for (size_t node = problem.num_forward; node-- > 0;) {
    const auto inputs = problem.inputs[node];
    const bool idle = problem.outputs[node].empty() && problem.seconds[node] == 0.0 &&
                      problem.workspace_bytes[node] == 0;
    if (idle && std::all_of(inputs.begin(), inputs.end(),
                            [&](int32_t value) { return read_later[value] != 0; })) {
      continue;
    }
    for (auto value : inputs)
      read_later[value] = 1;
    forward_steps_.push_back({static_cast<int32_t>(node), 0});
    any_optional_ = any_optional_ || problem.optional[node] != 0;
  }
  std::reverse(forward_steps_.begin(), forward_steps_.end());
  available_.resize(num_values);
  made_again_.resize(num_values);
  used_in_.resize(num_values);
  live_.resize(num_values);
  captured_.resize(num_values);
  references_.resize(problem.num_storages());
  pending_.resize(problem.num_all_nodes());
  wanted_.resize(problem.num_all_nodes());
}

void Simulator::find_pins() {
  std::vector<int32_t> last_use(problem_.num_values(), 0);
  auto slot_of = [&](int32_t node) {
    return node - static_cast<int32_t>(problem_.num_forward) + 1;
  };
  for (size_t node = problem_.num_forward; node < problem_.num_nodes; ++node) {
    const auto slot = slot_of(static_cast<int32_t>(node));
    for (auto value : problem_.inputs[node])
      last_use[value] = slot;
    for (auto alternative : problem_.alternatives[node]) {
      for (auto value : problem_.inputs[alternative])
        last_use[value] = slot;
    }
  }
  for (auto value : problem_.results)
    last_use[value] = slot_of(static_cast<int32_t>(problem_.num_nodes));
  std::vector<std::vector<int32_t>> pins(problem_.num_values());
  for (size_t value = 0; value < problem_.num_values(); ++value) {
    const auto node = problem_.producer[value];
    if (node < 0 || problem_.in_forward(node) || !problem_.is_view[node])
      continue;
    for (auto root : roots_[value])
      pins[root].insert(pins[root].end(), {slot_of(node), last_use[value]});
  }
  for (const auto& row : pins)
    pins_.push_back(row);
}

bool Simulator::is_pinned(int32_t root) const {
  const auto pins = pins_[root];
  for (size_t i = 0; i < pins.size(); i += 2) {
    if (pins[i] <= slot_ && slot_ < pins[i + 1])
      return true;
  }
  return false;
}

void Simulator::touch(int32_t value) {
  for (auto root : roots_[value]) {
    if (!is_root_[root] || used_in_[root] == slot_)
      continue;
    gaps_.push_back({root, used_in_[root], slot_, available_[root] == kGone});
    used_in_[root] = slot_;
    touched_.push_back(root);
  }
}

// Collects into again_ the nodes that have to run for `value` to be in memory.
void Simulator::require(int32_t value, const Decisions& decisions) {
  stack_.push_back(value);
  while (!stack_.empty()) {
    const auto next = stack_.back();
    stack_.pop_back();
    touch(next);
    const auto producer = problem_.producer[next];
    if (available_[next]) {
      if (producer >= 0 && problem_.optional[producer])
        wanted_[producer] = 1;
      continue;
    }
    auto node = decisions.chosen(producer);
    if (node != producer) {
      const auto gives = problem_.outputs[node];
      if (std::find(gives.begin(), gives.end(), next) == gives.end())
        node = producer;
    }
    if (pending_[node])
      continue;
    pending_[node] = 1;
    again_.push_back({producer, node});
    for (auto input : problem_.inputs[node])
      stack_.push_back(input);
  }
}

void Simulator::emit(int32_t node) {
  uint64_t bound = 0;
  const auto outputs = problem_.outputs[node];
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (available_[outputs[k]])
      continue;
    bound |= uint64_t{1} << std::min<size_t>(k, 63);
  }
  backward_steps_.push_back({node, slot_, bound, own_memory(node)});
  for (auto output : outputs) {
    if (available_[output])
      continue;
    available_[output] = kMade;
    made_again_[output] = 1;
    // What comes along with what was asked for can be dropped, too.
    if (is_root_[output] && used_in_[output] != slot_) {
      used_in_[output] = slot_;
      touched_.push_back(output);
    }
  }
}

uint32_t Simulator::own_memory(int32_t node) const {
  uint32_t mask = 0;
  const auto values = problem_.overwrites[node];
  for (size_t k = 0; k < values.size(); ++k) {
    const auto behind = roots_[values[k]];
    if (std::all_of(behind.begin(), behind.end(),
                    [&](int32_t root) { return available_[root] == kMade; })) {
      mask |= uint32_t{1} << k;
    }
  }
  return mask;
}

void Simulator::end_slot(const Decisions& decisions) {
  for (auto root : touched_) {
    if (!decisions.dropped(root, static_cast<size_t>(slot_)) || is_pinned(root))
      continue;
    available_[root] = kGone;
    for (auto view : views_[root])
      available_[view] = kGone;
  }
  touched_.clear();
}

// False if it has more steps than it may.
bool Simulator::schedule(const Decisions& decisions) {
  gaps_.clear();
  touched_.clear();
  backward_steps_.clear();
  std::fill(wanted_.begin(), wanted_.end(), 0);
  std::fill(made_again_.begin(), made_again_.end(), 0);
  std::fill(used_in_.begin(), used_in_.end(), 0);
  for (size_t value = 0; value < problem_.num_values(); ++value) {
    const auto producer = problem_.producer[value];
    if (producer < 0) {
      available_[value] = kHanded;
    } else if (!problem_.in_forward(producer)) {
      available_[value] = kGone;
    } else if (problem_.is_view[producer]) {
      // What it views is kept in its place.
      available_[value] = problem_.recomputable[producer] ? kGone : kHanded;
    } else {
      const bool gone = is_root_[value] && decisions.dropped(static_cast<int32_t>(value), 0);
      available_[value] = gone ? kGone : kHanded;
    }
  }
  for (size_t node = problem_.num_forward; node < problem_.num_nodes; ++node) {
    slot_ = static_cast<int32_t>(node - problem_.num_forward) + 1;
    const auto chosen = decisions.chosen(static_cast<int32_t>(node));
    for (auto input : problem_.inputs[chosen])
      require(input, decisions);
    if (!again_.empty()) {
      std::sort(again_.begin(), again_.end(), [](const Again& a, const Again& b) {
        return a.position != b.position ? a.position < b.position : a.node < b.node;
      });
      for (const auto& again : again_) {
        emit(again.node);
        pending_[again.node] = 0;
      }
      again_.clear();
    }
    backward_steps_.push_back({chosen, slot_, ~uint64_t{0}, own_memory(chosen)});
    for (auto output : problem_.outputs[chosen])
      available_[output] = kMade;
    end_slot(decisions);
    if (backward_steps_.size() > max_steps_)
      return false;
  }
  steps_.assign(forward_steps_.begin(), forward_steps_.end());
  if (any_optional_) {
    std::erase_if(steps_, [&](const Step& step) {
      return problem_.optional[step.node] && !wanted_[step.node];
    });
  }
  steps_.insert(steps_.end(), backward_steps_.begin(), backward_steps_.end());
  return true;
}

bool Simulator::is_made_again(int32_t value) const {
  const auto behind = roots_[value];
  return std::any_of(behind.begin(), behind.end(),
                     [&](int32_t root) { return made_again_[root] != 0; });
}

bool Simulator::is_let_go(int32_t value) const {
  const auto& let_go = problem_.let_go;
  return std::find(let_go.begin(), let_go.end(), value) != let_go.end();
}

// Of results that the backward makes again.
int64_t Simulator::bytes_held_beside() const {
  std::vector<int32_t> storages;
  for (auto value : problem_.results) {
    const auto own = problem_.storages[value];
    if (is_made_again(value) && !is_let_go(value))
      storages.insert(storages.end(), own.begin(), own.end());
  }
  std::sort(storages.begin(), storages.end());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  int64_t bytes = 0;
  for (auto storage : storages)
    bytes += problem_.held[storage] ? 0 : problem_.bytes[storage];
  return bytes;
}

// From the last step to the first: a value is alive between the run that made it and the last read.
Simulation Simulator::walk(int64_t limit_bytes) {
  Simulation result;
  std::fill(live_.begin(), live_.end(), 0);
  std::fill(references_.begin(), references_.end(), 0);
  runs_again_.assign(problem_.replay_bytes.size(), 0);
  step_bytes_.resize(steps_.size());
  int64_t alive = 0;
  auto add = [&](int32_t value) {
    live_[value] = 1;
    for (auto storage : problem_.storages[value]) {
      if (references_[storage]++ == 0 && !problem_.held[storage])
        alive += problem_.bytes[storage];
    }
  };
  auto remove = [&](int32_t value) {
    live_[value] = 0;
    for (auto storage : problem_.storages[value]) {
      if (--references_[storage] == 0 && !problem_.held[storage])
        alive -= problem_.bytes[storage];
    }
  };
  // What the caller holds and the backward makes again is there twice in between.
  const auto held_beside = bytes_held_beside();
  for (auto value : problem_.results) {
    if (!live_[value] && !is_made_again(value) && !is_let_go(value))
      add(value);
  }
  alive += held_beside;

  const auto& inputs = problem_.inputs;
  const auto& outputs = problem_.outputs;
  int32_t slot = -1;
  int64_t slot_peak = 0;
  auto close_slot = [&] {
    if (slot_peak > limit_bytes)
      result.excess += static_cast<double>(slot_peak - limit_bytes);
    slot_peak = 0;
  };
  double seconds = 0.0;
  bool in_backward = true;
  int64_t at_loss = 0;  // between forward and backward: counted with the forward's last step
  for (size_t i = steps_.size(); i-- > 0;) {
    const auto& step = steps_[i];
    const bool forward = step.slot == 0;
    if (forward && in_backward) {
      in_backward = false;
      alive -= held_beside;
      captured_.assign(live_.begin(), live_.end());
      for (auto value : problem_.results) {
        if (!live_[value] && (is_made_again(value) || is_let_go(value)))
          add(value);
      }
      at_loss = alive + problem_.loss_bytes;
      for (auto value : problem_.incoming) {
        captured_[value] = false;
        if (live_[value])
          remove(value);
      }
      result.saved_bytes = alive;
    }
    if (forward || step.slot != slot) {
      close_slot();
      slot = step.slot;
    }
    seconds += problem_.seconds[step.node];

    int64_t extra = problem_.workspace_bytes[step.node];
    const int64_t replay_bytes =
        problem_.replay_bytes.empty() ? 0 : problem_.replay_bytes[step.node];
    if (replay_bytes > 0 && !forward && problem_.in_forward(step.node)) {
      extra += replay_bytes;  // the generator's present state, which is put back
      if (!runs_again_[step.node])
        alive += replay_bytes;
      runs_again_[step.node] = 1;
    }
    const auto made = outputs[step.node];
    for (size_t k = 0; k < made.size(); ++k) {
      const bool bound = (step.bound >> std::min<size_t>(k, 63)) & 1;
      if (bound && live_[made[k]])
        continue;
      // Nobody reads it: it is freed as soon as it is there.
      const bool is_view = problem_.is_view[step.node] != 0;
      if (!is_view) {
        for (auto storage : problem_.storages[made[k]]) {
          if (!problem_.held[storage] && (references_[storage] == 0 || !bound))
            extra += problem_.bytes[storage];
        }
      }
    }
    const auto read = inputs[step.node];
    int32_t taken_over = -1;  // storage
    for (auto value : read) {
      if (live_[value])
        continue;
      add(value);
      live_[value] = 2;  // dies here
    }
    if (!made.empty() && live_[made[0]] == 1) {
      const auto own = problem_.storages[made[0]];
      const auto candidates = problem_.overwrites[step.node];
      for (size_t k = 0; k < candidates.size(); ++k) {
        const auto value = candidates[k];
        if (live_[value] != 2 || taken_over >= 0 || own.size() != 1 ||
            !((step.own_memory >> k) & 1)) {
          continue;
        }
        const auto memory = problem_.storages[value];
        if (memory.size() == 1 && references_[memory[0]] == 1 && !problem_.held[memory[0]] &&
            memory[0] != own[0] && problem_.bytes[memory[0]] == problem_.bytes[own[0]]) {
          taken_over = memory[0];
        }
      }
    }
    for (auto value : read) {
      if (live_[value] == 2)
        live_[value] = 1;
    }
    const int64_t during =
        std::max(at_loss, alive + extra - (taken_over >= 0 ? problem_.bytes[taken_over] : 0));
    at_loss = 0;
    step_bytes_[i] = during;
    slot_peak = std::max(slot_peak, during);
    if (during > result.peak_bytes) {
      result.peak_bytes = during;
      result.peak_step = static_cast<int32_t>(i);
    }
    if (forward)
      result.forward_peak_bytes = std::max(result.forward_peak_bytes, during);
    if (forward && replay_bytes > 0 && runs_again_[step.node])
      alive -= replay_bytes;

    for (size_t k = 0; k < made.size(); ++k) {
      const bool bound = (step.bound >> std::min<size_t>(k, 63)) & 1;
      if (bound && live_[made[k]])
        remove(made[k]);
    }
  }
  close_slot();
  result.recompute_seconds = seconds - base_seconds_;
  return result;
}

Simulation Simulator::run(const Decisions& decisions, int64_t limit_bytes) {
  if (schedule(decisions))
    return walk(limit_bytes);
  steps_.clear();
  step_bytes_.clear();
  gaps_.clear();
  Simulation endless;
  endless.peak_bytes = std::numeric_limits<int64_t>::max();
  endless.recompute_seconds = endless.excess = std::numeric_limits<double>::infinity();
  return endless;
}

}  // namespace aten_recompute
