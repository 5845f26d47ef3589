#include "planner/model/joint_problem.h"

#include <algorithm>
#include <map>
#include <utility>

namespace aten_recompute {
namespace {

class Joiner {
 public:
  Joiner(const std::vector<RegionRun>& runs, int64_t kept_after)
      : runs_(runs), kept_after_(kept_after) {
    joint_.between.assign(runs.size(), -1);
    joint_.begin.assign(runs.size(), -1);
    joint_.between_again.assign(runs.size(), -1);
    kept_.assign(runs.size() + 1, -1);
    joint_.nodes.resize(runs.size());
    joint_.values.resize(runs.size());
    for (size_t run = 0; run < runs.size(); ++run) {
      joint_.nodes[run].assign(problem_of(run).num_all_nodes(), -1);
      joint_.values[run].assign(problem_of(run).num_values(), -1);
    }
  }

  JointProblem run() {
    add_storages();
    for (size_t run = 0; run < runs_.size(); ++run)
      add_forward(run);
    if (kept_after_ > 0)
      keep_between(runs_.size(), kept_after_);
    out_.num_forward = out_.num_all_nodes();
    if (kept_.back() >= 0)
      add_reader("between", {kept_.back()});
    find_readers_of_gradients();
    begin_sums();
    for (size_t run = runs_.size(); run-- > 0;) {
      add_backward(run);
      add_to_sums(run);
      if (kept_[run] >= 0 || runs_[run].beyond_in_backward)
        go_back_between(run);
    }
    out_.num_nodes = out_.num_all_nodes();
    for (size_t run = 0; run < runs_.size(); ++run)
      add_alternatives(run);
    for (const auto& row : overwrites_)
      out_.overwrites.push_back(row);
    for (const auto& row : alternatives_)
      out_.alternatives.push_back(row);
    for (size_t run = 0; run < runs_.size(); ++run) {
      for (auto value : runs_[run].live_to_end)
        out_.results.push_back(joint_.values[run][value]);
      for (auto value : runs_[run].freed_before_backward)
        out_.freed_before_backward.push_back(joint_.values[run][value]);
      add_tags(run);
    }
    for (auto value : out_.incoming)
      out_.loss_bytes += out_.value_bytes(value);
    for (const auto& run : runs_) {
      out_.loss_bytes += run.beyond_in_loss.value_or(0);
      out_.held_by_caller += run.held_by_caller;
    }
    return std::move(joint_);
  }

 private:
  const Problem& problem_of(size_t run) const { return *runs_[run].problem; }
  int32_t value_at(RegionRun::OtherValue other) const {
    return joint_.values[other.run][other.value];
  }

  // ---- storages: each run's own, those of values that another run made replaced by the maker's
  // ----

  void add_storages() {
    storages_.resize(runs_.size());
    for (size_t run = 0; run < runs_.size(); ++run) {
      const auto& problem = problem_of(run);
      const auto first = static_cast<int32_t>(out_.num_storages());
      for (size_t i = 0; i < problem.num_storages(); ++i)
        storages_[run].push_back(first + static_cast<int32_t>(i));
      out_.bytes.insert(out_.bytes.end(), problem.bytes.begin(), problem.bytes.end());
      out_.held.insert(out_.held.end(), problem.held.begin(), problem.held.end());
      for (const auto& given : runs_[run].given) {
        for (auto storage : problem.storages[given.value]) {
          out_.held[storages_[run][storage]] = 0;
          if (given.bytes >= 0)
            out_.bytes[storages_[run][storage]] = given.bytes;
        }
        if (given.from.run >= 0)
          share(run, given.value, given.from);
      }
    }
  }

  // Run `run`'s `value` lies in the memory of `other`.
  void share(size_t run, int32_t value, RegionRun::OtherValue other) {
    const auto theirs = problem_of(other.run).storages[other.value];
    if (theirs.empty())
      return;
    for (auto storage : problem_of(run).storages[value])
      storages_[run][storage] = storages_[other.run][theirs[0]];
  }

  std::vector<int32_t> mapped_storages(size_t run, int32_t value) const {
    std::vector<int32_t> mapped;
    for (auto storage : problem_of(run).storages[value])
      mapped.push_back(storages_[run][storage]);
    return mapped;
  }

  // ---- values and nodes ----

