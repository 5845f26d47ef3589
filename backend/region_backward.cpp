#include "backend/region_backward.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>

#include "backend/autograd_modes.h"

namespace aten_recompute {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

class StageNode : public Node {
 public:
  StageNode(std::shared_ptr<RegionCall> call, size_t stage)
      : call_(std::move(call)), stage_(stage) {}

  variable_list apply(variable_list&& vjps) override {
    TORCH_CHECK(
        !at::GradMode::is_enabled(),
        "aten_recompute: double backward (create_graph=True) through a lowered module is not "
        "supported; call the module that was lowered instead");
    const auto& stage = call_->variant().stages()[stage_];
    std::vector<bool> needed;
    for (size_t i = 0; i < stage.gradients.size(); ++i) {
      needed.push_back(task_should_compute_output(i));
    }
    const bool last = stage_ + 1 == call_->variant().stages().size();
    const bool later = !last && task_should_compute_output(stage.gradients.size());
    auto gradients = call_->run_stage(stage_, std::move(vjps), needed, later, this->getptr());
    if (!last)
      gradients.emplace_back();  // the edge to the next stage carries no gradient
    return gradients;
  }

  void release_variables() override {
    if (stage_ == 0)
      call_->release();
  }

  std::string name() const override { return "AtenRecomputeBackward" + std::to_string(stage_); }

 private:
  std::shared_ptr<RegionCall> call_;
  size_t stage_;
};

}  // namespace

void RegionCall::release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  released_ = true;
  captures_.clear();
  guards_.clear();
}

RegionCall::Run RegionCall::start(variable_list&& vjps, const NodePtr<Node>& node) {
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  const bool keep = torch::autograd::get_current_graph_task_keep_graph();
  Run run;
  std::vector<bool> defined;
  for (const auto& vjp : vjps)
    defined.push_back(vjp.defined());
  if (std::find(defined.begin(), defined.end(), false) != defined.end()) {
    run.undefined = variant_->undefined_gradients(defined);
  }
  std::vector<c10::IValue> inputs;
  inputs.reserve(vjps.size() + captures_.size());
  for (size_t k = 0; k < vjps.size(); ++k) {
    if (vjps[k].defined()) {
      inputs.emplace_back(std::move(vjps[k]));
    } else if (run.undefined->zero_vjp[k]) {
      inputs.emplace_back(at::zeros(outputs_[k].sizes, outputs_[k].options));
    } else {
      inputs.emplace_back();
    }
  }
  const auto unpack = [&](size_t capture, const torch::autograd::SavedVariable& variable) {
    try {
      auto tensor = variable.unpack(node);
      if (tensor.defined() && !tensor.is_inference()) {
        const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
        run.versions.push_back({capture, counter, counter.current_version()});
      }
      return tensor;
    } catch (const c10::Error&) {
      run.changed.emplace(vjps.size() + capture, std::current_exception());
      return at::Tensor();
    }
  };
  for (const auto& [capture, guard] : guards_)
    unpack(capture, guard);
  for (size_t i = 0; i < captures_.size(); ++i) {
    auto& capture = captures_[i];
    if (capture.is_variable) {
      inputs.emplace_back(unpack(i, capture.variable));
    } else if (keep) {
      inputs.push_back(capture.value);
    } else {
      inputs.push_back(std::move(capture.value));
    }
  }
  if (!keep) {
    // From here on the registers hold the captures alone, each until its last use.
    released_ = true;
    captures_.clear();
    guards_.clear();
  }
  run.registers = variant_->backward().start(std::move(inputs));
  return run;
}

void RegionCall::find_changes(Run& run) const {
  for (const auto& [capture, counter, version] : run.versions) {
    if (counter.current_version() == version)
      continue;
    const auto error = c10::str(
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation while the backward ran: it is at version ",
        counter.current_version(), "; expected version ", version,
        " instead. A hook that writes to a parameter may write to the one whose gradient it was "
        "given, not to others that the backward has yet to read.");
    run.changed.emplace(variant_->num_vjps() + capture,
                        std::make_exception_ptr(c10::Error({}, error)));
  }
}

