#include "planner/model/method_problem.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "planner/model/problem_builder.h"
#include "planner/model/simulator.h"

namespace aten_recompute {
namespace {

// Returns, per forward node, whether a second run for the sake of `value` runs it. Where random
// numbers are drawn, all nodes run, because each has its place in their sequence.
std::vector<uint8_t> nodes_for(const Problem& problem, int32_t value) {
  std::vector<uint8_t> runs(problem.num_forward, 0);
  const auto begin = problem.replay_bytes.begin();
  if (std::any_of(begin, begin + static_cast<int64_t>(problem.num_forward),
                  [](int64_t bytes) { return bytes > 0; })) {
    for (size_t node = 0; node < problem.num_forward; ++node)
      runs[node] = problem.optional[node] == 0;
    return runs;
  }
  std::vector<int32_t> wanted{value};
  while (!wanted.empty()) {
    const auto node = problem.producer[wanted.back()];
    wanted.pop_back();
    if (node < 0 || runs[node])
      continue;
    runs[node] = 1;
    wanted.insert(wanted.end(), problem.inputs[node].begin(), problem.inputs[node].end());
  }
  return runs;
}

// Returns a node, without outputs, that stands for a second run of the forward of `problem` for the
// sake of `value`. Its inputs are values of `problem` that nothing in it makes. Beside these and
// `value`, it needs what the most demanding operator of that run does.
ProblemNode make_again(const Problem& problem, int32_t value) {
  const auto runs = nodes_for(problem, value);
  ProblemNode again{.name = "again", .recomputable = true};
  ProblemBuilder alone;
  for (size_t storage = 0; storage < problem.num_storages(); ++storage)
    alone.add_storage(problem.bytes[storage]);
  std::vector<uint8_t> is_read(problem.num_values(), 0);
  std::vector<int32_t> nodes(problem.num_forward, -1);
  const auto to_list = [](std::span<const int32_t> items) {
    return std::vector<int32_t>(items.begin(), items.end());
  };
  for (size_t node = 0; node < problem.num_forward; ++node) {
    if (!runs[node])
      continue;
    again.seconds += problem.seconds[node];
    again.flops += problem.flops[node];
    for (auto input : problem.inputs[node])
      is_read[input] = 1;
    nodes[node] = alone.add_node({.name = problem.node_names[node],
                                  .inputs = to_list(problem.inputs[node]),
                                  .outputs = to_list(problem.outputs[node]),
                                  .overwrites = to_list(problem.overwrites[node]),
                                  .workspace_bytes = problem.workspace_bytes[node],
                                  .is_view = problem.is_view[node] != 0});
  }
  for (size_t other = 0; other < problem.num_values(); ++other) {
    const auto producer = problem.producer[other];
    const bool is_made = producer >= 0 && problem.in_forward(producer) && runs[producer] != 0;
    const auto storages = problem.storages[other];
    alone.add_value(problem.value_names[other], to_list(storages), is_made ? nodes[producer] : -1);
    if (is_made || is_read[other] == 0)
      continue;
    again.inputs.push_back(static_cast<int32_t>(other));
    for (auto storage : storages)
      alone.set_storage(storage, problem.bytes[storage], /*held=*/true);
  }
  alone.add_result(value);
  alone.start_backward();
  const auto own = alone.build();
  Simulator simulator(own);
  const auto peak = simulator.run(RetentionPlan(own)).peak_bytes;
  again.workspace_bytes = std::max<int64_t>(0, peak - own.value_bytes(value));
  return again;
}

class Joiner {
 public:
  Joiner(const std::vector<RegionRun>& runs, int64_t kept_after)
      : runs_(runs),
        kept_after_(kept_after),
        kept_(runs.size() + 1, -1),
        storages_(runs.size()),
        readers_(runs.size()) {
    joint_.between.assign(runs.size(), -1);
    joint_.begin.assign(runs.size(), -1);
    joint_.between_again.assign(runs.size(), -1);
    joint_.nodes.resize(runs.size());
    joint_.values.resize(runs.size());
    for (size_t run = 0; run < runs.size(); ++run) {
      joint_.nodes[run].assign(problem_of(run).num_all_nodes(), -1);
      joint_.values[run].assign(problem_of(run).num_values(), -1);
    }
  }

