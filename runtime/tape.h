// The tape differentiates operators without a gradient rule by ordinary autograd.
//
// The operator runs forward under autograd on detached inputs. The graph that autograd records is
// the tape. It is an opaque value of the region: it is saved like other values, or made again by
// running the operator again. The backward runs autograd's engine over the tape. This is correct
// for everything that eager PyTorch can differentiate, and costs as much.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/interned_strings.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/custom_class.h>

#include <memory>
#include <vector>

#include "common/torch_compat.h"

namespace aten_recompute {

// Attribute of a tape_forward: its number in the region, for TapeReach (runtime/tape_reach.h).
inline const c10::Symbol kTapeNumber = c10::Symbol::attr("tape_number");

// Describes one input of the tape, so that a zero gradient can be made for it.
struct TapeInput {
  std::vector<int64_t> sizes;
  at::TensorOptions options;
};

struct Tape : torch::CustomClassHolder {
  NodePtr<torch::autograd::Node> inputs_end;  // gradients of the inputs arrive here
  std::vector<TapeInput> inputs;              // inputs that require grad; lists are flattened
  std::vector<size_t> group_sizes;            // number of inputs per argument that requires grad
  std::vector<torch::autograd::Edge> output_edges;  // lists flattened; invalid: no gradient needed
  std::vector<size_t> output_sizes;                 // number of output edges per output
};

// Registers the operators aten_recompute::tape_forward and tape_backward (register/operators.cpp).
void register_tape_operators();

}  // namespace aten_recompute
