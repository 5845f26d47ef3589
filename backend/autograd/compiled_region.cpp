#include "backend/autograd/compiled_region.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Value;

// Returns whether a result may keep an operand's memory alive: views, containers and tapes do.
bool may_hold_its_operands(const torch::jit::Node* node) {
  return may_alias_an_argument(node) || node->maybeSchema() == nullptr ||
         node->kind() == symbols::kTapeForward;
}

// Returns whether a value of the type is or has memory of a tensor: numbers and sizes have none,
// and classes, such as tapes, may have some.
bool may_hold_memory(const c10::Type& type) {
  return contains_tensor(type) || type.kind() == c10::TypeKind::ClassType;
}

// Returns whether a call that has run the instruction cannot start again from its first one.
bool has_lasting_effect(const Program::Instruction& instruction) {
  const auto* node = instruction.node;
  if (node->kind() == symbols::kCheckPath)
    return false;
  return instruction.mutates || has_effect(node) || !may_run_again(node) || node->hasSideEffects();
}

std::vector<size_t> data_checks_of(const Program& forward) {
  std::vector<size_t> checks;
  const auto& instructions = forward.instructions();
  for (size_t i = 0; i < instructions.size() && !has_lasting_effect(instructions[i]); ++i) {
    if (instructions[i].data_sizes >= 0)
      checks.push_back(i + 1);
  }
  return checks;
}

}  // namespace

CompiledRegion::CompiledRegion(RegionGraphs graphs, std::shared_ptr<CallerBehavior> caller,
                               HandedOver handed)
    : graphs_(std::move(graphs)),
      caller_(std::move(caller)),
      handed_(std::move(handed)),
      forward_(graphs_.gradient.f),
      backward_(graphs_.gradient.df) {
  if (caller_ == nullptr && graphs_.plan) {
    caller_ = std::make_shared<CallerBehavior>(graphs_.plan->assumed,
                                               graphs_.plan->metrics.predicted_peak_bytes,
                                               /*loss_is_measured=*/StepWatch::sees_all_memory());
  }
  find_aliases();
  find_captures();
  find_metadata();
  find_shared_captures();
  find_stages();
  find_first_stages();
  auto& forward = graphs_.source != nullptr ? *graphs_.source : *graphs_.gradient.f;
  written_inputs_ = inputs_written_by(forward);
  read_statistics_ = statistics_read_by(forward);
  draws_random_numbers_ = aten_recompute::draws_random_numbers(forward);
  if (graphs_.plan && !graphs_.plan->data_sizes.empty())
    data_checks_ = data_checks_of(forward_);
}

const RegionReplay& CompiledRegion::replay() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (replay_ == nullptr)
    replay_ = std::make_unique<RegionReplay>(graphs_.source, gradient().df_output_vjps,
                                             graphs_.shared_casts);
  return *replay_;
}

const RegionReplay& CompiledRegion::replay_of_output(size_t output) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& replay = replay_of_output_[output];
  if (replay == nullptr)
    replay = std::make_unique<RegionReplay>(graphs_.source, output);
  return *replay;
}

void CompiledRegion::find_first_stages() {
  first_stage_of_.assign(backward_.graph()->inputs().size() - num_vjps(), stages_.size() - 1);
  const auto read = [&](const Program::Operand& operand, size_t stage) {
    if (operand.is_constant)
      return;
    for (auto capture : captures_of_[operand.index]) {
      auto& first = first_stage_of_[static_cast<size_t>(capture) - num_vjps()];
      first = std::min(first, stage);
    }
  };
  for (size_t s = 0; s < stages_.size(); ++s) {
    for (size_t i = stages_[s].begin; i < stages_[s].end; ++i) {
      for (const auto& operand : backward_.instructions()[i].operands)
        read(operand, s);
    }
    for (auto gradient : stages_[s].gradients)
      read(backward_.outputs()[gradient], s);
  }
}

void CompiledRegion::find_captures() {
  captures_of_.resize(backward_.num_registers());
  for (size_t r = num_vjps(); r < backward_.graph()->inputs().size(); ++r)
    captures_of_[r].push_back(static_cast<int32_t>(r));
  for (const auto& instruction : backward_.instructions()) {
    if (!may_hold_its_operands(instruction.node))
      continue;
    // The sizes that a sum of gradients is given are not among them: where gradients are summed
    // along the whole depth of a network, each sum would have those of all sums before it.
    std::set<int32_t> captures;
    for (size_t i = 0; i < instruction.operands.size(); ++i) {
      const auto& operand = instruction.operands[i];
      // The operands of a node with blocks are what its blocks read, and not its inputs.
      const bool may_hold = !instruction.node->blocks().empty() ||
                            i >= instruction.node->inputs().size() ||
                            may_hold_memory(*instruction.node->input(i)->type());
      if (!operand.is_constant && may_hold)
        captures.insert(captures_of_[operand.index].begin(), captures_of_[operand.index].end());
    }
    for (auto output : instruction.outputs) {
      if (output >= 0)
        captures_of_[output].assign(captures.begin(), captures.end());
    }
  }
}

