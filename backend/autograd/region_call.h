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
#include <optional>
#include <utility>
#include <vector>

#include "backend/autograd/compiled_region.h"
#include "backend/autograd/handed_value.h"
#include "backend/memory/pending_calls.h"
#include "backend/memory/step_prediction.h"
#include "backend/memory/step_watch.h"
#include "common/torch_compat.h"
#include "runtime/arena/step_arena.h"
#include "runtime/random_state.h"

namespace aten_recompute {

// A value kept for the backward. Tensors that the caller can reach (region inputs and outputs) are
// SavedVariables, which detect in-place changes. Nobody else can see the other values.
struct SavedCapture {
  torch::autograd::SavedVariable variable;  // used if `is_variable`
  c10::IValue value;                        // used otherwise
  bool is_variable = false;
  // Used under saved_tensors_hooks, for every tensor. The first stage that reads the value unpacks
  // it.
  std::shared_ptr<torch::autograd::SavedVariable> packed;
  // Set where the plan has the value made again by the region that made it.
  std::shared_ptr<HandedValue> handed;
};

// Returns `value`, saved. `reachable` says whether the caller can reach it, `is_output` whether it
// is an output of the region and has the region's history.
SavedCapture save_capture(const c10::IValue& value, bool reachable, bool is_output);

// A region input that the backward does not read, noted for a replay of the region. An output of
// another region is not kept alive, because that region can compute it again, unless the plan has
// it kept.
struct ReplayInput {
  size_t input = 0;    // index among the region's inputs
  SavedCapture saved;  // unused for the output of another region, which has the other fields
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor{c10::intrusive_ptr<c10::TensorImpl>()};
  uint32_t version = 0;
  torch::autograd::Edge maker;  // valid only for the output of another region
};
// Returns the record of `value`, the region's input of this index. `is_written` says that the
// region itself writes to it, so that its version does not matter.
ReplayInput note_replay_input(size_t input, const c10::IValue& value, bool is_written);

// Returns, for each of the region's inputs, whether the backward reads its values.
std::vector<bool> captured_inputs(const CompiledRegion& compiled_region, size_t num_inputs);

// Returns where the gradients that the region computes go, in their order.
std::vector<torch::autograd::Edge> gradient_edges(const CompiledRegion& compiled_region,
                                                  const std::vector<c10::IValue>& inputs);

// Sizes and type of a region output, from which a zero gradient can be made, and its memory.
struct OutputMetadata {
  std::vector<int64_t> sizes;
  at::TensorOptions options;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
};

// State that the stages of one call share. Unless the graph is retained, the first backward takes
// the captures out. run_stage(), replay(), replay_output() and release() are thread-safe.
class RegionCall {
 public:
  // `inputs` are the captured inputs, in the order of the backward's inputs.
  RegionCall(std::shared_ptr<const CompiledRegion> compiled_region,
             std::vector<SavedCapture> inputs)
      : compiled_region_(std::move(compiled_region)), captures_(std::move(inputs)) {}

  ~RegionCall();
  RegionCall(const RegionCall&) = delete;
  RegionCall& operator=(const RegionCall&) = delete;

  const CompiledRegion& compiled_region() const { return *compiled_region_; }
  // Adds an input that is not captured. Needs to be called before the region's forward, in the
  // order of the inputs.
  void add_replay_input(ReplayInput input) { replay_inputs_.push_back(std::move(input)); }
  // Adds a reader of an output of the region that has it made again where it is gone.
  void add_reader(const std::shared_ptr<HandedValue>& reader);
  // Adds a copy of running statistics that a replay reads, in the order of
  // CompiledRegion::read_statistics().
  void add_statistics(c10::IValue copy) { statistics_.push_back(std::move(copy)); }
  // The step has this region alone, so that its plan is that of the step.
  void set_alone() { is_alone_ = true; }
  // Sets the watch of the step in which this call is region run `number`.
  void set_watch(std::shared_ptr<StepWatch> watch, size_t number) {
    watch_ = std::move(watch);
    watch_->hold();
    number_ = number;
  }
  // Sets the watch of a step that runs this region alone. When its backward ends, the compiled
  // region notes the step's memory, and `difference` compares the peak with the prediction.
  // `has_other_sizes`: CompiledRegion::note_step().
  void set_own_watch(std::shared_ptr<StepWatch> watch, bool has_other_sizes,
                     std::shared_ptr<PeakDifference> difference) {
    has_other_sizes_ = has_other_sizes;
    const auto number = watch->begin_forward();
    set_watch(std::move(watch), number);
    difference_ = std::move(difference);
  }
  // Counts the call, which has returned, among those whose backward may come.
  void wait_for_backward();
  // Notes that the data of the call made smaller or larger tensors than those planned for.
  void note_other_sizes() { has_other_sizes_ = true; }
  // Notes that this output of the backward program is about to be passed to `target`.
  void watch_gradient(size_t output, const torch::autograd::Node& target) const;
  // Sets the step whose arena serves this call, which is run `number` of it. What makes single
  // outputs again is run `number_again`.
  void set_arena(OpenStep step, size_t number, size_t number_again) {
    arena_step_ = std::move(step);
    arena_run_ = number;
    arena_run_again_ = number_again;
  }
  void set_random_states(RandomStates states) { random_states_ = std::move(states); }