  MethodProblem run() {
    add_storages();
    for (size_t run = 0; run < runs_.size(); ++run)
      add_forward(run);
    if (kept_after_ > 0)
      keep_between(runs_.size(), kept_after_);
    builder_.start_backward();
    if (kept_.back() >= 0)
      add_border("between", {kept_.back()});
    find_readers_of_gradients();
    begin_sums();
    for (size_t run = runs_.size(); run-- > 0;) {
      add_backward(run);
      add_to_sums(run);
      if (kept_[run] >= 0 || runs_[run].beyond_in_backward)
        go_back_between(run);
    }
    builder_.start_alternatives();
    for (size_t run = 0; run < runs_.size(); ++run)
      add_alternatives(run);
    add_nodes_again();
    joint_.problem = builder_.build();
    finish(joint_.problem);
    return std::move(joint_);
  }

 private:
  const Problem& problem_of(size_t run) const { return *runs_[run].problem; }
  int32_t value_at(RegionRun::OtherValue other) const {
    return joint_.values[other.run][other.value];
  }

  // ---- storages: those of each run, except that a value that another run made has the storage of
  // that run ----

  void add_storages() {
    for (size_t run = 0; run < runs_.size(); ++run) {
      const auto& problem = problem_of(run);
      for (size_t storage = 0; storage < problem.num_storages(); ++storage) {
        storages_[run].push_back(
            builder_.add_storage(problem.bytes[storage], problem.held[storage] != 0));
      }
      for (const auto& given : runs_[run].given) {
        for (auto storage : mapped_storages(run, given.value)) {
          const auto bytes = given.bytes >= 0 ? given.bytes : builder_.storage_bytes(storage);
          builder_.set_storage(storage, bytes, /*held=*/false);
        }
        if (given.from.run >= 0)
          share(run, given.value, given.from);
      }
    }
  }

  // Puts `value` of `run` into the memory of `other`.
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

  const std::string& name_of(size_t run, int32_t value) const {
    return problem_of(run).value_names[value];
  }

  // A value of a run that no node of the joint problem makes.
  void add_given_value(size_t run, int32_t value) {
    joint_.values[run][value] =
        builder_.add_value(name_of(run, value), mapped_storages(run, value));
  }

  void add_output(size_t run, int32_t value, int32_t node) {
    joint_.values[run][value] =
        builder_.add_output(node, name_of(run, value), mapped_storages(run, value));
  }

  // A node between two runs. It costs nothing; it says where memory goes.
  int32_t add_border(const char* name, std::vector<int32_t> inputs, bool is_view = false) {
    return builder_.add_node({.name = name, .inputs = std::move(inputs), .is_view = is_view});
  }

  std::vector<int32_t> mapped(size_t run, std::span<const int32_t> values) const {
    std::vector<int32_t> result;
    for (auto value : values)
      result.push_back(joint_.values[run][value]);
    return result;
  }

  // Returns whether the node reads an incoming gradient that takes less memory than the run's
  // problem assumes, such as that of a sum, which is expanded. No operand is overwritten then,
  // because the result has another layout than it.
  bool reads_expanded(size_t run, size_t node) const {
    const auto& problem = problem_of(run);
    const auto inputs = problem.inputs[node];
    return std::any_of(inputs.begin(), inputs.end(), [&](int32_t value) {
      const auto storages = problem.storages[value];
      return std::find(problem.incoming.begin(), problem.incoming.end(), value) !=
                 problem.incoming.end() &&
             storages.size() == 1 &&
             builder_.storage_bytes(storages_[run][storages[0]]) < problem.bytes[storages[0]];
    });
  }

  // Node `node` of a run, without its outputs and alternatives.
  ProblemNode describe(size_t run, size_t node) {
    const auto& problem = problem_of(run);
    const auto index = static_cast<int32_t>(node);
    return {.name = problem.node_names[node],
            .inputs = mapped(run, problem.inputs[node]),
            .overwrites = reads_expanded(run, node) ? std::vector<int32_t>{}
                                                    : mapped(run, problem.overwrites[node]),
            .seconds = problem.seconds[node],
            .flops = problem.flops[node],
            .workspace_bytes = problem.workspace_bytes[node],
            .replay_bytes = problem.replay_bytes[node],
            .recomputable = problem.recomputable[node] != 0,
            .is_view = problem.is_view[node] != 0,
            .optional = problem.optional[node] != 0,
            .place = builder_.place(problem.layer_of(index), problem.source_of(index))};
  }

