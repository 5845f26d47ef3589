#include "backend/region_backward.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
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
    if (stage_ == 0 && RegionCall::must_replay(vjps))
      call_->replay(std::move(vjps), needed_of_all_stages(), this->getptr());
    TORCH_CHECK(hidden_.empty(),
                "aten_recompute: a backward through this graph has raised; run the forward again");
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
    Node* node = this;
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
  // edge is taken away until this backward ends. Only where nobody else holds the parameter's node,
  // as the engine would wait for this edge otherwise.
  void hide_edges_without_gradient(const variable_list& gradients) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto edge = next_edge(i);
      if (gradients[i].defined() || !edge.is_valid() || !is_parameter_with_hooks(*edge.function))
        continue;
      const auto held_here = edges_to(edge.function.get()) + 1;  // and by `edge`
      if (static_cast<size_t>(edge.function.use_count()) != held_here)
        continue;
      hidden_.emplace_back(i, edge);
      next_edges_[i] = Edge();
    }
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

  static bool is_parameter_with_hooks(Node& node) {
    return dynamic_cast<torch::autograd::AccumulateGrad*>(&node) != nullptr &&
           (!node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() ||
            !node.post_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr);
  }

  // Edges of this stage and those after it, but for hidden ones.
  size_t edges_to(const Node* target) const {
    size_t count = 0;
    for (const Node* node = this; node != nullptr;) {
      const auto& edges = node->next_edges();
      for (const auto& edge : edges)
        count += edge.function.get() == target ? 1 : 0;
      node = edges.empty() ? nullptr : dynamic_cast<const StageNode*>(edges.back().function.get());
    }
    return count;
  }

  std::shared_ptr<RegionCall> call_;
  size_t stage_;
  std::vector<std::pair<size_t, Edge>> hidden_;
};

bool has_nan(const at::Tensor& tensor) {
  return tensor.defined() && at::isFloatingType(tensor.scalar_type()) &&
         at::isnan(tensor).any().item<bool>();
}

bool is_made_elsewhere(const at::Tensor& tensor) {
  using c10::DispatchKey;
  const auto keys = tensor.key_set();
  return keys.has(DispatchKey::Batched) || keys.has(DispatchKey::FuncTorchBatched) ||
         keys.has(DispatchKey::FuncTorchGradWrapper) || keys.has(DispatchKey::Python);
}

// Keeps transforms and modes of vmap away: what runs again ran without them.
constexpr c10::DispatchKeySet kTransforms({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                           c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                                           c10::DispatchKey::VmapMode});

}  // namespace

SavedCapture save_capture(const c10::IValue& value, bool reachable, bool is_output) {
  SavedCapture capture;
  const bool is_tensor = value.isTensor() && value.toTensor().defined();
  if (is_tensor && at::SavedTensorDefaultHooks::get_hooks().has_value()) {
    capture.packed = std::make_shared<torch::autograd::SavedVariable>(value.toTensor(), is_output);
  } else if (is_tensor && reachable) {
    capture.variable = torch::autograd::SavedVariable(value.toTensor(), is_output);
    capture.is_variable = true;
  } else {
    capture.value = value;
  }
  return capture;
}

ReplayInput note_replay_input(size_t input, const c10::IValue& value, bool is_written) {
  ReplayInput noted;
  noted.input = input;
  if (value.isTensor() && value.toTensor().defined()) {
    const auto& tensor = value.toTensor();
    if (dynamic_cast<StageNode*>(tensor.grad_fn().get()) != nullptr) {
      noted.tensor = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
      noted.version = tensor._version();
      noted.maker = torch::autograd::impl::gradient_edge(tensor);
      return noted;
    }
  }
  if (is_written)
    noted.saved.value = value;
  else
    noted.saved = save_capture(value, /*reachable=*/true, /*is_output=*/false);
  return noted;
}

void RegionCall::forget_captures() {
  captures_.clear();
  guards_.clear();
  replay_inputs_.clear();
}