void CompiledRegion::find_metadata() {
  const auto num_inputs = graphs_.gradient.df_input_captured_inputs.size();
  read_as_metadata_.assign(num_inputs, true);
  const auto read = [&](const Program::Operand& operand) {
    if (operand.is_constant)
      return;
    for (auto capture : captures_of_[operand.index]) {
      const auto i = static_cast<size_t>(capture) - num_vjps();
      if (i < num_inputs)
        read_as_metadata_[i] = false;
    }
  };
  for (const auto& instruction : backward_.instructions()) {
    for (size_t i = 0; i < instruction.operands.size(); ++i) {
      if (!reads_metadata_only(instruction.node, i))
        read(instruction.operands[i]);
    }
  }
  std::for_each(backward_.outputs().begin(), backward_.outputs().end(), read);
}

std::vector<size_t> CompiledRegion::last_reads_of_inputs() const {
  const auto& gradient = graphs_.gradient;
  std::vector<std::vector<size_t>> inputs_of;  // per capture
  for (auto input : gradient.df_input_captured_inputs)
    inputs_of.push_back({input});
  inputs_of.insert(inputs_of.end(), aliased_inputs_.begin(), aliased_inputs_.end());
  std::vector<size_t> last_reads(gradient.f->inputs().size(), 0);
  const auto& instructions = backward_.instructions();
  for (size_t i = 0; i < instructions.size(); ++i) {
    for (const auto& operand : instructions[i].operands) {
      if (operand.is_constant)
        continue;
      for (auto capture : captures_of_[operand.index]) {
        for (auto input : inputs_of[static_cast<size_t>(capture) - num_vjps()])
          last_reads[input] = i + 1;
      }
    }
  }
  return last_reads;
}

void CompiledRegion::find_stages() {
  const size_t count = backward_.graph()->outputs().size();
  // Summands of one gradient leave in order, and the last one only after the last read of the input
  // that the gradient belongs to: whoever gets the sum may change the input then, but nobody gets
  // it before.
  const auto last_reads = last_reads_of_inputs();
  std::vector<size_t> leaves_after;
  for (size_t i = 0; i < count; ++i) {
    const auto gradient = summands()[i].output;
    const bool follows = i > 0 && gradient == summands()[i - 1].output;
    const bool is_last = i + 1 == count || gradient != summands()[i + 1].output;
    const auto input = graphs_.gradient.df_output_vjps[gradient];
    leaves_after.push_back(
        std::max({backward_.output_ready_after(i), is_last ? last_reads[input] : size_t{0},
                  follows ? leaves_after.back() : size_t{0}}));
  }
  std::map<size_t, std::vector<size_t>> gradients_by_end;
  for (size_t i = 0; i < count; ++i)
    gradients_by_end[leaves_after[i]].push_back(i);
  if (gradients_by_end.empty())
    gradients_by_end[0] = {};
  last_stage_of_.assign(backward_.num_registers(), -1);
  const auto read = [&](const Program::Operand& operand, size_t stage) {
    if (!operand.is_constant)
      last_stage_of_[operand.index] =
          std::max(last_stage_of_[operand.index], static_cast<int64_t>(stage));
  };
  const auto& instructions = backward_.instructions();
  size_t begin = 0;
  for (auto& [end, gradients] : gradients_by_end) {
    const auto stage = stages_.size();
    for (size_t i = begin; i < end; ++i) {
      for (const auto& operand : instructions[i].operands)
        read(operand, stage);
    }
    for (auto gradient : gradients)
      read(backward_.outputs()[gradient], stage);
    stages_.push_back({begin, end, std::move(gradients)});
    begin = end;
  }
  // What follows the last stage belongs to none.
  for (size_t i = begin; i < instructions.size(); ++i) {
    for (const auto& operand : instructions[i].operands)
      read(operand, stages_.size());
  }
}

