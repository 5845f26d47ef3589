// The tape: operators without a gradient rule, differentiated by ordinary autograd.
//
// The operator runs forward under autograd on detached inputs; the graph that autograd records is
// the tape, an opaque value of the region like any other: saved, or made again by running the
// operator again. Its backward runs autograd's engine over it. Correct for whatever eager can
// differentiate, at eager's cost.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/custom_class.h>

#include <memory>
#include <vector>

#include "common/torch_compat.h"

namespace aten_recompute {

// What one tape input needs to make a zero gradient.
struct TapeInput {
  std::vector<int64_t> sizes;
  at::TensorOptions options;
  bool is_list_element = false;
};

struct Tape : torch::CustomClassHolder {
  NodePtr<torch::autograd::Node> inputs_end;        // gradients of the inputs arrive here
  std::vector<TapeInput> inputs;                    // those that require grad, lists flattened
  std::vector<size_t> group_sizes;                  // inputs per argument that requires grad
  std::vector<torch::autograd::Edge> output_edges;  // lists flattened; invalid: needs no gradient
  std::vector<size_t> output_sizes;                 // output edges per output
};

// Registers the operators aten_recompute::tape_forward and tape_backward (register/operators.cpp).
void register_tape_operators();

}  // namespace aten_recompute