void RegionCall::release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  released_ = true;
  forget_captures();
}

bool RegionCall::must_replay(const variable_list& vjps) {
  return at::GradMode::is_enabled() ||
         !(c10::impl::tls_local_dispatch_key_set().included_ & kTransforms).empty() ||
         torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr ||
         std::any_of(vjps.begin(), vjps.end(),
                     [](const at::Tensor& vjp) { return vjp.defined() && is_made_elsewhere(vjp); });
}

std::vector<c10::IValue> RegionCall::unpack_inputs(const NodePtr<Node>& node) const {
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  const auto unpack = [&](const SavedCapture& saved) -> c10::IValue {
    if (saved.packed != nullptr)
      return saved.packed->unpack(node);
    return saved.is_variable ? c10::IValue(saved.variable.unpack(node)) : saved.value;
  };
  const auto& captured = variant_->gradient().df_input_captured_inputs;
  std::vector<c10::IValue> inputs(captured.size() + replay_inputs_.size());
  for (size_t i = 0; i < captured.size(); ++i)
    inputs[captured[i]] = unpack(captures_[i]);
  for (const auto& noted : replay_inputs_) {
    if (!noted.maker.is_valid()) {
      inputs[noted.input] = unpack(noted.saved);
      continue;
    }
    if (auto alive = noted.tensor.lock()) {
      at::Tensor tensor(std::move(alive));
      TORCH_CHECK(tensor._version() == noted.version,
                  "one of the variables needed for gradient computation has been modified by an "
                  "inplace operation: it is at version ",
                  tensor._version(), "; expected version ", noted.version, " instead");
      inputs[noted.input] = std::move(tensor);
    } else {
      auto& maker = dynamic_cast<StageNode&>(*noted.maker.function);
      inputs[noted.input] = maker.call().replay_output(noted.maker.input_nr, noted.maker.function);
    }
  }
  return inputs;
}

std::vector<c10::IValue> RegionCall::run_again(std::vector<c10::IValue> inputs) const {
  const c10::impl::ExcludeDispatchKeyGuard without_transforms(kTransforms);
  if (!variant_->draws_random_numbers())
    return variant_->replay().run(std::move(inputs));
  const RestoreGenerators restore(inputs);
  random_states_.set();
  return variant_->replay().run(std::move(inputs));
}

at::Tensor RegionCall::replay_output(uint32_t vjp, const NodePtr<Node>& node) {
  std::vector<c10::IValue> inputs;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    inputs = unpack_inputs(node);
  }
  const WithoutAutograd guard;
  const auto outputs = run_again(std::move(inputs));
  auto output = outputs[variant_->gradient().df_input_vjps[vjp]].toTensor().detach();
  torch::autograd::impl::set_gradient_edge(output, {node, vjp});
  return output;
}

