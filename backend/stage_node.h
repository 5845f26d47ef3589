// The autograd node of one stage of a region's backward (backend/region_variant.h).
#pragma once

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/region_backward.h"

namespace aten_recompute {

class StageNode : public torch::autograd::Node {
 public:
  StageNode(std::shared_ptr<RegionCall> call, size_t stage)
      : call_(std::move(call)), stage_(stage) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& vjps) override {
    if (stage_ == 0 && RegionCall::must_replay(vjps))
      call_->replay(std::move(vjps), needed_of_all_stages(), this->getptr());
    TORCH_CHECK(hidden_.empty(), torch::autograd::ERR_BACKWARD_TWICE);
    const auto& stage = call_->variant().stages()[stage_];
    std::vector<bool> needed;
    for (size_t i = 0; i < stage.gradients.size(); ++i) {
      needed.push_back(task_should_compute_output(i));
    }
    const bool last = stage_ + 1 == call_->variant().stages().size();
    const bool later = !last && task_should_compute_output(stage.gradients.size());
    auto gradients = call_->run_stage(stage_, std::move(vjps), needed, later, this->getptr());
    hide_edges_without_gradient(gradients);
    if (!last)
      gradients.emplace_back();  // the edge to the next stage carries no gradient
    return gradients;
  }

  void release_variables() override {
    if (stage_ == 0)
      call_->release();
  }

  std::string name() const override { return "AtenRecomputeBackward" + std::to_string(stage_); }

  RegionCall& call() const { return *call_; }

 private:
  // Per gradient of the region. For the first stage.
  std::vector<bool> needed_of_all_stages() {
    const auto& variant = call_->variant();
    std::vector<bool> needed(variant.summand_of().size(), false);
    torch::autograd::Node* node = this;
    for (const auto& stage : variant.stages()) {
      for (size_t i = 0; i < stage.gradients.size(); ++i)
        needed[stage.gradients[i]] = node->task_should_compute_output(i);
      const auto next = stage.gradients.size();
      if (next >= node->num_outputs() || !node->task_should_compute_output(next))
        break;
      node = node->next_edge(next).function.get();
    }
    return needed;
  }

  // In eager a parameter that only an unused output depends on is not reached, and its hooks are
  // not called. Here its edge is there, and the engine would call them with no gradient: such an
  // edge is taken away until this backward ends. Only where all that holds the parameter's node
  // are edges of this stage, and none has a gradient, as the engine would wait for this edge
  // otherwise; and who asks for this gradient (torch.autograd.grad).
  void hide_edges_without_gradient(const torch::autograd::variable_list& gradients) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto edge = next_edge(i);
      if (gradients[i].defined() || !edge.is_valid() || !is_parameter_with_hooks(*edge.function))
        continue;
      const auto* target = edge.function.get();
      const auto held_here = edges_without(gradients, target) + 1;  // and by `edge`
      if (static_cast<size_t>(edge.function.use_count()) == held_here + times_asked_for(target))
        hidden_.emplace_back(i, edge);
    }
    for (const auto& [i, edge] : hidden_)
      next_edges_[i] = torch::autograd::Edge();
    if (!hidden_.empty() && torch::autograd::get_current_graph_task_keep_graph()) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [this, self = this->getptr()] { show_hidden_edges(); });
    }
  }

  void show_hidden_edges() {
    for (auto& [i, edge] : hidden_)
      next_edges_[i] = std::move(edge);
    hidden_.clear();
  }

  static bool is_parameter_with_hooks(torch::autograd::Node& node) {
    return dynamic_cast<torch::autograd::AccumulateGrad*>(&node) != nullptr &&
           (!node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() ||
            !node.post_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr);
  }

  static size_t times_asked_for(const torch::autograd::Node* target) {
    const auto* asked_for = torch::autograd::get_current_graph_task_exec_info();
    if (asked_for == nullptr)
      return 0;
    const auto found = asked_for->find(const_cast<torch::autograd::Node*>(target));
    if (found == asked_for->end())
      return 0;
    const auto& captures = found->second.captures_;
    return captures != nullptr ? captures->size() : static_cast<size_t>(found->second.needed_);
  }

  // Edges of this stage to `target` that have no gradient, and references to it in hidden_.
  size_t edges_without(const torch::autograd::variable_list& gradients,
                       const torch::autograd::Node* target) const {
    size_t count = 0;
    for (size_t i = 0; i < gradients.size(); ++i)
      count += !gradients[i].defined() && next_edge(i).function.get() == target ? 1 : 0;
    for (const auto& [i, edge] : hidden_)
      count += edge.function.get() == target ? 1 : 0;
    return count;
  }

  std::shared_ptr<RegionCall> call_;
  size_t stage_;
  std::vector<std::pair<size_t, torch::autograd::Edge>> hidden_;
};

}  // namespace aten_recompute
