// Runs a region's forward again under ordinary autograd, as a checkpoint would. This serves
// derivatives of the region's gradients, and gradients that are batched or carry tangents, which
// the backward that was compiled ahead of time cannot compute.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "passes/pipeline.h"
#include "runtime/program.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// A region's forward without effects. Thread-safe.
class RegionReplay {
 public:
  // `forward` is the region as it was scripted, with the casts of autocast. It is copied, not
  // changed. Only what this output needs is run.
  RegionReplay(const std::shared_ptr<torch::jit::Graph>& forward, size_t output);

  // All of it is run, and gradients with respect to `inputs` are wanted. Each reader of such an
  // input gets an alias, or where the input is one of `shared`, an alias of its cast: the gradient
  // of that is a summand of the input's. run() returns them after the outputs of the region.
  RegionReplay(const std::shared_ptr<torch::jit::Graph>& forward, const std::vector<size_t>& inputs,
               const SharedCasts& shared);

  // Returns, for each alias, the input that it is read in place of. Summands of one input stand in
  // the order in which the engine would add them.
  const std::vector<size_t>& aliases() const { return aliases_; }

  // Returns whether the run reads this input of the region.
  bool reads_input(size_t input) const { return reads_input_[input]; }
  const Program& program() const { return program_; }

  // Returns the region's outputs, or the one asked for, and the aliases, with a history if
  // gradients are enabled. `inputs` are those of the region, then copies of those that
  // statistics_read_by() returns, from the time of the first run. Repeats no warning and changes no
  // statistics, counters or buffers: the region gets copies of what it writes to.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs) const;

 private:
  struct Prepared;
  explicit RegionReplay(Prepared&& prepared);

  std::vector<size_t> aliases_;
  Program program_;
  std::vector<bool> reads_input_;
};

// Returns, for each input of the region, whether the region itself writes to it. A replay need not
// notice later changes of such an input.
std::vector<bool> inputs_written_by(torch::jit::Graph& forward);

// Returns the inputs of which norms in evaluation read the running statistics, in ascending order.
// Other calls may update those before a replay, and no version counter tells.
std::vector<size_t> statistics_read_by(torch::jit::Graph& forward);

// Returns whether an operator of the region may draw random numbers.
bool draws_random_numbers(torch::jit::Graph& forward);

}  // namespace aten_recompute
