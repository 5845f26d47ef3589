// The autograd nodes of one call of a region.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/region_variant.h"
#include "backend/torch_compat.h"

namespace aten_recompute {

// A value kept for the backward. Tensors that the caller can reach (region inputs and outputs) are
// SavedVariables, which notice in-place changes; the rest nobody else can see.
struct SavedCapture {
  torch::autograd::SavedVariable variable;
  c10::IValue value;
  bool is_variable = false;
};

// Sizes and type of a region output, to make a zero gradient of.
struct OutputMetadata {
  std::vector<int64_t> sizes;
  at::TensorOptions options;
};

// State that the stages of one call share. The captures go when the backward has taken them.
class RegionCall {
 public:
  RegionCall(std::shared_ptr<const RegionVariant> variant, std::vector<SavedCapture> inputs)
      : variant_(std::move(variant)), captures_(std::move(inputs)) {}

  const RegionVariant& variant() const { return *variant_; }
  void add_capture(SavedCapture capture) { captures_.push_back(std::move(capture)); }
  // A region input that a captured value, the one of this index, shares memory with.
  void add_guard(size_t capture, const at::Tensor& input) {
    guards_.emplace_back(capture, torch::autograd::SavedVariable(input, /*is_output=*/false));
  }
  void add_output(OutputMetadata metadata) { outputs_.push_back(std::move(metadata)); }

  // Runs a stage for the current graph task; returns its gradients. `needed` has one flag per
  // gradient of the stage, `later_stages` says whether a stage behind it will run.
  torch::autograd::variable_list run_stage(size_t stage, torch::autograd::variable_list&& vjps,
                                           const std::vector<bool>& needed, bool later_stages,
                                           const NodePtr<torch::autograd::Node>& node);
  void release();

 private:
  // Version of a capture when the backward began. Hooks run between two stages, and may write.
  struct CaptureVersion {
    size_t capture;  // index into captures_
    c10::VariableVersion counter;
    uint32_t version;
  };

  struct Run {
    Program::Registers registers;
    std::shared_ptr<const UndefinedGradients> undefined;  // nullptr: all vjps are defined
    // Captures that were changed in place, by register, and what unpacking them raised. Only what
    // reads one raises it: in eager, the nodes of other gradients do not run and do not notice.
    std::map<size_t, std::exception_ptr> changed;
    std::vector<CaptureVersion> versions;  // of captures that the caller can reach
  };

  // Notes what has been changed since the backward began, for check_for_changes().
  void find_changes(Run& run) const;

  // Raises where the stage reads a capture that was changed. `skip`: per instruction, or empty. The
  // first stage, where all of its gradients are asked for, looks for all that follow: eager raises
  // before a gradient of the same operator has left.
  void check_for_changes(const Run& run, const Program& program, const Stage& stage,
                         const std::vector<bool>& needed, bool all_needed,
                         const std::vector<bool>& skip) const;

  Run start(torch::autograd::variable_list&& vjps, const NodePtr<torch::autograd::Node>& node);

  std::shared_ptr<const RegionVariant> variant_;
  std::vector<SavedCapture> captures_;  // captured inputs, then captured outputs, in df's order
  std::vector<std::pair<size_t, torch::autograd::SavedVariable>> guards_;
  std::vector<OutputMetadata> outputs_;  // per vjp
  std::mutex mutex_;
  bool released_ = false;
  std::map<int, Run> runs_;  // by graph task: retained graphs may be walked by several at once
};

// Makes the stages' nodes and links them; returns the first one, which outputs are attached to.
// `edges[i]` is where output i of the backward program goes.
NodePtr<torch::autograd::Node> make_stages(const std::shared_ptr<RegionCall>& call,
                                           std::vector<torch::autograd::Edge> edges);

}  // namespace aten_recompute
