#include "planner/model/step_blocks.h"

#include <algorithm>
#include <unordered_set>

#include "planner/model/memory_tables.h"

namespace aten_recompute {
namespace {

// Walks from the last step to the first, as the simulator does, and notes for each storage when
// its use begins and ends. Moments are numbered with the loss among them.
class BlockWalk {
 public:
  BlockWalk(const Problem& problem, const Simulator& simulator, int32_t loss)
      : problem_(problem),
        tables_(problem),
        steps_(simulator.steps()),
        is_recomputed_(simulator.last_run().schedule.is_recomputed),
        bases_(base_values(problem)),
        loss_(loss),
        end_(static_cast<int32_t>(steps_.size()) + (loss < 0 ? 0 : 1)),
        is_alive_(problem.num_values(), 0),
        references_(problem.num_storages(), 0),
        ends_(problem.num_storages(), 0),
        rerun_ends_(problem.num_all_nodes(), 0) {
    add_others(simulator.other_bytes());
  }

  std::vector<MemoryBlock> run() {
    begin_with_results();
    bool in_backward = loss_ >= 0;
    for (size_t i = steps_.size(); i-- > 0;) {
      const auto& step = steps_[i];
      if (problem_.is_before_loss(step.slot) && in_backward) {
        in_backward = false;
        turn_to_forward();
      }
      const auto moment = moment_of(i);
      enter_step(step, moment);
      leave_step(step, moment);
    }
    for (size_t value = 0; value < is_alive_.size(); ++value) {
      if (is_alive_[value] != 0)
        remove(static_cast<int32_t>(value), -1, 0);
    }
    return std::move(blocks_);
  }

 private:
  void add_block(int32_t value, int32_t node, int64_t bytes, int32_t begin, int32_t end,
                 BlockKind kind = BlockKind::kTemporary) {
    if (bytes > 0 && begin < end)
      blocks_.push_back({value, node, bytes, begin, end, kind});
  }

  // Adds blocks for what other calls and backwards hold, of which there are `bytes` in each step.
  void add_others(const std::vector<int64_t>& bytes) {
    for (size_t begin = 0, end = 0; begin < bytes.size(); begin = end) {
      while (end < bytes.size() && bytes[end] == bytes[begin])
        ++end;
      add_block(-1, -1, bytes[begin], moment_of(begin), moment_of(end), BlockKind::kGiven);
    }
  }

  // Returns the number of the moment in which the step runs. The loss, which follows the last step
  // of the forward, is alive with it.
  int32_t moment_of(size_t step) const {
    const auto index = static_cast<int32_t>(step);
    return loss_ >= 0 && index >= loss_ ? index + 1 : index;
  }

  void add(int32_t value, int32_t end) {
    is_alive_[value] = 1;
    for (auto storage : tables_.storages[value]) {
      if (references_[storage]++ == 0)
        ends_[storage] = end;
    }
  }

  void remove(int32_t value, int32_t node, int32_t begin) {
    is_alive_[value] = 0;
    for (auto storage : tables_.storages[value]) {
      if (--references_[storage] == 0)
        add_block(value, node, problem_.bytes[storage], begin, ends_[storage]);
    }
  }

  bool is_recomputed(int32_t value) const {
    const auto bases = bases_[value];
    return std::any_of(bases.begin(), bases.end(), [&](int32_t base) {
      return (is_recomputed_[base] & kRecomputedAfterLoss) != 0;
    });
  }

  void begin_with_results() {
    for (auto value : tables_.backward_results) {
      if (is_alive_[value] == 0)
        add(value, end_);
    }
    for (auto value : tables_.forward_results) {
      if (is_alive_[value] == 0 && !is_recomputed(value) &&
          tables_.is_freed_before_backward[value] == 0)
        add(value, end_);
    }
    if (loss_ >= 0)
      add_block(-1, -1, problem_.held_by_caller, loss_, end_);
  }

