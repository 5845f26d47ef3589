// A region compiled for one SpecializationKey: what its forward and its stages share.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/autograd/region_replay.h"
#include "backend/memory/caller_behavior.h"
#include "backend/memory/step_prediction.h"
#include "passes/pipeline.h"
#include "runtime/arena/step_arena.h"
#include "runtime/autocast.h"
#include "runtime/program.h"
#include "runtime/undefined_gradients.h"

namespace aten_recompute {

// The properties of a call's inputs that a region is compiled for.
struct SpecializationKey {
  std::vector<bool> requires_grad;  // per input
  std::vector<bool> returned;       // what NoopElimination::find returned
  // Pairs of inputs, the smaller index first, that are the same tensor.
  std::vector<std::pair<size_t, size_t>> same;
  // All tensors are on the CPU; false for a region of which no operator depends on that.
  bool is_on_cpu = false;
  // A tensor holds complex numbers; false for a region of which no gradient depends on that.
  bool is_complex = false;
  bool may_change_layouts = false;  // see passes/region/choose_layout.h
  // What autocast does to the call. Where it is on: per input, the type of a tensor, and whether it
  // is a leaf.
  AutocastState autocast{};
  std::vector<std::pair<int, bool>> types{};
  // NOLINTNEXTLINE(modernize-use-nullptr): the check takes the 0 of a comparison for a pointer
  auto operator<=>(const SpecializationKey&) const = default;
};

// A stretch of the backward program that is one autograd node. A parameter's gradient does not wait
// for the end of the region: it leaves once it is computed and its parameter has been read for the
// last time, because whoever receives the gradient may update the parameter at once.
//
//   program   0: dw2 = mm(dy, h)  1: dh = mm(dy, w2)  2: threshold_backward  3: dw1 = mm(dh, x)
//   stages    |------------------0-------------------|------------------1---------------------|
//   begin, end               0..2                                      2..4
struct Stage {
  size_t begin = 0;  // instructions [begin, end) of the backward program
  size_t end = 0;
  std::vector<size_t> gradients;  // outputs of the backward program that the stage returns
};

// What a plan for the whole method has a region do with values that regions hand to each other.
struct HandedOver {
  std::vector<size_t> made_again;  // its inputs that are not kept: another region makes them again
  // Results that it need not keep for its own backward, as values of its problem.
  std::vector<int32_t> results;
  bool makes_again = false;  // a later region may have it make an output again
};

// The programs of a compiled region, and what its calls need to know of them. Thread-safe.
class CompiledRegion {
 public:
  // `caller` is that of the compiled regions that were planned with the same profile. With nullptr
  // the region gets one of its own, if it has a profile.
  CompiledRegion(RegionGraphs graphs, std::shared_ptr<CallerBehavior> caller = nullptr,
                 HandedOver handed = {});

  const RegionGraphs& graphs() const { return graphs_; }
  // Returns the plan; nullptr where the region was not profiled.
  const RegionPlan* plan() const { return graphs_.plan ? &*graphs_.plan : nullptr; }
  const torch::jit::Gradient& gradient() const { return graphs_.gradient; }
  const Program& forward() const { return forward_; }
  const Program& backward() const { return backward_; }
  // Returns, for each output of the backward, which gradient of Gradient::df_output_vjps it is a
  // summand of. Gradients leave summand by summand.
  const std::vector<Summand>& summands() const { return graphs_.summands; }
  const std::vector<Stage>& stages() const { return stages_; }
  // Returns whether a stage after this one reads a register of the backward or returns it.
  bool is_read_after(size_t stage, int32_t index) const {
    return last_stage_of_[index] > static_cast<int64_t>(stage);
  }
  size_t num_vjps() const { return graphs_.gradient.df_input_vjps.size(); }

  // Returns, for each captured output, the region inputs that it may share memory with. A change of
  // such an input must be noticed although the input itself is not captured.
  const std::vector<std::vector<size_t>>& aliased_inputs() const { return aliased_inputs_; }
  // Returns, for each captured output, whether it is an output of the region or may share memory
  // with one, which the caller may change.
  const std::vector<bool>& shares_with_output() const { return shares_with_output_; }

  // Returns, for each register of the backward, the registers of the captures whose memory its
  // value may share. The list of a capture contains its own register.
  const std::vector<std::vector<int32_t>>& captures_of() const { return captures_of_; }

  // Returns, for each captured input, whether the backward reads its metadata only. Writing to such
  // an input before the backward does no harm.
  const std::vector<bool>& read_as_metadata() const { return read_as_metadata_; }