void CompiledRegion::find_aliases() {
  // Follow operators whose results may share an operand's memory back to the region inputs.
  std::unordered_map<Value*, std::set<size_t>> bases;
  const auto inputs = graphs_.gradient.f->inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    bases[inputs[i]] = {i};
  for (auto* node : graphs_.gradient.f->nodes()) {
    if (!may_hold_its_operands(node))
      continue;
    std::set<size_t> found;
    for (auto* input : node->inputs()) {
      if (const auto it = bases.find(input); it != bases.end() && contains_tensor(*input->type()))
        found.insert(it->second.begin(), it->second.end());
    }
    for (auto* output : node->outputs())
      bases[output] = found;
  }
  for (auto index : graphs_.gradient.df_input_captured_outputs) {
    const auto found = bases.find(graphs_.gradient.f->outputs()[index]);
    aliased_inputs_.emplace_back();
    if (found != bases.end())
      aliased_inputs_.back().assign(found->second.begin(), found->second.end());
  }
}

void CompiledRegion::find_shared_captures() {
  auto& forward = *graphs_.gradient.f;
  const auto outputs = forward.outputs().slice(0, graphs_.gradient.f_real_outputs);
  std::unordered_set<const Value*> seen(outputs.begin(), outputs.end());
  const auto is_seen = [&](const Value* value) {
    return seen.count(value) != 0 && contains_tensor(*value->type());
  };
  const auto pass_on = [&](auto from, auto to) {
    if (std::any_of(from.begin(), from.end(), is_seen))
      seen.insert(to.begin(), to.end());
  };
  // What an output may be a view of, and then the other views of that.
  for (auto* node : forward.nodes().reverse()) {
    if (may_hold_its_operands(node))
      pass_on(node->outputs(), node->inputs());
  }
  for (auto* node : forward.nodes()) {
    if (may_hold_its_operands(node))
      pass_on(node->inputs(), node->outputs());
  }
  for (auto index : graphs_.gradient.df_input_captured_outputs)
    shares_with_output_.push_back(seen.count(forward.outputs()[index]) != 0);
}

std::optional<LossMemory> CompiledRegion::loss_of(const StepMemory& step,
                                                  bool has_other_sizes) const {
  const auto& problem = *graphs_.plan->problem;
  std::optional<LossMemory> loss;
  if (!has_other_sizes && !step.has_unclear_loss)
    loss = loss_memory(problem, step);
  if (step.num_others == 0 && !step.has_unclear_loss)
    return loss;
  // Each of several calls may have a loss of its own, which is in memory while later calls run, and
  // other modules may have left gradients. All that the step took beyond the plan counts.
  const auto excess = step.peak - graphs_.plan->metrics.predicted_peak_bytes;
  const auto incoming = problem.incoming_bytes();
  if (is_outdated() || excess <= 0 || incoming == 0)
    return loss;
  if (!loss)
    loss = LossMemory{incoming, problem.loss_bytes, problem.held_by_caller};
  loss->held = std::max(loss->held, problem.held_by_caller + excess);
  return loss;
}

void CompiledRegion::note_step(const StepMemory& step, bool has_other_sizes,
                               PeakDifference& difference) const {
  if (step.backward.empty())
    return;
  const auto& metrics = graphs_.plan->metrics;
  const auto& options = difference.options();
  const bool is_like = is_like_plan(step, options.accumulate);
  const bool is_as_planned = is_like && !is_outdated();
  const auto budget = budget_bytes(options, metrics.fraction_counts_from);
  const auto predicted = metrics.predicted_peak_bytes;
  const bool matters =
      is_too_low(has_other_sizes ? std::max(predicted, budget) : predicted, step.peak, budget);
  // The loss is noted only where the predicted peak is too low, or a new plan is made anyway. That
  // of other sizes says nothing about that of those planned for.
  const auto loss = loss_of(step, has_other_sizes);
  if (loss && (!is_as_planned || matters)) {
    const auto incoming = static_cast<double>(loss->incoming);
    caller_->see_loss({.factor = static_cast<double>(loss->beside) / incoming,
                       .held_factor = static_cast<double>(loss->held) / incoming,
                       .gradient_bytes = loss->incoming,
                       .exceeds_plan = matters});
  }
  const bool is_comparable = is_as_planned && !has_other_sizes && !step.is_first_of_several;
  if (is_comparable)
    measured_peak_bytes_ = step.peak;
  const auto& assumed = graphs_.plan->assumed.caller;
  const bool is_noted = loss || caller_->other_calls() > assumed.other_calls ||
                        caller_->retained() > assumed.retained;
  if (is_comparable || (is_like && matters))
    difference.say(metrics, step, /*is_planned_again=*/is_noted && is_outdated());
}

std::shared_ptr<const UndefinedGradients> CompiledRegion::undefined_gradients(
    const std::vector<bool>& defined) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& slot = masks_[defined];
  if (slot == nullptr) {
    std::vector<size_t> vjps(defined.size());
    std::iota(vjps.begin(), vjps.end(), 0);
    slot = std::make_shared<UndefinedGradients>(find_undefined_gradients(backward_, vjps, defined));
  }
  return slot;
}

}  // namespace aten_recompute
