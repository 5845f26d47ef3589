#include "backend/missing_gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "backend/stage_node.h"

namespace aten_recompute {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::FunctionPostHook;
using torch::autograd::FunctionPreHook;
using torch::autograd::Node;
using torch::autograd::PostAccumulateGradHook;
using torch::autograd::variable_list;
using torch::dynamo::autograd::CompiledNodeArgs;

bool none_defined(const variable_list& gradients) {
  return std::none_of(gradients.begin(), gradients.end(),
                      [](const at::Tensor& gradient) { return gradient.defined(); });
}

// Whether all edges to `node` in the backward that runs now are those of regions.
bool only_regions_lead_to(const Node* node) {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  return nodes != nullptr && std::all_of(nodes->begin(), nodes->end(), [&](const Node* other) {
           const auto& edges = other->next_edges();
           return dynamic_cast<const StageNode*>(other) != nullptr ||
                  std::none_of(edges.begin(), edges.end(),
                               [&](const auto& edge) { return edge.function.get() == node; });
         });
}

// What both kinds of wrapped hooks share.
template <typename Hook>
class Wrapped : public Hook {
 public:
  // Puts a wrapper into `place`, which is never empty meanwhile: another thread's backward may be
  // calling the hook.
  template <typename Wrapper>
  static void wrap(std::unique_ptr<Hook>& place, const Node& node) {
    auto* wrapper = dynamic_cast<Wrapper*>(place.get());
    if (wrapper == nullptr) {
      wrapper = new Wrapper;
      wrapper->hook_ = place.get();
      std::unique_ptr<Hook> other(wrapper);
      place.swap(other);
      wrapper->owner_ = std::move(other);
    }
    wrapper->node_ = &node;
  }

  void compiled_args(CompiledNodeArgs& args) const override { hook_->compiled_args(args); }

 protected:
  bool is_missing(const variable_list& gradients) const {
    return none_defined(gradients) && only_regions_lead_to(node_);
  }

  Hook* hook_ = nullptr;

 private:
  std::unique_ptr<Hook> owner_;
  // A tensor's hooks outlive the node that accumulates its gradient; it is only compared with.
  std::atomic<const Node*> node_ = nullptr;
};

class WrappedPreHook : public Wrapped<FunctionPreHook> {
 public:
  variable_list operator()(const variable_list& gradients) override {
    return is_missing(gradients) ? gradients : (*hook_)(gradients);
  }
};

class WrappedPostHook : public Wrapped<FunctionPostHook> {
 public:
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    return is_missing(inputs) ? outputs : (*hook_)(outputs, inputs);
  }
};

// The parameter that this thread's engine accumulates next, where its gradient is missing.
thread_local const at::TensorImpl* missing_for = nullptr;

// Stands before an accumulation, as hooks after it are not told what was accumulated.
class NoteMissing : public FunctionPreHook {
 public:
  explicit NoteMissing(const AccumulateGrad& node) : node_(&node) {}

  variable_list operator()(const variable_list& gradients) override {
    const bool missing = none_defined(gradients) && only_regions_lead_to(node_);
    missing_for = missing ? node_->variable.unsafeGetTensorImpl() : nullptr;
    return gradients;
  }

  void compiled_args(CompiledNodeArgs&) const override {}

 private:
  const AccumulateGrad* node_;  // it owns this hook
};

class WrappedPostAccumulateHook : public Wrapped<PostAccumulateGradHook> {
 public:
  void operator()(const at::Tensor& parameter) override {
    if (std::exchange(missing_for, nullptr) != parameter.unsafeGetTensorImpl())
      (*hook_)(parameter);
  }

  void apply_with_saved(at::Tensor& parameter,
                        torch::dynamo::autograd::SwapSavedVariables& saved) override {
    hook_->apply_with_saved(parameter, saved);
  }
};

void note_missing(AccumulateGrad& node) {
  const auto& hooks = node.pre_hooks();
  if (std::none_of(hooks.begin(), hooks.end(), [](const auto& hook) {
        return dynamic_cast<NoteMissing*>(hook.get()) != nullptr;
      }))
    node.add_pre_hook(std::make_unique<NoteMissing>(node));
}

}  // namespace

void keep_missing_gradient_from_hooks(Node& target) {
  static std::mutex one_at_a_time;
  auto* node = dynamic_cast<AccumulateGrad*>(&target);
  if (node == nullptr)
    return;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  for (auto& hook : node->tensor_pre_hooks())
    WrappedPreHook::wrap<WrappedPreHook>(hook, target);
  for (auto& hook : node->pre_hooks()) {
    if (dynamic_cast<NoteMissing*>(hook.get()) == nullptr)
      WrappedPreHook::wrap<WrappedPreHook>(hook, target);
  }
  for (auto& hook : node->post_hooks()) {
    if (dynamic_cast<torch::autograd::utils::LambdaPostHook*>(hook.get()) == nullptr)
      WrappedPostHook::wrap<WrappedPostHook>(hook, target);
  }
  if (auto& hook = node->tensor_post_acc_grad_hooks(); hook != nullptr) {
    note_missing(*node);
    WrappedPostAccumulateHook::wrap<WrappedPostAccumulateHook>(hook, target);
  }
}

}  // namespace aten_recompute