void RegionCall::replay(variable_list&& vjps, const std::vector<bool>& needed,
                        const NodePtr<Node>& node) {
  const bool create_graph = at::GradMode::is_enabled();
  std::vector<c10::IValue> inputs;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    inputs = unpack_inputs(node);
    if (!torch::autograd::get_current_graph_task_keep_graph()) {
      released_ = true;
      forget_captures();
    }
  }
  const auto& gradient = variant_->gradient();
  const auto& summand_of = variant_->summand_of();
  const OrdinaryAutograd guard;
  // The inputs under names of their own: gradients are those of the region alone, even where one
  // input was made of another.
  torch::autograd::edge_list ends;
  std::vector<size_t> first_summands;
  for (size_t k = 0; k < summand_of.size(); ++k) {
    const bool is_first = k == 0 || summand_of[k] != summand_of[k - 1];
    bool is_needed = false;
    for (size_t i = k; i < summand_of.size() && summand_of[i] == summand_of[k]; ++i)
      is_needed = is_needed || needed[i];
    if (!is_first || !is_needed)
      continue;
    auto& input = inputs[gradient.df_output_vjps[summand_of[k]]];
    const auto alias = at::alias(input.toTensor());
    ends.push_back(torch::autograd::impl::gradient_edge(alias));
    first_summands.push_back(k);
    input = alias;
  }
  const auto outputs = run_again(std::move(inputs));
  torch::autograd::edge_list roots;
  variable_list root_gradients;
  for (size_t k = 0; k < vjps.size(); ++k) {
    const auto& output = outputs[gradient.df_input_vjps[k]].toTensor();
    if (!vjps[k].defined() || !output.defined() || !output.requires_grad())
      continue;
    roots.push_back(torch::autograd::impl::gradient_edge(output));
    root_gradients.push_back(std::move(vjps[k]));
  }
  Run run;
  run.is_replay = true;
  run.replayed.resize(summand_of.size());
  if (!roots.empty() && !ends.empty()) {
    auto results = torch::autograd::Engine::get_default_engine().execute(
        roots, root_gradients, /*keep_graph=*/create_graph, create_graph,
        /*accumulate_grad=*/false, ends);
    for (size_t i = 0; i < results.size(); ++i)
      run.replayed[first_summands[i]] = std::move(results[i]);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  runs_[torch::autograd::get_current_graph_task_id()] = std::move(run);
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
    if (capture.packed != nullptr) {
      run.packed.emplace_back(i, capture.packed);
      inputs.emplace_back();
    } else if (capture.is_variable) {
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
    forget_captures();
  }
  run.registers = variant_->backward().start(std::move(inputs));
  return run;
}

void RegionCall::unpack_for_stage(Run& run, size_t stage, const NodePtr<Node>& node) const {
  for (auto& [capture, packed] : run.packed) {
    if (packed == nullptr || variant_->first_stage_of()[capture] != stage)
      continue;
    run.registers[variant_->num_vjps() + capture] = packed->unpack(node);
    packed = nullptr;
  }
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

const torch::jit::Node* RegionCall::run_instructions(Run& run, const Stage& stage,
                                                     const std::vector<bool>& skip) const {
  const auto& program = variant_->backward();
  const auto* skipped = skip.empty() ? nullptr : &skip;
  if (!torch::autograd::AnomalyMode::is_enabled() ||
      !torch::autograd::AnomalyMode::should_check_nan()) {
    program.run(run.registers, stage.begin, stage.end, skipped);
    return nullptr;
  }
  const torch::jit::Node* first = nullptr;
  for (size_t i = stage.begin; i < stage.end; ++i) {
    program.run(run.registers, i, i + 1, skipped);
    const auto& instruction = program.instructions()[i];
    const bool makes_nan =
        std::any_of(instruction.outputs.begin(), instruction.outputs.end(), [&](int32_t output) {
          return output >= 0 && run.registers[output].isTensor() &&
                 has_nan(run.registers[output].toTensor());
        });
    if (makes_nan && first == nullptr)
      first = instruction.node;
  }
  return first;
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
    auto found = runs_.find(task);
    if (found != runs_.end()) {
      run = std::move(found->second);
      runs_.erase(found);
    } else {
      TORCH_CHECK(index == 0, torch::autograd::ERR_BACKWARD_TWICE);
      run = start(std::move(vjps), node);
    }
  }
  if (run.is_replay) {
    variable_list gradients;
    for (auto k : stage.gradients)
      gradients.push_back(std::move(run.replayed[k]));
    if (later_stages) {
      const std::lock_guard<std::mutex> lock(mutex_);
      runs_.emplace(task, std::move(run));
    }
    return gradients;
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

  unpack_for_stage(run, index, node);
  variable_list gradients(stage.gradients.size());
  {
    const WithoutAutograd guard;
    const auto* maker_of_nan = run_instructions(run, stage, skip);
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
      TORCH_CHECK(maker_of_nan == nullptr || !has_nan(gradients[i]), "Function '", node->name(),
                  "' returned nan values in a gradient; they come from ",
                  description_of(maker_of_nan));
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