  // Returns whether the backward that was compiled ahead of time cannot compute these gradients,
  // because their derivatives are wanted, or because the vjps are batched, carry tangents or are of
  // a tensor subclass.
  static bool must_replay(const torch::autograd::variable_list& vjps);

  // Runs the region again under ordinary autograd, and the backward of that, in place of the
  // stages; run_stage() then returns the results. `needed` has one flag per gradient of the region,
  // `node` is the first stage. Throws as run_stage() does.
  void replay(torch::autograd::variable_list&& vjps, const std::vector<bool>& needed,
              const NodePtr<torch::autograd::Node>& node);
  // Computes output `vjp` of the region again and returns it with the history of the first one.
  // Throws as run_stage() does.
  at::Tensor replay_output(uint32_t vjp, const NodePtr<torch::autograd::Node>& node);

  void add_capture(SavedCapture capture) { captures_.push_back(std::move(capture)); }
  // Adds a region input that the captured value of this index shares memory with.
  void add_guard(size_t capture, const at::Tensor& input) {
    guards_.emplace_back(capture, torch::autograd::SavedVariable(input, /*is_output=*/false));
  }
  void add_output(OutputMetadata metadata) { outputs_.push_back(std::move(metadata)); }

  // Returns whether none of the needed gradients depends on a defined vjp. The engine runs the
  // region where one of its edges leads to a target of autograd.grad(), even if no operator
  // connects the outputs that have gradients with it. Eager PyTorch has no node there that would
  // run, or whose saved values would be freed.
  bool passes_nothing(const torch::autograd::variable_list& vjps,
                      const std::vector<bool>& needed) const;
  // Has run_stage() return undefined gradients only, whether or not the captures are released.
  void pass_nothing();

  // Runs a stage for the current graph task and returns its gradients. `needed` has one flag per
  // gradient of the stage, `later_stages` says whether a later stage will run. `vjps` are read by
  // the first stage only. Throws c10::Error where the captures are released already or one that is
  // read was changed in place, and where anomaly detection finds a NaN.
  torch::autograd::variable_list run_stage(size_t stage, torch::autograd::variable_list&& vjps,
                                           const std::vector<bool>& needed, bool later_stages,
                                           const NodePtr<torch::autograd::Node>& node);
  // Drops the captures; later stages throw.
  void release();

 private:
  // Version of a capture when the backward began. Hooks that run between two stages may write to
  // it.
  struct CaptureVersion {
    size_t capture;  // index into captures_
    c10::VariableVersion counter;
    uint32_t version;
  };

  // State of one backward through the stages.
  struct Run {
    Program::Registers registers;
    std::shared_ptr<const UndefinedGradients> undefined;  // nullptr if all vjps are defined
    // Captures that were changed in place, by register, with the exception that unpacking threw. It
    // is thrown only where such a capture is read: in eager PyTorch, nodes of gradients that are
    // not needed do not run and do not notice either.
    std::map<size_t, std::exception_ptr> changed;
    std::vector<CaptureVersion> versions;  // of captures that the caller can reach
    // Captures that are not unpacked yet: their index, and what holds them.
    std::vector<std::pair<size_t, std::shared_ptr<torch::autograd::SavedVariable>>> packed;
    // Captures that are not in their registers yet: their index, and what finds them.
    std::vector<std::pair<size_t, std::shared_ptr<HandedValue>>> handed;
    bool keeps_captures = false;  // for another backward
    size_t pass = 0;              // number of this backward among those of the call, from 1
    bool is_replay = false;
    torch::autograd::variable_list replayed;  // per gradient, if replay() has run
  };

  // Adds captures that were changed since the backward began to `run.changed`.
  void find_changes(Run& run) const;

  // Puts captures that other regions make again into their registers if instruction `index`, or
  // with `index` at the end of the stage a gradient that leaves it, reads them.
  void find_handed(Run& run, const Stage& stage, size_t index) const;
  // Runs the stage's instructions. Captures that other regions make again are found just before
  // their first read.
  void run_piecewise(Run& run, const Stage& stage, const std::vector<bool>& skip) const;
  // Has what later regions have not read yet made again. Must be called without mutex_, before the
  // captures are released.
  void serve_readers();

  // Runs the stage's instructions. Under anomaly detection, returns the first one whose result
  // has a NaN; nullptr otherwise.
  const torch::jit::Node* run_instructions(Run& run, const Stage& stage,
                                           const std::vector<bool>& skip) const;

