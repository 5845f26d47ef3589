#include "planner/model/scheduler.h"

#include <algorithm>

namespace aten_recompute {

Scheduler::Scheduler(const Problem& problem)
    : problem_(problem), base_values_(aten_recompute::base_values(problem)) {
  find_roots();
  find_pins();
  find_forward_steps();
  find_overwrites();
  drops_only(all_roots_);
  made_again_.resize(problem.num_values());
  used_in_.resize(problem.num_values());
  pending_.resize(problem.num_all_nodes());
  wanted_.resize(problem.num_all_nodes());
}

void Scheduler::find_roots() {
  const auto num_values = problem_.num_values();
  std::vector<std::vector<int32_t>> views(num_values);
  is_root_.assign(num_values, 0);
  // What the caller holds and the backward reads stays in memory whatever is decided; a copy would
  // come on top. An output that the backward does not read is another matter: the caller may change
  // it in place, as with eager, so nothing may be computed from it later.
  const auto is_read = read_by_backward(problem_, base_values_);
  std::vector<uint8_t> is_held(num_values, 0);
  for (auto value : problem_.results) {
    for (auto root : base_values_[value])
      is_held[root] = is_read[root];
  }
  available_at_start_.assign(num_values, kHanded);
  for (size_t i = 0; i < num_values; ++i) {
    const auto value = static_cast<int32_t>(i);
    const auto node = problem_.producer[value];
    if (node < 0)
      continue;
    if (!problem_.in_forward(node)) {
      available_at_start_[value] = kGone;
    } else if (problem_.is_view[node]) {
      for (auto root : base_values_[value])
        views[root].push_back(value);
      // What it views is kept in its place.
      available_at_start_[value] = problem_.recomputable[node] ? kGone : kHanded;
    } else if (problem_.recomputable[node] && !problem_.optional[node] && !is_held[value] &&
               !problem_.is_must_save(value)) {
      is_root_[value] = 1;
      all_roots_.push_back(value);
      if (problem_.value_bytes(value) > 0)
        droppable_.push_back(value);
    }
  }
  for (const auto& row : views)
    views_.push_back(row);
}

void Scheduler::drops_only(const std::vector<int32_t>& values) {
  find_followed(values);
  find_needs();
}

void Scheduler::find_followed(const std::vector<int32_t>& values) {
  is_followed_.assign(problem_.num_values(), 0);
  for (auto value : values)
    is_followed_[value] = is_root_[value];
  roots_ = {};
  first_root_.assign(problem_.num_values(), -1);
  std::vector<int32_t> row;
  for (size_t value = 0; value < problem_.num_values(); ++value) {
    row.clear();
    for (auto root : base_values_[value]) {
      if (is_followed_[root])
        row.push_back(root);
    }
    if (!row.empty())
      first_root_[value] = row[0];
    roots_.push_back(row);
  }
}

void Scheduler::find_pins() {
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
    for (auto root : base_values_[value])
      pins[root].insert(pins[root].end(), {slot_of(node), last_use[value]});
  }
  for (const auto& row : pins)
    pins_.push_back(row);
}

void Scheduler::find_forward_steps() {
  std::vector<uint8_t> read_later(problem_.num_values(), 0);
  for (size_t node = problem_.num_forward; node-- > 0;) {
    const auto inputs = problem_.inputs[node];
    const bool idle = problem_.outputs[node].empty() && problem_.seconds[node] == 0.0 &&
                      problem_.workspace_bytes[node] == 0;
    if (idle && std::all_of(inputs.begin(), inputs.end(),
                            [&](int32_t value) { return read_later[value] != 0; })) {
      continue;
    }
    for (auto value : inputs)
      read_later[value] = 1;
    forward_steps_.push_back({static_cast<int32_t>(node), 0});
    any_optional_ = any_optional_ || problem_.optional[node] != 0;
  }
  std::reverse(forward_steps_.begin(), forward_steps_.end());
}

void Scheduler::find_needs() {
  const auto may_be_gone = [&](int32_t value) {
    const auto producer = problem_.producer[value];
    const bool is_backward = producer >= 0 && !problem_.in_forward(producer) &&
                             static_cast<size_t>(producer) < problem_.num_nodes;
    return producer >= 0 && !is_backward &&
           (is_root_[value] || problem_.optional[producer] || available_at_start_[value] == kGone);
  };
  std::vector<int32_t> row;
  needs_ = {};
  for (size_t node = 0; node < problem_.num_all_nodes(); ++node) {
    row.clear();
    for (auto input : problem_.inputs[node]) {
      if (may_be_gone(input) || first_root_[input] >= 0)
        row.push_back(input);
    }
    needs_.push_back(row);
  }
}

