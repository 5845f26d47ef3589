// A region compiled for one set of inputs that require grad: what its forward and its stages share.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/caller_behaviour.h"
#include "backend/region_replay.h"
#include "backend/step_prediction.h"
#include "passes/pipeline.h"
#include "runtime/program.h"

namespace aten_recompute {

// What a region is compiled for.
struct SpecialisationKey {
  std::vector<bool> requires_grad;  // per input
  std::vector<bool> returned;       // ReturnedArguments::find
  // Pairs of inputs, the former before the latter, that are one and the same tensor.
  std::vector<std::pair<size_t, size_t>> same;
  auto operator<=>(const SpecialisationKey&) const = default;
};

// A stretch of the backward program that is one autograd node. No parameter gradient waits for the
// end of the region: it leaves once it is made and its parameter has been read for the last time,
// as whoever gets it may update the parameter at once.
//
//   program   0: dw2 = mm(dy, h)  1: dh = mm(dy, w2)  2: threshold_backward  3: dw1 = mm(dh, x)
//   stages    |------------------0-------------------|------------------1---------------------|
//   begin, end               0..2                                      2..4
struct Stage {
  size_t begin = 0;  // instructions [begin, end) of the backward program
  size_t end = 0;
  std::vector<size_t> gradients;  // outputs of the backward program that leave with it
  std::vector<bool> live_after;   // per register: read by a later stage
};

// What changes where only some of the outputs have a gradient.
struct UndefinedGradients {
  std::vector<bool> skip;       // per instruction: works on, or for, undefined gradients only
  std::vector<bool> undefined;  // per gradient: no defined one reaches it
  std::vector<bool> zero_vjp;   // per vjp: undefined, but needed as a zero tensor
};

class CompiledRegion {
 public:
  // `caller`: of the compiled regions that were planned with the same profile; nullptr: there are
  // none.
  CompiledRegion(RegionGraphs graphs, std::shared_ptr<CallerBehaviour> caller = nullptr);

  const RegionGraphs& graphs() const { return graphs_; }
  const torch::jit::Gradient& gradient() const { return graphs_.gradient; }
  const Program& forward() const { return forward_; }
  const Program& backward() const { return backward_; }
  // Gradients leave summand by summand (passes/partition/split_sums.h): for each output of the
  // backward, the index in Gradient::df_output_vjps of what it is a summand of.
  const std::vector<size_t>& summand_of() const { return graphs_.summand_of; }
  const std::vector<Stage>& stages() const { return stages_; }
  size_t num_vjps() const { return graphs_.gradient.df_input_vjps.size(); }

  // For each captured output that may share memory with a region input: those inputs. A change of
  // the input must then be noticed although the input itself is not captured.
  const std::vector<std::vector<size_t>>& aliased_inputs() const { return aliased_inputs_; }

  // Per register of the backward: the registers of captures whose memory it may lie in. A capture's
  // own is among its.
  const std::vector<std::vector<int32_t>>& captures_of() const { return captures_of_; }

  // Per captured input: nothing but its metadata is read. Then it does not matter whether somebody
  // writes to it before the backward.
  const std::vector<bool>& read_as_metadata() const { return read_as_metadata_; }

  // Per capture: the first stage that reads it, or what lies in its memory.
  const std::vector<size_t>& first_stage_of() const { return first_stage_of_; }

  // Made when it is first asked for; thread-safe.
  const RegionReplay& replay() const;
  // nullptr: without a profile.
  const std::shared_ptr<CallerBehaviour>& caller() const { return caller_; }
  // The caller does what the plan was not made for.
  bool is_outdated() const { return caller_ != nullptr && caller_->differs(); }
  // A step is to be watched: none has been that could be compared with the plan.
  bool wants_watch() const { return measured_peak_bytes_ < 0 && num_watched_++ < kMaxWatchedSteps; }
  // A step of this region alone.
  void note_step(const StepMemory& step, PeakDifference& difference) const;
  // Bytes; -1: unknown.
  int64_t measured_peak_bytes() const { return measured_peak_bytes_; }
  const std::vector<bool>& written_inputs() const { return written_inputs_; }
  bool draws_random_numbers() const { return draws_random_numbers_; }

  // `defined[k]`: vjp k is defined. Computed once per mask; thread-safe.
  std::shared_ptr<const UndefinedGradients> undefined_gradients(
      const std::vector<bool>& defined) const;

 private:
  void find_stages();
  void find_aliases();
  void find_captures();
  void find_first_stages();
  void find_metadata();
  std::vector<size_t> last_reads_of_inputs() const;

  RegionGraphs graphs_;
  std::shared_ptr<CallerBehaviour> caller_;
  Program forward_;
  Program backward_;
  std::vector<Stage> stages_;
  std::vector<std::vector<size_t>> aliased_inputs_;
  std::vector<std::vector<int32_t>> captures_of_;
  std::vector<size_t> first_stage_of_;
  std::vector<bool> read_as_metadata_;
  std::vector<bool> written_inputs_;
  bool draws_random_numbers_ = false;
  mutable std::atomic<int64_t> measured_peak_bytes_{-1};
  mutable std::atomic<size_t> num_watched_{0};
  mutable std::mutex mutex_;
  mutable std::unique_ptr<RegionReplay> replay_;
  mutable std::map<std::vector<bool>, std::shared_ptr<const UndefinedGradients>> masks_;
};

}  // namespace aten_recompute