  // Returns, for each capture, the first stage that reads it or a value in its memory.
  const std::vector<size_t>& first_stage_of() const { return first_stage_of_; }

  // Returns the region's replay, which the first call makes.
  const RegionReplay& replay() const;
  // Returns the replay of one output, which the first call makes.
  const RegionReplay& replay_of_output(size_t output) const;
  const HandedOver& handed() const { return handed_; }
  // Returns nullptr for a region without a profile.
  const std::shared_ptr<CallerBehavior>& caller() const { return caller_; }
  // Returns whether the caller does something that the plan was not made for.
  bool is_outdated() const { return caller_ != nullptr && caller_->differs(); }
  // Returns whether the next step is to be watched: no step so far could be compared with the plan,
  // and fewer than kMaxWatchedSteps of its kind were watched. Counts the step if so.
  // `has_other_sizes` says that its tensors have other sizes than those planned for.
  bool wants_watch(bool has_other_sizes) const {
    auto& count = has_other_sizes ? num_others_watched_ : num_watched_;
    return measured_peak_bytes_ < 0 && count++ < kMaxWatchedSteps;
  }
  // Notes the memory of a step of this region alone: what the loss took, and where the step can be
  // compared with the plan, its peak, which `difference` compares with the prediction. Of a step
  // with other sizes only a peak over the budget says something. Needs a region with a profile.
  void note_step(const StepMemory& step, bool has_other_sizes, PeakDifference& difference) const;
  // Returns the measured peak of a step in bytes; -1 where none is known.
  int64_t measured_peak_bytes() const { return measured_peak_bytes_; }
  // Notes that a call of this region has run out of memory.
  void note_out_of_memory() const { ran_out_of_memory_ = true; }
  bool ran_out_of_memory() const { return ran_out_of_memory_; }
  // Returns, for each input, whether the region itself writes to it.
  const std::vector<bool>& written_inputs() const { return written_inputs_; }
  // Returns the inputs of which a replay needs copies from the first run (statistics_read_by()).
  const std::vector<size_t>& read_statistics() const { return read_statistics_; }
  // Returns the plans of steps of which this is the first region.
  ArenaPlans& arena_plans() const { return *arena_plans_; }
  bool draws_random_numbers() const { return draws_random_numbers_; }
  // Returns after how many instructions of the forward data have decided sizes, as long as the
  // forward can be given up there: what ran before has no effects.
  const std::vector<size_t>& data_checks() const { return data_checks_; }

  // Returns how the backward changes where `defined[k]` says whether vjp k is defined. This is
  // computed once for each mask.
  std::shared_ptr<const UndefinedGradients> undefined_gradients(
      const std::vector<bool>& defined) const;

 private:
  void find_stages();
  void find_aliases();
  void find_shared_captures();
  void find_captures();
  void find_first_stages();
  // Returns what the loss of a step took, as loss_memory() does. `has_other_sizes`: note_step().
  std::optional<LossMemory> loss_of(const StepMemory& step, bool has_other_sizes) const;
  void find_metadata();
  // Returns, for each region input, the number of instructions of the backward that have run when
  // it, or a value in its memory, has been read for the last time.
  std::vector<size_t> last_reads_of_inputs() const;

  RegionGraphs graphs_;
  std::shared_ptr<CallerBehavior> caller_;
  HandedOver handed_;
  Program forward_;
  Program backward_;
  std::vector<Stage> stages_;
  // Per register of the backward: the last stage that reads or returns it; -1 if none does.
  std::vector<int64_t> last_stage_of_;
  std::vector<std::vector<size_t>> aliased_inputs_;
  std::vector<bool> shares_with_output_;
  std::vector<std::vector<int32_t>> captures_of_;
  std::vector<size_t> first_stage_of_;
  std::vector<bool> read_as_metadata_;
  std::vector<bool> written_inputs_;
  std::vector<size_t> read_statistics_;
  std::shared_ptr<ArenaPlans> arena_plans_ = std::make_shared<ArenaPlans>();
  bool draws_random_numbers_ = false;
  std::vector<size_t> data_checks_;
  mutable std::atomic<int64_t> measured_peak_bytes_{-1};
  mutable std::atomic<size_t> num_watched_{0};
  mutable std::atomic<size_t> num_others_watched_{0};
  mutable std::atomic<bool> ran_out_of_memory_{false};
  mutable std::mutex mutex_;
  mutable std::unique_ptr<RegionReplay> replay_;
  mutable std::map<size_t, std::unique_ptr<RegionReplay>> replay_of_output_;
  mutable std::map<std::vector<bool>, std::shared_ptr<const UndefinedGradients>> masks_;
};

}  // namespace aten_recompute