void Scheduler::find_overwrites() {
  overwrites_forward_.assign(problem_.num_all_nodes(), 0);
  for (size_t node = 0; node < problem_.num_all_nodes(); ++node) {
    for (auto value : problem_.overwrites[node]) {
      for (auto root : base_values_[value]) {
        const auto producer = problem_.producer[root];
        if (producer < 0 || problem_.in_forward(producer))
          overwrites_forward_[node] = 1;
      }
    }
  }
}

bool Scheduler::is_pinned(int32_t root) const {
  const auto pins = pins_[root];
  for (size_t i = 0; i < pins.size(); i += 2) {
    if (pins[i] <= slot_ && slot_ < pins[i + 1])
      return true;
  }
  return false;
}

void Scheduler::touch(int32_t value) {
  const auto first = first_root_[value];
  if (first < 0)
    return;
  const auto touch_root = [&](int32_t root) {
    if (used_in_[root] == slot_)
      return;
    gaps_.push_back({root, used_in_[root], slot_, available_[root] == kGone});
    used_in_[root] = slot_;
    touched_.push_back(root);
  };
  if (first == value) {
    touch_root(value);
    return;
  }
  for (auto root : roots_[value])
    touch_root(root);
}

// Collects into again_ the nodes that have to run for `value` to be in memory.
void Scheduler::require(int32_t value, const RetentionPlan& decisions) {
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
    for (auto input : needs_[node])
      stack_.push_back(input);
  }
}

void Scheduler::emit(int32_t node) {
  uint64_t output_mask = 0;
  const auto outputs = problem_.outputs[node];
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!available_[outputs[k]])
      output_mask |= output_bit(k);
  }
  backward_steps_.push_back({node, slot_, output_mask, reusable_operands(node)});
  for (auto output : outputs) {
    if (available_[output])
      continue;
    available_[output] = kMade;
    made_again_[output] = 1;
    // What comes along with what was asked for can be dropped, too.
    if (is_followed_[output] && used_in_[output] != slot_) {
      used_in_[output] = slot_;
      touched_.push_back(output);
    }
  }
}

uint32_t Scheduler::reusable_operands(int32_t node) const {
  if (!overwrites_forward_[node])
    return ~uint32_t{0};
  const auto values = problem_.overwrites[node];
  uint32_t mask = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const auto behind = base_values_[values[k]];
    if (std::all_of(behind.begin(), behind.end(),
                    [&](int32_t root) { return available_[root] == kMade; })) {
      mask |= uint32_t{1} << k;
    }
  }
  return mask;
}

void Scheduler::end_slot(const RetentionPlan& decisions) {
  for (auto root : touched_) {
    if (!decisions.dropped(root, static_cast<size_t>(slot_)) || is_pinned(root))
      continue;
    available_[root] = kGone;
    for (auto view : views_[root])
      available_[view] = kGone;
  }
  touched_.clear();
}

bool Scheduler::run(const RetentionPlan& decisions, size_t max_steps) {
  gaps_.clear();
  touched_.clear();
  steps_.clear();
  backward_steps_.clear();
  if (any_optional_)
    std::fill(wanted_.begin(), wanted_.end(), 0);
  std::fill(made_again_.begin(), made_again_.end(), 0);
  std::fill(used_in_.begin(), used_in_.end(), 0);
  available_ = available_at_start_;
  for (auto root : all_roots_) {
    if (decisions.dropped_at_forward_end(root))
      available_[root] = kGone;
  }
  for (size_t node = problem_.num_forward; node < problem_.num_nodes; ++node) {
    slot_ = static_cast<int32_t>(node - problem_.num_forward) + 1;
    const auto chosen = decisions.chosen(static_cast<int32_t>(node));
    for (auto input : needs_[chosen])
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
    backward_steps_.push_back({chosen, slot_, ~uint64_t{0}, reusable_operands(chosen)});
    for (auto output : problem_.outputs[chosen])
      available_[output] = kMade;
    end_slot(decisions);
    if (backward_steps_.size() > max_steps) {
      gaps_.clear();
      return false;
    }
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

bool Scheduler::is_made_again(int32_t value) const {
  const auto behind = base_values_[value];
  return std::any_of(behind.begin(), behind.end(),
                     [&](int32_t root) { return made_again_[root] != 0; });
}

}  // namespace aten_recompute
