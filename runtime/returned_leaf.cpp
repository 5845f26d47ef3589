#include "runtime/returned_leaf.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <string>
#include <utility>

#include "common/torch_compat.h"

namespace aten_recompute {
namespace {

using torch::jit::Stack;

struct PassesGradient : torch::autograd::Node {
  explicit PassesGradient(torch::autograd::Edge next) { add_next_edge(std::move(next)); }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
  std::string name() const override { return "AtenRecomputePassesGradient"; }
};

void leaf_place(Stack& stack) {
  torch::jit::drop(stack, 1);
  stack.emplace_back(at::empty({0}).requires_grad_());
}

void return_leaf(Stack& stack) {
  const auto place = torch::jit::pop(stack).toTensor();
  const auto content = torch::jit::pop(stack).toTensor();
  auto* leaf = place.unsafeGetTensorImpl();
  leaf->shallow_copy_from(content.getIntrusivePtr());
  // What is written to the leaf later has to be noticed where its content was saved.
  leaf->set_version_counter(content.unsafeGetTensorImpl()->version_counter());
  if (const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(place)) {
    accumulator->clear_input_metadata();
    accumulator->add_input_metadata(place);
  }
  stack.emplace_back(place);
}

}  // namespace

at::Tensor lead_gradient_to(const at::Tensor& tensor, const at::Tensor& place) {
  auto named = tensor.detach();
  torch::autograd::set_history(
      named, make_node<PassesGradient>(torch::autograd::impl::gradient_edge(place)));
  return named;
}

void register_returned_leaf_operators() {
  const auto from_schema = c10::AliasAnalysisKind::FROM_SCHEMA;
  static const torch::jit::RegisterOperators registered({
      torch::jit::Operator("aten_recompute::leaf_place(int number) -> Tensor", leaf_place,
                           from_schema),
      torch::jit::Operator(
          "aten_recompute::return_leaf(Tensor(a) content, Tensor place) -> Tensor(a)", return_leaf,
          from_schema),
  });
}

}  // namespace aten_recompute
