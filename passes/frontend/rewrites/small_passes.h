// Passes of a method that are too small for files of their own.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// What a prepared graph assumes about one input.
struct InputAssumption {
  size_t input = 0;      // index among the method's inputs, not counting self
  bool is_none = false;  // whether an Optional input is None
  int64_t rank = -1;     // number of dimensions of a tensor input; -1 if not assumed
};

// Replaces Optional inputs by None or gives them their element type, and gives tensor inputs their
// rank, so that dim() of them and of values computed from them is constant. The graph's first input
// is the module. Returns what is assumed.
std::vector<InputAssumption> specialize_inputs(const std::shared_ptr<torch::jit::Graph>& graph,
                                               const std::vector<c10::IValue>& inputs);

// Removes dropout that does nothing: dropout(x, p, train=False) returns x itself, an alias that its
// schema does not declare.
void remove_idle_dropout(torch::jit::Graph& graph);

// Removes slices of a whole dimension that another index reads, such as the first of x[:, 1:3]:
// where Python runs that, eager PyTorch makes one slice. Each makes its gradient in memory of its
// own.
void remove_whole_slices(torch::jit::Graph& graph);

// Rewrites expand_as(x, y), view_as(x, y) and reshape_as(x, y) to expand(x, y.size()) and so on.
// They read the sizes of y only; made again for the backward, they would keep y itself.
void replace_view_as(torch::jit::Graph& graph);

// Propagates constants. torch.zeros(3) is a new tensor at each call, which the caller may write to.
// So where a folded tensor may be seen by others than the operators that read it, it is copied.
void propagate_constants(const std::shared_ptr<torch::jit::Graph>& graph);

// Runs LibTorch's peephole pass, which takes complex constants for real ones and is left out where
// there are some.
void simplify(const std::shared_ptr<torch::jit::Graph>& graph);

// Infers ranks with LibTorch's shape propagation. That runs operators on made-up tensors, which
// some operators refuse; what was inferred before remains valid. Only ranks are used, because it
// takes torch.zeros(3) for a tensor of doubles, whatever the default type is.
void propagate_shapes(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
