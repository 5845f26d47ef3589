// The autograd node of one stage of a region's backward (backend/autograd/compiled_region.h).
#pragma once

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/autograd/missing_gradient_hooks.h"
#include "backend/autograd/region_call.h"
#include "backend/autograd/region_node.h"
#include "backend/autograd/shared_casts.h"

namespace aten_recompute {

// Runs its stage when the autograd engine reaches it. The edge after those of the stage's gradients
// leads to the next stage, and those behind it let others run after this one.
class StageNode : public RegionNode {
 public:
  StageNode(std::shared_ptr<RegionCall> call, size_t stage)
      : call_(std::move(call)), stage_(stage) {}

  // Returns the gradients of the stage, and undefined ones for the other edges. `vjps` are those of
  // the region's outputs for the first stage. Throws as RegionCall::run_stage() does.
  torch::autograd::variable_list apply(torch::autograd::variable_list&& vjps) override {
    if (stage_ == 0)
      prepare(vjps);
    const auto& stage = call_->compiled_region().stages()[stage_];
    std::vector<bool> needed;
    for (size_t i = 0; i < stage.gradients.size(); ++i)
      needed.push_back(task_should_compute_output(i));
    const bool last = stage_ + 1 == call_->compiled_region().stages().size();
    const bool later = !last && task_should_compute_output(stage.gradients.size());
    auto gradients = call_->run_stage(stage_, std::move(vjps), needed, later, this->getptr());
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!next_edge(i).is_valid())
        continue;
      if (gradients[i].defined())
        call_->watch_gradient(stage.gradients[i], receiver_of(*next_edge(i).function));
      else if (needed[i])  // otherwise the engine does not follow the edge
        keep_missing_gradient_from_hooks(*this, receiver_of(*next_edge(i).function));
    }
    gradients.resize(num_outputs());  // the other edges carry no gradients
    return gradients;
  }

  void release_variables() override {
    if (stage_ == 0 && !has_passed_nothing_.exchange(false))
      call_->release();
  }

  std::string name() const override { return "AtenRecomputeBackward" + std::to_string(stage_); }

  RegionCall& call() const { return *call_; }

 private:
  // Has run_stage() return what is known without running the stages, if that is so.
  void prepare(torch::autograd::variable_list& vjps) {
    const bool is_whole =
        std::all_of(vjps.begin(), vjps.end(), [](const at::Tensor& vjp) { return vjp.defined(); });
    const bool must_replay = RegionCall::must_replay(vjps);
    if (is_whole && !must_replay)
      return;
    const auto needed = needed_of_all_stages();
    if (!is_whole && call_->passes_nothing(vjps, needed)) {
      has_passed_nothing_ = true;
      call_->pass_nothing();
    } else if (must_replay) {
      call_->replay(std::move(vjps), needed, this->getptr());
    } else {
      return;
    }
    vjps.clear();
  }

  // Returns, for each gradient of the region, whether it is needed. Only valid for the first stage.
  std::vector<bool> needed_of_all_stages() {
    const auto& compiled_region = call_->compiled_region();
    std::vector<bool> needed(compiled_region.summands().size(), false);
    torch::autograd::Node* node = this;
    for (const auto& stage : compiled_region.stages()) {
      for (size_t i = 0; i < stage.gradients.size(); ++i)
        needed[stage.gradients[i]] = node->task_should_compute_output(i);
      const auto next = stage.gradients.size();
      if (next >= node->num_outputs() || !node->task_should_compute_output(next))
        break;
      node = node->next_edge(next).function.get();
    }
    return needed;
  }

  std::shared_ptr<RegionCall> call_;
  size_t stage_;
  std::atomic<bool> has_passed_nothing_{false};  // in a backward that has not released it yet
};

// Makes the nodes of the stages, links them, and returns the first one, which becomes the history
// of the region's outputs. `edges` says where the outputs of the backward program go.
NodePtr<torch::autograd::Node> make_stages(const std::shared_ptr<RegionCall>& call,
                                           SummandEdges edges);

}  // namespace aten_recompute