  // Throws if the stage reads a capture that was changed. `skip` has a flag per instruction, or is
  // empty. The first stage, if all gradients are needed, checks the later stages as well, because
  // eager PyTorch throws before any gradient of the same operator has left.
  void check_for_changes(const Run& run, const Program& program, const Stage& stage,
                         const std::vector<bool>& needed, bool all_needed,
                         const std::vector<bool>& skip) const;

  // Takes the run of the current graph task out of `runs_`; stage 0 starts it if there is none.
  Run take_run(size_t stage, torch::autograd::variable_list&& vjps,
               const NodePtr<torch::autograd::Node>& node);
  // Does it for a replay; returns nothing if there is none. Needs mutex_ to be held.
  std::optional<Run> take_replay();
  // Notes what replay() has computed, for run_stage(). Needs mutex_ to be held.
  void put_replay(Run&& run);
  // Makes the run available to the next stage.
  void put_back(Run&& run);
  // Returns the gradients of stage `index` that are needed and defined. Throws where one contains a
  // NaN and `first_nan`, a result of run_instructions(), is given.
  torch::autograd::variable_list take_gradients(Run& run, size_t index,
                                                const std::vector<bool>& needed, bool later_stages,
                                                const torch::jit::Node* first_nan,
                                                const NodePtr<torch::autograd::Node>& node) const;
  Run start(torch::autograd::variable_list&& vjps, const NodePtr<torch::autograd::Node>& node);
  // For a backward that retains no graph and starts at some of the outputs only: returns per
  // capture whether the others read it. They may have a backward of their own, as graphs that share
  // nothing have in eager PyTorch. Returns nullopt where nobody holds another output, or where an
  // operator that reads a capture runs for both. `inputs` are those of the backward program.
  std::optional<std::vector<bool>> captures_of_others(const std::vector<bool>& defined,
                                                      const std::vector<bool>& skip,
                                                      const std::vector<c10::IValue>& inputs) const;
  // Returns the state of the region's outputs. `inputs` are those of the backward program, and
  // `defined` says which vjps are. With `keeps_captures` no output counts as freed.
  std::vector<CallerBehavior::Output> outputs_seen_with(const std::vector<c10::IValue>& inputs,
                                                        const std::vector<bool>& defined,
                                                        bool keeps_captures) const;
  // Unpacks the captures that this stage is the first to read.
  void unpack_for_stage(Run& run, size_t stage, const NodePtr<torch::autograd::Node>& node) const;
  // Returns the inputs that `replay` reads. Needs mutex_ to be held. Throws c10::Error where the
  // captures are released or an input was changed in place.
  std::vector<c10::IValue> unpack_inputs(const RegionReplay& replay,
                                         const NodePtr<torch::autograd::Node>& node) const;
  // Replays the region with the random numbers of the first run, and returns the results.
  std::vector<c10::IValue> run_again(const RegionReplay& replay,
                                     std::vector<c10::IValue> inputs) const;
  // Returns the bytes of outputs whose memory has been freed.
  int64_t bytes_let_go() const;
  // Returns the bytes that the captures which are not the caller's, and the outputs, lie in.
  int64_t bytes_kept() const;
  // Notes that a backward begins, which may leave the captures for another one.
  void note_retained(bool keeps_graph);
  void forget_captures();
  // Ends this call's part in the step of the arena, unless the backward can run again.
  void end_arena_step();

  std::shared_ptr<const CompiledRegion> compiled_region_;
  std::unique_ptr<PendingCalls::Call> pending_;  // as long as there are captures
  std::vector<SavedCapture> captures_;  // captured inputs, then captured outputs, in df's order
  std::vector<std::pair<size_t, torch::autograd::SavedVariable>> guards_;
  std::vector<OutputMetadata> outputs_;  // per vjp
  std::vector<ReplayInput> replay_inputs_;
  std::vector<c10::IValue> statistics_;
  RandomStates random_states_;
  std::shared_ptr<StepWatch> watch_;            // nullptr if the step is not watched
  size_t number_ = 0;                           // this run's number in the watch
  std::shared_ptr<PeakDifference> difference_;  // set if the step runs this region alone
  // Tensors have other sizes than those planned for, or fewer calls wait, or backwards follow.
  bool has_other_sizes_ = false;
  OpenStep arena_step_;
  size_t arena_run_ = 0;
  size_t num_passes_ = 0;
  size_t arena_run_again_ = 0;
  size_t num_runs_again_ = 0;  // for the sake of single outputs
  std::vector<std::weak_ptr<HandedValue>> readers_;
  std::mutex mutex_;
  bool released_ = false;
  std::vector<bool> is_spent_;  // per vjp: a backward has freed its graph; empty: none has
  bool is_alone_ = false;
  std::map<int, Run> runs_;  // by graph task: several may walk a retained graph at once
  // Replays, by graph task, which owns them: their gradients lead back to this call, so that it
  // would never be freed if it owned what a backward that failed has left behind.
  std::map<int, std::weak_ptr<Run>> replays_;
};

}  // namespace aten_recompute