void RegionCall::check_for_changes(const Run& run, const Program& program, const Stage& stage,
                                   const std::vector<bool>& needed, bool all_needed,
                                   const std::vector<bool>& skip) const {
  const auto check = [&](const Program::Operand& operand) {
    if (operand.is_constant)
      return;
    for (auto capture : variant_->captures_of()[operand.index]) {
      if (const auto found = run.changed.find(capture); found != run.changed.end())
        std::rethrow_exception(found->second);
    }
  };
  const size_t end = stage.begin == 0 && all_needed ? program.instructions().size() : stage.end;
  for (size_t i = stage.begin; i < end; ++i) {
    if (skip.empty() || !skip[i])
      std::for_each(program.instructions()[i].operands.begin(),
                    program.instructions()[i].operands.end(), check);
  }
  for (size_t i = 0; i < stage.gradients.size(); ++i) {
    if (needed[i])
      check(program.outputs()[stage.gradients[i]]);
  }
}

variable_list RegionCall::run_stage(size_t index, variable_list&& vjps,
                                    const std::vector<bool>& needed, bool later_stages,
                                    const NodePtr<Node>& node) {
  const auto& stages = variant_->stages();
  const auto& stage = stages[index];
  const auto& program = variant_->backward();
  const int task = torch::autograd::get_current_graph_task_id();
  Run run;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (index == 0) {
      run = start(std::move(vjps), node);
    } else {
      auto found = runs_.find(task);
      TORCH_CHECK(found != runs_.end(), torch::autograd::ERR_BACKWARD_TWICE);
      run = std::move(found->second);
      runs_.erase(found);
    }
  }

  const bool all_needed = std::find(needed.begin(), needed.end(), false) == needed.end() &&
                          (later_stages || index + 1 == stages.size());
  std::vector<bool> skip;
  if (run.undefined != nullptr)
    skip = run.undefined->skip;
  if (!all_needed) {
    skip.resize(program.instructions().size(), false);
    std::vector<bool> wanted =
        later_stages ? stage.live_after : std::vector<bool>(program.num_registers(), false);
    for (size_t i = 0; i < stage.gradients.size(); ++i) {
      const auto& output = program.outputs()[stage.gradients[i]];
      if (needed[i] && !output.is_constant)
        wanted[output.index] = true;
    }
    for (size_t i = stage.end; i-- > stage.begin;) {
      const auto& instruction = program.instructions()[i];
      bool used = false;
      for (auto output : instruction.outputs)
        used = used || (output >= 0 && wanted[output]);
      if (!used) {
        skip[i] = true;
        continue;
      }
      for (const auto& operand : instruction.operands) {
        if (!operand.is_constant)
          wanted[operand.index] = true;
      }
    }
  }

  if (index > 0)
    find_changes(run);
  if (!run.changed.empty())
    check_for_changes(run, program, stage, needed, all_needed, skip);

  variable_list gradients(stage.gradients.size());
  {
    const WithoutAutograd guard;
    program.run(run.registers, stage.begin, stage.end, skip.empty() ? nullptr : &skip);
    for (size_t i = 0; i < stage.gradients.size(); ++i) {
      const auto k = stage.gradients[i];
      if (!needed[i] || (run.undefined != nullptr && run.undefined->undefined[k]))
        continue;
      // A gradient that later stages read as well stays where it is.
      const auto& output = program.outputs()[k];
      const bool read_later = later_stages && !output.is_constant && stage.live_after[output.index];
      auto gradient =
          read_later ? run.registers[output.index] : program.take_output(run.registers, k);
      if (gradient.isTensor())
        gradients[i] = std::move(gradient).toTensor();
    }
  }
  if (later_stages) {
    const std::lock_guard<std::mutex> lock(mutex_);
    runs_.emplace(task, std::move(run));
  }
  return gradients;
}

NodePtr<Node> make_stages(const std::shared_ptr<RegionCall>& call, std::vector<Edge> edges) {
  const auto& stages = call->variant().stages();
  std::vector<NodePtr<StageNode>> nodes(stages.size());
  // Last stage first: nodes made later run earlier where the engine has a choice.
  for (size_t i = stages.size(); i-- > 0;) {
    nodes[i] = make_node<StageNode>(call, i);
    for (auto gradient : stages[i].gradients)
      nodes[i]->add_next_edge(std::move(edges[gradient]));
    if (i + 1 < stages.size()) {
      nodes[i + 1]->add_input_metadata(Node::undefined_input());
      nodes[i]->add_next_edge(Edge(nodes[i + 1], 0));
    }
  }
  return nodes.front();
}

}  // namespace aten_recompute
