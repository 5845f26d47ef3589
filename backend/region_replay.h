// A region's forward run once more under ordinary autograd, as a checkpoint would: for derivatives
// of the region's gradients, and for gradients that are batched or carry tangents, which the
// backward that was built ahead of time knows nothing of.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "runtime/program.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

class RegionReplay {
 public:
  // `forward` is the region as it was scripted; not changed.
  explicit RegionReplay(const std::shared_ptr<torch::jit::Graph>& forward);

  // The region's outputs, as autograd is at the time. It warns of nothing again and changes no
  // statistics, counters or buffers: what the region writes to is given to it as a copy.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs) const;

 private:
  Program program_;
};

// Per input of the region: the region itself writes to it, so that a later change is none that
// running it again has to notice.
std::vector<bool> inputs_written_by(torch::jit::Graph& forward);

// Does any operator of the region draw random numbers?
bool draws_random_numbers(torch::jit::Graph& forward);

}  // namespace aten_recompute
