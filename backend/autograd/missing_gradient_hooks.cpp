#include "backend/autograd/missing_gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backend/autograd/region_node.h"
#include "runtime/call_context.h"

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

// Finds nodes that the backward in eager PyTorch would not have reached: those that only regions
// lead to, directly or through operators that only regions lead to.
class Unreached {
 public:
  Unreached() {
    const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
    if (nodes == nullptr)
      return;
    for (const auto* node : *nodes)
      add(node);
    // The backward may begin at this stage, and the engine does not list that node among those of
    // the graph.
    const auto& last_stage = CallContext::current().last_stage;
    if (last_stage.graph_task == torch::autograd::get_current_graph_task_id() &&
        nodes->count(const_cast<Node*>(last_stage.node)) == 0)
      add(last_stage.node);
  }

  // Returns whether eager's backward would not have reached the node.
  bool contains(const Node* node) {
    const auto [known, is_new] = known_.emplace(node, false);
    if (!is_new)
      return known->second;
    const auto readers = readers_.find(node);
    const bool is_unreached =
        readers != readers_.end() &&
        std::all_of(readers->second.begin(), readers->second.end(), [&](const Node* reader) {
          return dynamic_cast<const RegionNode*>(reader) != nullptr ||
                 (gives_what_it_is_given(reader) && contains(reader));
        });
    known_[node] = is_unreached;
    return is_unreached;
  }

  // Returns whether the node is that of a LibTorch operator, which returns gradients if it is given
  // any. A function that a user wrote may return none whatever it is given. The nodes of LibTorch's
  // operators have no base class of their own, so the name of their namespace tells. Those of
  // writes to views are not among them; their function is gone once they have run.
  static bool gives_what_it_is_given(const Node* node) {
    if (const auto* write = dynamic_cast<const torch::autograd::CopySlices*>(node))
      return write->fn == nullptr || gives_what_it_is_given(write->fn.get());
    if (dynamic_cast<const torch::autograd::CopyBackwards*>(node) != nullptr)
      return true;
    static constexpr std::string_view kNamespace = "torch8autograd9generated";
    return std::string_view(typeid(*node).name()).find(kNamespace) != std::string_view::npos;
  }

 private:
  void add(const Node* node) {
    for (const auto& edge : node->next_edges()) {
      if (edge.is_valid())
        readers_[edge.function.get()].push_back(node);
    }
  }

  std::unordered_map<const Node*, std::vector<const Node*>> readers_;  // nodes with an edge to it
  std::unordered_map<const Node*, bool> known_;                        // results of contains()
};

bool is_missing_gradient(const variable_list& gradients, const Node* node) {
  return none_defined(gradients) && Unreached().contains(node);
}

// A hook that calls another one, unless its gradient is missing. The base of all kinds of them.
template <typename Hook>
class Wrapped : public Hook {
 public:
  // Wraps the hook in `place` if it is not wrapped yet, and notes its node. `place` is never empty
  // meanwhile, because another thread's backward may be calling the hook.
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
    return is_missing_gradient(gradients, node_);
  }

  Hook* hook_ = nullptr;

 private:
  std::unique_ptr<Hook> owner_;
  // May dangle, because a tensor's hooks outlive the node that accumulates its gradient. It is only
  // compared, never dereferenced.
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

// Sets CallContext::missing_for before an accumulation, because hooks after it do not see the
// gradient.
class NoteMissing : public FunctionPreHook {
 public:
  explicit NoteMissing(const AccumulateGrad& node) : node_(&node) {}

  variable_list operator()(const variable_list& gradients) override {
    CallContext::current().missing_for =
        is_missing_gradient(gradients, node_) ? node_->variable.unsafeGetTensorImpl() : nullptr;
    return gradients;
  }

  void compiled_args(CompiledNodeArgs&) const override {}

 private:
  const AccumulateGrad* node_;  // owns this hook
};

class WrappedPostAccumulateHook : public Wrapped<PostAccumulateGradHook> {
 public:
  void operator()(const at::Tensor& parameter) override {
    if (std::exchange(CallContext::current().missing_for, nullptr) !=
        parameter.unsafeGetTensorImpl())
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

void wrap_hooks(Node& node) {
  for (auto* hooks : {&node.tensor_pre_hooks(), &node.pre_hooks()}) {
    for (auto& hook : *hooks) {
      if (dynamic_cast<NoteMissing*>(hook.get()) == nullptr)
        WrappedPreHook::wrap<WrappedPreHook>(hook, node);
    }
  }
  for (auto& hook : node.post_hooks()) {
    if (dynamic_cast<torch::autograd::utils::LambdaPostHook*>(hook.get()) == nullptr)
      WrappedPostHook::wrap<WrappedPostHook>(hook, node);
  }
  auto* parameter = dynamic_cast<AccumulateGrad*>(&node);
  if (parameter == nullptr)
    return;
  if (auto& hook = parameter->tensor_post_acc_grad_hooks(); hook != nullptr) {
    note_missing(*parameter);
    WrappedPostAccumulateHook::wrap<WrappedPostAccumulateHook>(hook, node);
  }
}

}  // namespace

void keep_missing_gradient_from_hooks(const RegionNode& stage, Node& target) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  // A stage that the engine lists among the nodes of the graph must not take the place of one that
  // it does not list.
  const auto* listed = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (listed == nullptr || listed->count(const_cast<RegionNode*>(&stage)) == 0)
    CallContext::current().last_stage = {torch::autograd::get_current_graph_task_id(), &stage};
  std::vector<Node*> nodes{&target};
  std::unordered_set<Node*> seen{&target};
  while (!nodes.empty()) {
    auto* node = nodes.back();
    nodes.pop_back();
    const bool is_parameter = dynamic_cast<AccumulateGrad*>(node) != nullptr;
    const bool passes_on = Unreached::gives_what_it_is_given(node);
    if (is_parameter || passes_on)
      wrap_hooks(*node);
    if (!passes_on)
      continue;
    for (const auto& edge : node->next_edges()) {
      if (edge.is_valid() && seen.insert(edge.function.get()).second)
        nodes.push_back(edge.function.get());
    }
  }
}

}  // namespace aten_recompute
