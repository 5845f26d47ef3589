// The autograd node of one stage of a region's backward (backend/region_variant.h).
#pragma once

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
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
    const auto undefined = stage_ == 0 ? undefined_of(vjps) : nullptr;
    if (stage_ == 0 && RegionCall::must_replay(vjps))
      call_->replay(std::move(vjps), needed_of_all_stages(), this->getptr());
    TORCH_CHECK(stage_ > 0 || hidden_.empty(), torch::autograd::ERR_BACKWARD_TWICE);
    const auto& stage = call_->variant().stages()[stage_];
    std::vector<bool> needed;
    for (size_t i = 0; i < stage.gradients.size(); ++i) {
      needed.push_back(task_should_compute_output(i));
    }
    const bool last = stage_ + 1 == call_->variant().stages().size();
    const bool later = !last && task_should_compute_output(stage.gradients.size());
    auto gradients = call_->run_stage(stage_, std::move(vjps), needed, later, this->getptr());
    if (undefined != nullptr)
      hide_edges_without_gradient(*undefined);
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

  // nullptr: all outputs of the region have a gradient.
  std::shared_ptr<const UndefinedGradients> undefined_of(
      const torch::autograd::variable_list& vjps) const {
    std::vector<bool> defined;
    bool all = true;
    for (const auto& vjp : vjps) {
      defined.push_back(vjp.defined());
      all = all && vjp.defined();
    }
    return all ? nullptr : call_->variant().undefined_gradients(defined);
  }

  // In eager a parameter that only an unused output depends on is not reached, and its hooks are
  // not called. Here its edges are there, and the engine would call them with no gradient: such
  // edges are taken away until this backward ends. Only where all that holds the parameter's node
  // are edges of this region, and none has a gradient, as the engine would wait for them otherwise;
  // and who asks for this gradient (torch.autograd.grad).
  void hide_edges_without_gradient(const UndefinedGradients& undefined) {
    std::vector<std::pair<StageNode*, size_t>> without;  // edges, by stage and place there
    for (auto* node = this; node != nullptr; node = node->next_stage()) {
      const auto& gradients = call_->variant().stages()[node->stage_].gradients;
      for (size_t i = 0; i < gradients.size(); ++i) {
        if (undefined.undefined[gradients[i]] && node->next_edge(i).is_valid())
          without.emplace_back(node, i);
      }
    }
    const auto leads_nowhere = [&](const std::pair<StageNode*, size_t>& each) {
      const auto& target = each.first->next_edge(each.second).function;
      const auto is_to_it = [&](const std::pair<StageNode*, size_t>& other) {
        return other.first->next_edge(other.second).function == target;
      };
      const auto held_here =
          static_cast<size_t>(std::count_if(without.begin(), without.end(), is_to_it));
      return is_parameter_with_hooks(*target) &&
             static_cast<size_t>(target.use_count()) == held_here + times_asked_for(target.get());
    };
    std::vector<bool> hides;
    for (const auto& each : without)
      hides.push_back(leads_nowhere(each));
    for (size_t k = 0; k < without.size(); ++k) {
      if (hides[k])
        without[k].first->hide(without[k].second);
    }
  }

  StageNode* next_stage() const {
    const auto next = call_->variant().stages()[stage_].gradients.size();
    return next < num_outputs() ? static_cast<StageNode*>(next_edge(next).function.get()) : nullptr;
  }

  void hide(size_t edge) {
    if (hidden_.empty() && torch::autograd::get_current_graph_task_keep_graph()) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [this, self = this->getptr()] { show_hidden_edges(); });
    }
    hidden_.emplace_back(edge, next_edge(edge));
    next_edges_[edge] = torch::autograd::Edge();
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

  std::shared_ptr<RegionCall> call_;
  size_t stage_;
  std::vector<std::pair<size_t, torch::autograd::Edge>> hidden_;
};

}  // namespace aten_recompute