  void add_own_nodes(size_t run, size_t begin, size_t end) {
    for (size_t node = begin; node < end; ++node) {
      joint_.nodes[run][node] = builder_.add_node(describe(run, node));
      for (auto output : problem_of(run).outputs[node])
        add_output(run, output, joint_.nodes[run][node]);
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
      const auto node = add_border("handed", std::move(inputs));
      add_output(run, given.value, node);
      if (given.may_be_made_again) {
        builder_.node(node).recomputable = true;
        handed_again_.push_back({run, &given, node});
      }
    }
    for (size_t value = 0; value < problem.num_values(); ++value) {
      if (problem.producer[value] < 0 && !is_incoming[value] && joint_.values[run][value] < 0)
        add_given_value(run, static_cast<int32_t>(value));
    }
    if (runs_[run].kept_before)
      joint_.between[run] = keep_between(run, *runs_[run].kept_before);
    add_own_nodes(run, 0, problem.first_served());
    if (problem.num_served_forward == 0)
      return;
    if (runs_.size() > 1)
      throw std::logic_error(
          "aten_recompute: nodes of the forward are served in one of several runs");
    builder_.start_served();
    add_own_nodes(run, problem.first_served(), problem.num_forward);
  }

  // Adds the forward node that stands for what operators before `run` keep.
  int32_t keep_between(size_t run, int64_t bytes) {
    const auto node = add_border("between", {});
    kept_[run] = add_memory("between." + std::to_string(run), node, bytes);
    return node;
  }

  // Adds memory as the only output of a border node; returns the value.
  int32_t add_memory(const std::string& name, int32_t node, int64_t bytes) {
    return builder_.add_output(node, name, {builder_.add_storage(bytes)});
  }

  void go_back_between(size_t run) {
    std::vector<int32_t> values;
    if (kept_[run] >= 0)
      values.push_back(kept_[run]);
    const auto node = add_border("between", std::move(values));
    builder_.node(node).workspace_bytes = runs_[run].beyond_after_backward;
    joint_.between_again[run] = node;
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
      add_border("kept", std::move(kept));
    const auto beyond = runs_[run].beyond_in_backward;
    int32_t memory = -1;
    if (beyond) {
      joint_.begin[run] = add_border("begin", {});
      memory = add_memory("begin." + std::to_string(run), joint_.begin[run], *beyond);
    }
    add_own_nodes(run, problem.num_forward, problem.num_nodes);
    if (beyond)
      add_border("end", {memory});
  }

  void add_incoming(size_t run, int32_t value, const RegionRun::Incoming& source) {
    if (source.gradients.empty() && !source.from_loss) {
      joint_.values[run][value] = builder_.add_value(name_of(run, value), {});
      return;
    }
    if (source.gradients.empty()) {
      joint_.values[run][value] =
          builder_.add_incoming(name_of(run, value), mapped_storages(run, value));
      return;
    }
    add_output(run, value, add_border("handed", {sums_.at({run, value})}, /*is_view=*/true));
  }

  // ---- gradients that several runs make, or the loss and a run ----

  void find_readers_of_gradients() {
    for (size_t run = 0; run < runs_.size(); ++run) {
      for (size_t k = 0; k < runs_[run].incoming.size(); ++k) {
        const auto& source = runs_[run].incoming[k];
        for (const auto& gradient : source.gradients)
          readers_[gradient.run].push_back({run, problem_of(run).incoming[k], &source, gradient});
      }
    }
  }