  // Goes past the loss. Results that the backward makes again are alive twice: the caller's copy
  // stays to the end.
  void turn_to_forward() {
    add_block(-1, -1, problem_.loss_bytes, loss_, loss_ + 1);
    const auto incoming = static_cast<double>(problem_.incoming_bytes());
    add_block(-1, -1, static_cast<int64_t>(problem_.other_calls * incoming), loss_, loss_ + 1,
              BlockKind::kGiven);
    std::unordered_set<int32_t> seen;
    for (auto value : tables_.forward_results) {
      const bool is_freed = tables_.is_freed_before_backward[value] != 0;
      const bool is_copied = is_recomputed(value) && !is_freed;
      if (is_copied) {
        for (auto storage : tables_.storages[value]) {
          if (!seen.insert(storage).second)
            continue;
          if (references_[storage] > 0)
            add_block(value, problem_.producer[value], problem_.bytes[storage], loss_ + 1, end_);
        }
      }
      if ((is_copied || is_freed) && is_alive_[value] == 0)
        add(value, is_copied ? end_ : loss_ + 1);
    }
    for (auto value : problem_.incoming) {
      if (is_alive_[value] != 0)
        remove(value, -1, loss_);
    }
  }

  void enter_step(const Step& step, int32_t moment) {
    const auto& node = tables_.nodes[step.node];
    add_block(-1, step.node, node.workspace_bytes, moment, moment + 1);
    if (node.replay_bytes > 0 && problem_.runs_again(step.node, step.slot)) {
      add_block(-1, step.node, node.replay_bytes, moment, moment + 1);
      if (rerun_ends_[step.node] == 0)
        rerun_ends_[step.node] = moment + 1;
    }
    add_unread_outputs(step, node, moment);
    std::vector<int32_t> dying;
    for (auto i = node.reads.begin; i < node.reads.end; ++i) {
      const auto value = tables_.reads[i].value;
      if (is_alive_[value] != 0)
        continue;
      add(value, moment + 1);
      dying.push_back(value);
    }
    end_what_is_overwritten(step, node, dying, moment);
  }

  // Outputs that nothing reads are freed as soon as the node has run.
  void add_unread_outputs(const Step& step, const MemoryTables::Node& node, int32_t moment) {
    for (auto i = node.outputs.begin; i < node.outputs.end; ++i) {
      const auto& output = tables_.outputs[i];
      const bool is_taken = (step.output_mask & output.output_mask) != 0;
      if (node.is_view || (is_taken && is_alive_[output.value] != 0))
        continue;
      for (auto storage : tables_.storages[output.value]) {
        if (output.own_bytes >= 0 || references_[storage] == 0 || !is_taken)
          add_block(output.value, step.node, problem_.bytes[storage], moment, moment + 1,
                    BlockKind::kWorkspace);
      }
    }
  }

  // The memory of an operand that dies here may become that of the first output.
  void end_what_is_overwritten(const Step& step, const MemoryTables::Node& node,
                               const std::vector<int32_t>& dying, int32_t moment) {
    if (node.overwrites.begin == node.overwrites.end)
      return;
    const auto first = tables_.outputs[node.outputs.begin].value;
    if (is_alive_[first] == 0 || std::find(dying.begin(), dying.end(), first) != dying.end())
      return;
    for (auto i = node.overwrites.begin; i < node.overwrites.end; ++i) {
      const auto& other = tables_.overwrites[i];
      if (std::find(dying.begin(), dying.end(), other.value) != dying.end() &&
          (step.reusable_operands & other.reusable_operands) != 0 &&
          references_[other.storage] == 1) {
        ends_[other.storage] = moment;
        return;
      }
    }
  }

  void leave_step(const Step& step, int32_t moment) {
    const auto& node = tables_.nodes[step.node];
    if (node.replay_bytes > 0 && !problem_.runs_again(step.node, step.slot))
      add_block(-1, step.node, node.replay_bytes, moment, rerun_ends_[step.node]);
    for (auto i = node.outputs.begin; i < node.outputs.end; ++i) {
      const auto& output = tables_.outputs[i];
      if ((step.output_mask & output.output_mask) != 0 && is_alive_[output.value] != 0)
        remove(output.value, step.node, moment);
    }
  }

