// The autograd nodes of one call of a region.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/compiled_region.h"
#include "backend/step_prediction.h"
#include "backend/step_watch.h"
#include "common/torch_compat.h"
#include "runtime/random_state.h"

namespace aten_recompute {

// A value kept for the backward. Tensors that the caller can reach (region inputs and outputs) are
// SavedVariables, which notice in-place changes; the rest nobody else can see.
struct SavedCapture {
  torch::autograd::SavedVariable variable;
  c10::IValue value;
  bool is_variable = false;
  // Under saved_tensors_hooks, for tensors of any origin: it is unpacked by the stage that reads
  // it.
  std::shared_ptr<torch::autograd::SavedVariable> packed;
};

// Keeps `value`. `reachable`: the caller can get hold of it; `is_output`: it is an output of the
// region and has the region's history.
SavedCapture save_capture(const c10::IValue& value, bool reachable, bool is_output);

// A region input that the backward does not read, kept for running the region again. Of an output
// of another region, which that region can compute again, nothing is kept alive.
struct ReplayInput {
  size_t input = 0;
  SavedCapture saved;
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor{c10::intrusive_ptr<c10::TensorImpl>()};
  uint32_t version = 0;
  torch::autograd::Edge maker;  // valid: `tensor` is what counts, and not `saved`
};
// `is_written`: by the region itself.
ReplayInput note_replay_input(size_t input, const c10::IValue& value, bool is_written);

// Sizes and type of a region output, to make a zero gradient of, and its memory.
struct OutputMetadata {
  std::vector<int64_t> sizes;
  at::TensorOptions options;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
};

// State that the stages of one call share. The captures go when the backward has taken them.
class RegionCall {
 public:
  RegionCall(std::shared_ptr<const CompiledRegion> compiled_region,
             std::vector<SavedCapture> inputs)
      : compiled_region_(std::move(compiled_region)), captures_(std::move(inputs)) {}

  ~RegionCall();
  RegionCall(const RegionCall&) = delete;
  RegionCall& operator=(const RegionCall&) = delete;

  const CompiledRegion& compiled_region() const { return *compiled_region_; }
  // Inputs that are no captures; before the region's forward, in the order of the inputs.
  void add_replay_input(ReplayInput input) { replay_inputs_.push_back(std::move(input)); }
  // Of the step that this is a part of, as its region run `number`.
  void set_watch(std::shared_ptr<StepWatch> watch, size_t number) {
    watch_ = std::move(watch);
    watch_->hold();
    number_ = number;
  }
  // The same where the plan is for this region alone: at the end of its backward the peak of the
  // step is noted in the compiled region, and held against the prediction.
  void set_own_watch(std::shared_ptr<StepWatch> watch, std::shared_ptr<PeakDifference> difference) {
    const auto number = watch->begin_forward();
    set_watch(std::move(watch), number);
    difference_ = std::move(difference);
  }
  // A gradient is about to be handed on to `target`.
  void watch_gradient(const torch::autograd::Node& target) const;
  void set_random_states(RandomStates states) { random_states_ = std::move(states); }

  // The backward that was built ahead of time does not do: a derivative of the gradients is asked
  // for, or they are batched, carry tangents or are not LibTorch's own tensors.
  static bool must_replay(const torch::autograd::variable_list& vjps);

  // In place of the stages: runs the region again under ordinary autograd, and that backward.
  // `needed`: per gradient. run_stage() then hands the results out.
  void replay(torch::autograd::variable_list&& vjps, const std::vector<bool>& needed,
              const NodePtr<torch::autograd::Node>& node);
  // Output `vjp` of the region once more, its history that of the first.
  at::Tensor replay_output(uint32_t vjp, const NodePtr<torch::autograd::Node>& node);

  void add_capture(SavedCapture capture) { captures_.push_back(std::move(capture)); }
  // A region input that a captured value, the one of this index, shares memory with.
  void add_guard(size_t capture, const at::Tensor& input) {
    guards_.emplace_back(capture, torch::autograd::SavedVariable(input, /*is_output=*/false));
  }
  void add_output(OutputMetadata metadata) { outputs_.push_back(std::move(metadata)); }