  // Gradients that the loss contributes exist from the beginning of the backward on.
  void begin_sums() {
    for (size_t run = 0; run < runs_.size(); ++run) {
      for (size_t k = 0; k < runs_[run].incoming.size(); ++k) {
        const auto& source = runs_[run].incoming[k];
        const auto value = problem_of(run).incoming[k];
        if (source.gradients.empty() || !source.from_loss)
          continue;
        sums_[{run, value}] =
            builder_.add_incoming(name_of(run, value), mapped_storages(run, value));
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
      // A sum lies in the memory of its first summand. What operators between the runs compute from
      // a gradient has memory of its own.
      const bool is_first = found == sums_.end();
      const auto node = is_first ? add_border("between", {next})
                                 : add_border("sum", {found->second, next}, /*is_view=*/true);
      sums_[{run, value}] =
          builder_.add_output(node, name_of(run, value), mapped_storages(run, value));
    }
  }

  void add_alternatives(size_t run) {
    const auto& problem = problem_of(run);
    for (size_t node = problem.num_nodes; node < problem.num_all_nodes(); ++node) {
      auto description = describe(run, node);
      description.outputs = mapped(run, problem.outputs[node]);
      joint_.nodes[run][node] = builder_.add_node(std::move(description));
    }
    for (size_t node = 0; node < problem.num_nodes; ++node) {
      auto& alternatives = builder_.node(joint_.nodes[run][node]).alternatives;
      for (auto alternative : problem.alternatives[node])
        alternatives.push_back(joint_.nodes[run][alternative]);
    }
  }

  // Adds the nodes that make handed values again.
  void add_nodes_again() {
    if (handed_again_.empty())
      return;
    std::vector<int32_t> again(builder_.num_nodes(), -1);
    for (const auto& [run, given, handed] : handed_again_) {
      const auto& maker = problem_of(given->from.run);
      auto second_run = make_again(maker, given->from.value);
      second_run.inputs = mapped(given->from.run, second_run.inputs);
      second_run.outputs = {joint_.values[run][given->value]};
      const auto& original =
          builder_.node(joint_.nodes[given->from.run][maker.producer[given->from.value]]);
      second_run.place = original.place;
      again[handed] = builder_.add_node(std::move(second_run));
    }
    again.resize(builder_.num_nodes(), -1);
    again_ = std::move(again);
  }

  // Fills in what is not part of a node or value of its own.
  void finish(Problem& problem) const {
    problem.again = again_;
    problem.must_save.resize(problem.num_values(), 0);
    problem.must_recompute.resize(problem.num_values(), 0);
    for (size_t run = 0; run < runs_.size(); ++run) {
      for (auto value : runs_[run].live_to_end)
        problem.results.push_back(joint_.values[run][value]);
      for (auto value : runs_[run].freed_before_backward)
        problem.freed_before_backward.push_back(joint_.values[run][value]);
      add_tags(problem, run);
    }
    problem.loss_bytes = problem.incoming_bytes();
    for (const auto& run : runs_) {
      problem.loss_bytes += run.beyond_in_loss.value_or(0);
      problem.held_by_caller += run.held_by_caller;
    }
  }

  // A result of a run that its backward reads must be kept. The Simulator knows that of the joint
  // problem's results only, and results of a run need not be among them.
  void add_tags(Problem& joint, size_t run) const {
    const auto& problem = problem_of(run);
    const auto& mapped_values = joint_.values[run];
    for (size_t value = 0; value < problem.num_values(); ++value) {
      const auto index = static_cast<int32_t>(value);
      joint.must_save[mapped_values[value]] |= problem.is_must_save(index);
      joint.must_recompute[mapped_values[value]] |= problem.is_must_recompute(index);
    }
    const auto bases = base_values(problem);
    const auto is_read = read_by_backward(problem, bases);
    const auto handed = handed_results(runs_, run);
    for (auto value : problem.results) {
      if (std::find(handed.begin(), handed.end(), value) != handed.end())
        continue;
      for (auto base : bases[value]) {
        if (!is_read[base])
          continue;
        joint.must_save[mapped_values[base]] = 1;
        joint.must_recompute[mapped_values[base]] = 0;
      }
    }
  }

  struct GradientReader {
    size_t run;
    int32_t value;  // of the run's problem: the incoming gradient
    const RegionRun::Incoming* source;
    RegionRun::OtherValue gradient;
  };

  struct HandedAgain {
    size_t run;
    const RegionRun::Given* given;
    int32_t node;  // that hands it over in the forward
  };

  const std::vector<RegionRun>& runs_;
  int64_t kept_after_;
  std::vector<HandedAgain> handed_again_;
  std::vector<int32_t> again_;  // Problem::again
  std::vector<int32_t> kept_;  // per run, and after the last: the value of keep_between(); -1: none
  std::vector<std::vector<int32_t>> storages_;          // per run: where its own storages are
  std::vector<std::vector<GradientReader>> readers_;    // per run that makes the gradients
  std::map<std::pair<size_t, int32_t>, int32_t> sums_;  // by run and incoming gradient: sum so far
  ProblemBuilder builder_;
  MethodProblem joint_;
};

// Returns the slot of the joint problem that is slot `slot` of a run.
size_t joint_slot(const MethodProblem& joint, size_t run, const Problem& problem, size_t slot) {
  if (slot == 0)
    return 0;
  const auto node = joint.nodes[run][problem.node_of(slot)];
  return static_cast<size_t>(joint.problem.slot_of(static_cast<size_t>(node)));
}

}  // namespace

bool is_border(const std::string& node_name) {
  static const std::set<std::string> names{"begin", "between", "end", "handed", "kept", "sum"};
  return names.contains(node_name);
}

std::vector<std::vector<int32_t>> made_again(const MethodProblem& joint,
                                             const std::vector<RegionRun>& runs,
                                             const RetentionPlan& plan) {
  std::vector<std::vector<int32_t>> values(runs.size());
  if (joint.problem.again.empty())
    return values;
  Simulator simulator(joint.problem);
  simulator.run(plan);
  const auto& is_recomputed = simulator.last_run().schedule.is_recomputed;
  for (size_t run = 0; run < runs.size(); ++run) {
    for (const auto& given : runs[run].given) {
      if (given.may_be_made_again && is_recomputed[joint.values[run][given.value]] != 0)
        values[run].push_back(given.value);
    }
  }
  return values;
}

std::vector<int32_t> handed_results(const std::vector<RegionRun>& runs, size_t run) {
  std::vector<int32_t> values;
  for (const auto& other : runs) {
    for (const auto& given : other.given) {
      if (given.may_be_made_again && given.from.run == static_cast<int32_t>(run))
        values.push_back(given.from.value);
    }
  }
  return values;
}

MethodProblem join(const std::vector<RegionRun>& runs, int64_t kept_after) {
  return Joiner(runs, kept_after).run();
}

RetentionPlan join_retentions(const MethodProblem& joint, const std::vector<RegionRun>& runs,
                              const std::vector<const RetentionPlan*>& plans) {
  RetentionPlan all(joint.problem);
  for (size_t run = 0; run < runs.size(); ++run) {
    const auto& problem = *runs[run].problem;
    for (size_t slot = 0; slot < plans[run]->num_slots(); ++slot) {
      const auto there = joint_slot(joint, run, problem, slot);
      for (size_t value = 0; value < problem.num_values(); ++value) {
        all.set(joint.values[run][value], there,
                plans[run]->dropped(static_cast<int32_t>(value), slot));
      }
    }
    for (size_t node = 0; node < problem.num_nodes; ++node) {
      const auto chosen = plans[run]->chosen(static_cast<int32_t>(node));
      all.choose(joint.nodes[run][node], joint.nodes[run][chosen]);
    }
  }
  return all;
}

RetentionPlan retention_of_run(const MethodProblem& joint, size_t run, const Problem& problem,
                               const RetentionPlan& plan) {
  RetentionPlan own(problem);
  for (size_t value = 0; value < problem.num_values(); ++value) {
    const auto index = static_cast<int32_t>(value);
    const auto joined = joint.values[run][value];
    // A value that is dropped in nearly every slot is stored as a rule with few exceptions.
    const auto last = own.num_slots() - 1;
    own.set_always(index, plan.dropped(joined, joint_slot(joint, run, problem, last)));
    for (size_t slot = 0; slot < own.num_slots(); ++slot)
      own.set(index, slot, plan.dropped(joined, joint_slot(joint, run, problem, slot)));
  }
  const auto& nodes = joint.nodes[run];
  for (size_t node = 0; node < problem.num_nodes; ++node) {
    const auto chosen = plan.chosen(nodes[node]);
    const auto found = std::find(nodes.begin(), nodes.end(), chosen);
    own.choose(static_cast<int32_t>(node), static_cast<int32_t>(found - nodes.begin()));
  }
  return own;
}

}  // namespace aten_recompute