  int32_t add_value(const std::string& name, int32_t producer, std::span<const int32_t> storages) {
    out_.value_names.push_back(name);
    out_.producer.push_back(producer);
    out_.storages.push_back(storages);
    return static_cast<int32_t>(out_.num_values()) - 1;
  }

  void add_own_value(size_t run, int32_t value, int32_t producer) {
    joint_.values[run][value] =
        add_value(problem_of(run).value_names[value], producer, mapped_storages(run, value));
  }

  // Costs nothing; says where memory goes from one run to another.
  int32_t add_border(const char* name, const std::vector<int32_t>& inputs, bool is_view) {
    out_.node_names.emplace_back(name);
    out_.inputs.push_back(inputs);
    out_.seconds.push_back(0.0);
    out_.flops.push_back(0.0);
    out_.workspace_bytes.push_back(0);
    out_.replay_bytes.push_back(0);
    out_.recomputable.push_back(0);
    out_.is_view.push_back(is_view);
    out_.optional.push_back(0);
    overwrites_.emplace_back();
    alternatives_.emplace_back();
    return static_cast<int32_t>(out_.num_all_nodes()) - 1;
  }

  std::vector<int32_t> mapped(size_t run, std::span<const int32_t> values) const {
    std::vector<int32_t> result;
    for (auto value : values)
      result.push_back(joint_.values[run][value]);
    return result;
  }

  // The outputs are added by the caller.
  int32_t add_own_node(size_t run, size_t node) {
    const auto& problem = problem_of(run);
    const auto index = static_cast<int32_t>(out_.num_all_nodes());
    joint_.nodes[run][node] = index;
    out_.node_names.push_back(problem.node_names[node]);
    out_.inputs.push_back(mapped(run, problem.inputs[node]));
    out_.seconds.push_back(problem.seconds[node]);
    out_.flops.push_back(problem.flops[node]);
    out_.workspace_bytes.push_back(problem.workspace_bytes[node]);
    out_.replay_bytes.push_back(problem.replay_bytes.empty() ? 0 : problem.replay_bytes[node]);
    out_.recomputable.push_back(problem.recomputable[node]);
    out_.is_view.push_back(problem.is_view[node]);
    out_.optional.push_back(problem.optional[node]);
    overwrites_.push_back(mapped(run, problem.overwrites[node]));
    alternatives_.emplace_back();
    return index;
  }

  void add_own_nodes(size_t run, size_t begin, size_t end) {
    const auto& problem = problem_of(run);
    for (size_t node = begin; node < end; ++node) {
      const auto index = add_own_node(run, node);
      for (auto output : problem.outputs[node])
        add_own_value(run, output, index);
      out_.outputs.push_back(mapped(run, problem.outputs[node]));
    }
  }

  void add_forward(size_t run) {
    const auto& problem = problem_of(run);
    std::vector<uint8_t> is_incoming(problem.num_values(), 0);
    for (auto value : problem.incoming)
      is_incoming[value] = 1;
    for (const auto& given : runs_[run].given) {
      std::vector<int32_t> inputs;
      if (given.from.run >= 0)
        inputs.push_back(value_at(given.from));
      const auto node = add_border("handed", inputs, false);
      add_own_value(run, given.value, node);
      out_.outputs.push_back({joint_.values[run][given.value]});
    }
    for (size_t value = 0; value < problem.num_values(); ++value) {
      if (problem.producer[value] < 0 && !is_incoming[value] && joint_.values[run][value] < 0)
        add_own_value(run, static_cast<int32_t>(value), -1);
    }
    if (runs_[run].kept_before)
      joint_.between[run] = keep_between(run, *runs_[run].kept_before);
    add_own_nodes(run, 0, problem.num_forward);
  }

  // The forward node of what operators before `run` keep.
  int32_t keep_between(size_t run, int64_t bytes) {
    const auto node = add_border("between", {}, false);
    kept_[run] = add_memory("between." + std::to_string(run), node, bytes);
    return node;
  }

  // The only output of a border node: nothing but memory.
  int32_t add_memory(const std::string& name, int32_t node, int64_t bytes) {
    const auto storage = static_cast<int32_t>(out_.num_storages());
    out_.bytes.push_back(bytes);
    out_.held.push_back(0);
    const auto value = add_value(name, node, std::vector<int32_t>{storage});
    out_.outputs.push_back({value});
    return value;
  }

  int32_t add_reader(const char* name, const std::vector<int32_t>& values) {
    const auto node = add_border(name, values, false);
    out_.outputs.push_back(std::initializer_list<int32_t>{});
    return node;
  }