  const Problem& problem_;
  const MemoryTables tables_;
  const std::vector<Step>& steps_;
  const std::vector<uint8_t>& is_recomputed_;
  const JaggedArray bases_;
  const int32_t loss_;               // the moment of the loss; -1: there is none
  const int32_t end_;                // one past the last moment
  std::vector<uint8_t> is_alive_;    // per value
  std::vector<int32_t> references_;  // per storage: values alive that lie in it
  std::vector<int32_t> ends_;        // per storage that is alive: one past its last moment
  std::vector<int32_t> rerun_ends_;  // per node: one past its last run in the backward
  std::vector<MemoryBlock> blocks_;
};

void set_kinds(StepMemoryWalk& walk, int32_t loss) {
  std::unordered_set<int32_t> made_again;
  for (const auto& block : walk.blocks) {
    if (block.value >= 0 && block.node >= 0 && block.kind != BlockKind::kWorkspace &&
        walk.moments[block.begin].kind == StepKind::kRecomputed)
      made_again.insert(block.value);
  }
  for (auto& block : walk.blocks) {
    const auto kind = walk.moments[block.begin].kind;
    if (block.kind == BlockKind::kWorkspace || block.kind == BlockKind::kGiven)
      continue;
    if (block.value < 0)
      block.kind = block.node < 0 ? BlockKind::kLoss : BlockKind::kWorkspace;
    else if (block.node < 0)
      block.kind = BlockKind::kGiven;
    else if (kind == StepKind::kRecomputed)
      block.kind = BlockKind::kRecomputed;
    else if (kind == StepKind::kBackward)
      block.kind = BlockKind::kBackward;
    else if (loss >= 0 && block.end > loss + 1)
      block.kind = BlockKind::kKept;
    else
      block.kind = made_again.contains(block.value) ? BlockKind::kDropped : BlockKind::kTemporary;
  }
}

}  // namespace

std::vector<StepKind> step_kinds(const Problem& problem, const std::vector<Step>& steps) {
  // Alternatives run in place of what is before them in the problem.
  std::vector<bool> is_backward(problem.num_all_nodes(), false);
  for (size_t node = problem.num_forward; node < problem.num_nodes; ++node) {
    is_backward[node] = true;
    for (auto alternative : problem.alternatives[node])
      is_backward[alternative] = true;
  }
  const auto kind_of = [&](const Step& step) {
    if (is_backward[step.node])
      return StepKind::kBackward;
    // An alternative of a forward node runs in its place when that runs again.
    const bool is_first_run =
        problem.in_forward(step.node) && !problem.runs_again(step.node, step.slot);
    return is_first_run ? StepKind::kForward : StepKind::kRecomputed;
  };
  std::vector<StepKind> kinds;
  for (const auto& step : steps)
    kinds.push_back(kind_of(step));
  return kinds;
}

StepMemoryWalk walk_step(const Problem& problem, const RetentionPlan& plan) {
  Simulator simulator(problem);
  StepMemoryWalk walk;
  walk.simulation = simulator.run(plan);
  const auto& steps = simulator.steps();
  const auto kinds = step_kinds(problem, steps);
  const auto num_before_loss = std::count_if(steps.begin(), steps.end(), [&](const Step& step) {
    return problem.is_before_loss(step.slot);
  });
  const auto loss = num_before_loss == 0 ? -1 : static_cast<int32_t>(num_before_loss);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (static_cast<int32_t>(i) == loss)
      walk.moments.push_back({-1, StepKind::kLoss});
    walk.moments.push_back({steps[i].node, kinds[i], 0, problem.seconds[steps[i].node]});
  }
  if (static_cast<int32_t>(steps.size()) == loss)
    walk.moments.push_back({-1, StepKind::kLoss});

  walk.blocks = BlockWalk(problem, simulator, loss).run();
  std::stable_sort(walk.blocks.begin(), walk.blocks.end(),
                   [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<int64_t> changes(walk.moments.size() + 1, 0);
  for (const auto& block : walk.blocks) {
    changes[block.begin] += block.bytes;
    changes[block.end] -= block.bytes;
  }
  int64_t alive = 0;
  for (size_t i = 0; i < walk.moments.size(); ++i)
    walk.moments[i].bytes = alive += changes[i];
  set_kinds(walk, loss);
  return walk;
}

}  // namespace aten_recompute