  // Runs a stage for the current graph task; returns its gradients. `needed` has one flag per
  // gradient of the stage, `later_stages` says whether a stage behind it will run.
  torch::autograd::variable_list run_stage(size_t stage, torch::autograd::variable_list&& vjps,
                                           const std::vector<bool>& needed, bool later_stages,
                                           const NodePtr<torch::autograd::Node>& node);
  void release();

 private:
  // Version of a capture when the backward began. Hooks run between two stages, and may write.
  struct CaptureVersion {
    size_t capture;  // index into captures_
    c10::VariableVersion counter;
    uint32_t version;
  };

  struct Run {
    Program::Registers registers;
    std::shared_ptr<const UndefinedGradients> undefined;  // nullptr: all vjps are defined
    // Captures that were changed in place, by register, and what unpacking them raised. Only what
    // reads one raises it: in eager, the nodes of other gradients do not run and do not notice.
    std::map<size_t, std::exception_ptr> changed;
    std::vector<CaptureVersion> versions;  // of captures that the caller can reach
    std::vector<std::pair<size_t, std::shared_ptr<torch::autograd::SavedVariable>>> packed;
    bool is_replay = false;
    torch::autograd::variable_list replayed;  // per gradient, where replay() has run
  };

  // Notes what has been changed since the backward began, for check_for_changes().
  void find_changes(Run& run) const;

  // Runs the stage's instructions. Under anomaly detection, returns the first of them that made a
  // NaN of values without any.
  const torch::jit::Node* run_instructions(Run& run, const Stage& stage,
                                           const std::vector<bool>& skip) const;

  // Raises where the stage reads a capture that was changed. `skip`: per instruction, or empty. The
  // first stage, where all of its gradients are asked for, looks for all that follow: eager raises
  // before a gradient of the same operator has left.
  void check_for_changes(const Run& run, const Program& program, const Stage& stage,
                         const std::vector<bool>& needed, bool all_needed,
                         const std::vector<bool>& skip) const;

  Run start(torch::autograd::variable_list&& vjps, const NodePtr<torch::autograd::Node>& node);
  // `inputs` of the backward, their gradients `defined`.
  std::vector<CallerBehaviour::Output> outputs_seen_with(const std::vector<c10::IValue>& inputs,
                                                         const std::vector<bool>& defined,
                                                         bool keeps_captures) const;
  void unpack_for_stage(Run& run, size_t stage, const NodePtr<torch::autograd::Node>& node) const;
  std::vector<c10::IValue> unpack_inputs(const NodePtr<torch::autograd::Node>& node) const;
  std::vector<c10::IValue> run_again(std::vector<c10::IValue> inputs) const;
  // Of outputs whose memory is gone.
  int64_t bytes_let_go() const;
  void forget_captures();

  std::shared_ptr<const CompiledRegion> compiled_region_;
  std::vector<SavedCapture> captures_;  // captured inputs, then captured outputs, in df's order
  std::vector<std::pair<size_t, torch::autograd::SavedVariable>> guards_;
  std::vector<OutputMetadata> outputs_;  // per vjp
  std::vector<ReplayInput> replay_inputs_;
  RandomStates random_states_;
  std::shared_ptr<StepWatch> watch_;  // nullptr: nobody watches
  size_t number_ = 0;
  std::shared_ptr<PeakDifference> difference_;  // nullptr: somebody else compares
  std::mutex mutex_;
  bool released_ = false;
  std::map<int, Run> runs_;  // by graph task: retained graphs may be walked by several at once
};

// Makes the stages' nodes and links them; returns the first one, which outputs are attached to.
// `edges[i]` is where output i of the backward program goes.
NodePtr<torch::autograd::Node> make_stages(const std::shared_ptr<RegionCall>& call,
                                           std::vector<torch::autograd::Edge> edges);

}  // namespace aten_recompute