  void go_back_between(size_t run) {
    std::vector<int32_t> values;
    if (kept_[run] >= 0)
      values.push_back(kept_[run]);
    joint_.between_again[run] = add_reader("between", values);
    out_.workspace_bytes.back() = runs_[run].beyond_after_backward;
  }

  void add_backward(size_t run) {
    const auto& problem = problem_of(run);
    for (size_t k = 0; k < problem.incoming.size(); ++k)
      add_incoming(run, problem.incoming[k], runs_[run].incoming[k]);
    std::vector<int32_t> kept;
    for (const auto& given : runs_[run].given) {
      if (given.kept)
        kept.push_back(joint_.values[run][given.value]);
    }
    if (!kept.empty())
      add_reader("kept", kept);
    const auto beyond = runs_[run].beyond_in_backward;
    int32_t memory = -1;
    if (beyond) {
      joint_.begin[run] = add_border("begin", {}, false);
      memory = add_memory("begin." + std::to_string(run), joint_.begin[run], *beyond);
    }
    add_own_nodes(run, problem.num_forward, problem.num_nodes);
    if (beyond)
      add_reader("end", {memory});
  }

  void add_incoming(size_t run, int32_t value, const RegionRun::Incoming& source) {
    if (source.gradients.empty() && !source.from_loss) {
      joint_.values[run][value] =
          add_value(problem_of(run).value_names[value], -1, std::span<const int32_t>());
      return;
    }
    if (source.gradients.empty()) {
      add_own_value(run, value, -1);
      out_.incoming.push_back(joint_.values[run][value]);
      return;
    }
    const auto sum = sums_.at({run, value});
    add_own_value(run, value, add_border("handed", {sum}, /*is_view=*/true));
    out_.outputs.push_back({joint_.values[run][value]});
  }

  // ---- gradients that several runs make, or the loss and a run ----

  void find_readers_of_gradients() {
    readers_.resize(runs_.size());
    for (size_t run = 0; run < runs_.size(); ++run) {
      for (size_t k = 0; k < runs_[run].incoming.size(); ++k) {
        const auto& source = runs_[run].incoming[k];
        for (const auto& gradient : source.gradients)
          readers_[gradient.run].push_back({run, problem_of(run).incoming[k], &source, gradient});
      }
    }
  }

  // The loss's part is there from the beginning of the backward on.
  void begin_sums() {
    for (size_t run = 0; run < runs_.size(); ++run) {
      for (size_t k = 0; k < runs_[run].incoming.size(); ++k) {
        const auto& source = runs_[run].incoming[k];
        const auto value = problem_of(run).incoming[k];
        if (source.gradients.empty() || !source.from_loss)
          continue;
        const auto from_loss =
            add_value(problem_of(run).value_names[value], -1, mapped_storages(run, value));
        out_.incoming.push_back(from_loss);
        sums_[{run, value}] = from_loss;
      }
    }
  }

  void add_to_sums(size_t made_by) {
    for (const auto& [run, value, source, gradient] : readers_[made_by]) {
      const auto next = value_at(gradient);
      const auto found = sums_.find({run, value});
      if (found == sums_.end() && source->passthrough) {
        share(run, value, gradient);
        sums_[{run, value}] = next;
        continue;
      }
      // A sum is made in the memory of its first summand; what operators between the runs make of a
      // gradient has its own.
      const bool is_first = found == sums_.end();
      const auto inputs = is_first ? std::vector<int32_t>{next} : std::vector{found->second, next};
      const auto node = add_border(is_first ? "between" : "sum", inputs, !is_first);
      const auto sum =
          add_value(problem_of(run).value_names[value], node, mapped_storages(run, value));
      out_.outputs.push_back({sum});
      sums_[{run, value}] = sum;
    }
  }

  void add_alternatives(size_t run) {
    const auto& problem = problem_of(run);
    for (size_t node = problem.num_nodes; node < problem.num_all_nodes(); ++node) {
      add_own_node(run, node);
      out_.outputs.push_back(mapped(run, problem.outputs[node]));
    }
    for (size_t node = 0; node < problem.num_nodes; ++node) {
      for (auto alternative : problem.alternatives[node])
        alternatives_[joint_.nodes[run][node]].push_back(joint_.nodes[run][alternative]);
    }
  }

  // What leaves a run and is read by its backward stays for it: the Simulator knows that of results
  // only, and here they need not be any.
  void add_tags(size_t run) {
    const auto& problem = problem_of(run);
    out_.must_save.resize(out_.num_values(), 0);
    out_.must_recompute.resize(out_.num_values(), 0);
    for (size_t value = 0; value < problem.num_values(); ++value) {
      const auto index = static_cast<int32_t>(value);
      const auto mapped_index = joint_.values[run][value];
      out_.must_save[mapped_index] |= problem.is_must_save(index);
      out_.must_recompute[mapped_index] |= problem.is_must_recompute(index);
    }
    const auto decided = base_values(problem);
    const auto is_read = read_by_backward(problem, decided);
    for (auto value : problem.results) {
      for (auto root : decided[value]) {
        if (!is_read[root])
          continue;
        out_.must_save[joint_.values[run][root]] = 1;
        out_.must_recompute[joint_.values[run][root]] = 0;
      }
    }
  }

  const std::vector<RegionRun>& runs_;
  int64_t kept_after_;
  std::vector<int32_t> kept_;  // per run, and behind the last: the value of keep_between; -1: none
  JointProblem joint_;
  Problem& out_ = joint_.problem;
  std::vector<std::vector<int32_t>> storages_;  // per run: of its own storages
  struct GradientReader {
    size_t run;
    int32_t value;  // of the run's problem: the incoming gradient
    const RegionRun::Incoming* source;
    RegionRun::OtherValue gradient;
  };
  std::vector<std::vector<GradientReader>> readers_;  // per run that makes the gradients
  // By run and incoming gradient: what has come of it so far.
  std::map<std::pair<size_t, int32_t>, int32_t> sums_;
  std::vector<std::vector<int32_t>> overwrites_;
  std::vector<std::vector<int32_t>> alternatives_;
};

// The slot behind a run's b-th backward node, in the joint problem.
size_t joint_slot(const JointProblem& joint, size_t run, const Problem& problem, size_t slot) {
  if (slot == 0)
    return 0;
  const auto node = joint.nodes[run][problem.num_forward + slot - 1];
  return static_cast<size_t>(node) - joint.problem.num_forward + 1;
}

}  // namespace

JointProblem join(const std::vector<RegionRun>& runs, int64_t kept_after) {
  return Joiner(runs, kept_after).run();
}

RetentionPlan join_decisions(const JointProblem& joint, const std::vector<RegionRun>& runs,
                             const std::vector<const RetentionPlan*>& decisions) {
  RetentionPlan all(joint.problem);
  for (size_t run = 0; run < runs.size(); ++run) {
    const auto& problem = *runs[run].problem;
    for (size_t slot = 0; slot < decisions[run]->num_slots(); ++slot) {
      const auto there = joint_slot(joint, run, problem, slot);
      for (size_t value = 0; value < problem.num_values(); ++value) {
        all.set(joint.values[run][value], there,
                decisions[run]->dropped(static_cast<int32_t>(value), slot));
      }
    }
    for (size_t node = 0; node < problem.num_nodes; ++node) {
      const auto chosen = decisions[run]->chosen(static_cast<int32_t>(node));
      all.choose(joint.nodes[run][node], joint.nodes[run][chosen]);
    }
  }
  return all;
}

RetentionPlan decisions_of_run(const JointProblem& joint, size_t run, const Problem& problem,
                               const RetentionPlan& decisions) {
  RetentionPlan own(problem);
  for (size_t value = 0; value < problem.num_values(); ++value) {
    const auto index = static_cast<int32_t>(value);
    const auto joined = joint.values[run][value];
    // What goes in nearly every slot is a rule with few exceptions.
    const auto last = own.num_slots() - 1;
    own.set_always(index, decisions.dropped(joined, joint_slot(joint, run, problem, last)));
    for (size_t slot = 0; slot < own.num_slots(); ++slot)
      own.set(index, slot, decisions.dropped(joined, joint_slot(joint, run, problem, slot)));
  }
  const auto& nodes = joint.nodes[run];
  for (size_t node = 0; node < problem.num_nodes; ++node) {
    const auto chosen = decisions.chosen(nodes[node]);
    const auto found = std::find(nodes.begin(), nodes.end(), chosen);
    own.choose(static_cast<int32_t>(node), static_cast<int32_t>(found - nodes.begin()));
  }
  return own;
}

}  // namespace aten_recompute
