// The part of RegionCall that runs a region again under ordinary autograd.
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "backend/autograd/region_call.h"
#include "backend/autograd/stage_node.h"
#include "common/log.h"
#include "runtime/autocast.h"
#include "runtime/autograd_modes.h"

namespace aten_recompute {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Returns whether the tensor is a wrapper of functorch or of a Python class.
bool is_made_elsewhere(const at::Tensor& tensor) {
  using c10::DispatchKey;
  const auto keys = tensor.key_set();
  return keys.has(DispatchKey::Batched) || keys.has(DispatchKey::FuncTorchBatched) ||
         keys.has(DispatchKey::FuncTorchGradWrapper) || keys.has(DispatchKey::Python);
}

// Dispatch keys of transforms and modes such as vmap's. A replay excludes them, because the first
// run ran without them.
constexpr c10::DispatchKeySet kTransforms({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                           c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                                           c10::DispatchKey::VmapMode});

}  // namespace

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

bool RegionCall::must_replay(const variable_list& vjps) {
  // Under autocast, the dispatcher casts what eager PyTorch's backward computes with.
  return at::GradMode::is_enabled() || autocast_enabled() ||
         !(c10::impl::tls_local_dispatch_key_set().included_ & kTransforms).empty() ||
         torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr ||
         std::any_of(vjps.begin(), vjps.end(),
                     [](const at::Tensor& vjp) { return vjp.defined() && is_made_elsewhere(vjp); });
}

std::vector<c10::IValue> RegionCall::unpack_inputs(const RegionReplay& replay,
                                                   const NodePtr<Node>& node) const {
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  const auto unpack = [&](const SavedCapture& saved) -> c10::IValue {
    if (saved.handed != nullptr)
      return saved.handed->get();
    if (saved.packed != nullptr)
      return saved.packed->unpack(node);
    return saved.is_variable ? c10::IValue(saved.variable.unpack(node)) : saved.value;
  };
  const auto& captured = compiled_region_->gradient().df_input_captured_inputs;
  std::vector<c10::IValue> inputs(compiled_region_->gradient().f->inputs().size());
  for (size_t i = 0; i < captured.size(); ++i) {
    if (replay.reads_input(captured[i]))
      inputs[captured[i]] = unpack(captures_[i]);
  }
  for (const auto& noted : replay_inputs_) {
    if (!replay.reads_input(noted.input))
      continue;
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
  inputs.insert(inputs.end(), statistics_.begin(), statistics_.end());
  return inputs;
}

std::vector<c10::IValue> RegionCall::run_again(const RegionReplay& replay,
                                               std::vector<c10::IValue> inputs) const {
  const WithoutAutocast no_autocast;  // the graph has its casts
  const c10::impl::ExcludeDispatchKeyGuard without_transforms(kTransforms);
  if (!compiled_region_->draws_random_numbers())
    return replay.run(std::move(inputs));
  const RestoreGenerators restore(inputs);
  random_states_.set();
  return replay.run(std::move(inputs));
}

at::Tensor RegionCall::replay_output(uint32_t vjp, const NodePtr<Node>& node) {
  const auto& replay =
      compiled_region_->replay_of_output(compiled_region_->gradient().df_input_vjps[vjp]);
  std::vector<c10::IValue> inputs;
  std::shared_ptr<StepArena> step;
  PassKey pass;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    inputs = unpack_inputs(replay, node);
    step = arena_step_.shared();
    pass = PassKey::of(arena_run_again_, num_runs_again_++);
  }
  const WithoutAutograd guard;
  const AllocationScope scope(step.get(), pass, &replay.program());
  auto output = run_again(replay, std::move(inputs)).front().toTensor().detach();
  torch::autograd::impl::set_gradient_edge(output, {node, vjp});
  return output;
}

namespace {

// Tells once that a plan is not followed where this is not asked for.
void warn_of_autocast(const CompiledRegion& compiled_region) {
  static std::atomic<bool> has_warned{false};
  if (compiled_region.plan() == nullptr || !autocast_enabled() || has_warned.exchange(true))
    return;
  log_warning(
      LogTopic::kMemory,
      "a backward runs under autocast: it repeats the forward of the region under ordinary "
      "autograd, so that no plan is followed and no budget is kept. Call backward() outside "
      "of the autocast block, as PyTorch recommends");
}

// Returns, for each input of the region whose gradient is needed, the outputs of the backward that
// are its summands.
std::map<size_t, std::vector<size_t>> slots_of_inputs(const CompiledRegion& compiled_region,
                                                      const std::vector<bool>& needed) {
  const auto& summands = compiled_region.summands();
  std::map<size_t, std::vector<size_t>> slots;
  for (size_t k = 0; k < summands.size(); ++k) {
    if (needed[k])
      slots[compiled_region.gradient().df_output_vjps[summands[k].output]].push_back(k);
  }
  return slots;
}

}  // namespace

void RegionCall::replay(variable_list&& vjps, const std::vector<bool>& needed,
                        const NodePtr<Node>& node) {
  const bool create_graph = at::GradMode::is_enabled();
  if (!create_graph)
    warn_of_autocast(*compiled_region_);
  const auto& replay = compiled_region_->replay();
  if (!torch::autograd::get_current_graph_task_keep_graph())
    serve_readers();
  std::vector<c10::IValue> inputs;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    inputs = unpack_inputs(replay, node);
    if (!torch::autograd::get_current_graph_task_keep_graph()) {
      released_ = true;
      forget_captures();
    }
  }
  const auto& gradient = compiled_region_->gradient();
  const OrdinaryAutograd guard;
  const auto outputs = run_again(replay, std::move(inputs));
  torch::autograd::edge_list roots;
  variable_list root_gradients;
  for (size_t k = 0; k < vjps.size(); ++k) {
    const auto& output = outputs[gradient.df_input_vjps[k]].toTensor();
    if (!vjps[k].defined() || !output.defined() || !output.requires_grad())
      continue;
    roots.push_back(torch::autograd::impl::gradient_edge(output));
    root_gradients.push_back(std::move(vjps[k]));
  }
  const auto slots = slots_of_inputs(*compiled_region_, needed);
  const auto& aliases = replay.aliases();
  torch::autograd::edge_list boundary;
  std::vector<size_t> inputs_of_boundary;
  for (size_t i = 0; i < aliases.size(); ++i) {
    const auto& alias = outputs[outputs.size() - aliases.size() + i].toTensor();
    if (slots.count(aliases[i]) == 0 || !alias.requires_grad())
      continue;
    boundary.push_back(torch::autograd::impl::gradient_edge(alias));
    inputs_of_boundary.push_back(aliases[i]);
  }
  Run run;
  run.is_replay = true;
  run.replayed.resize(compiled_region_->summands().size());
  if (!roots.empty() && !boundary.empty()) {
    auto results = torch::autograd::Engine::get_default_engine().execute(
        roots, root_gradients, /*keep_graph=*/create_graph, create_graph,
        /*accumulate_grad=*/false, boundary);
    std::map<size_t, size_t> num_placed;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].defined())
        continue;
      const auto& places = slots.at(inputs_of_boundary[i]);
      const auto k = num_placed[inputs_of_boundary[i]]++;
      auto& place = run.replayed[places[std::min(k, places.size() - 1)]];
      place = k < places.size() ? std::move(results[i]) : place + results[i];
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  put_replay(std::move(run));
}

bool RegionCall::passes_nothing(const variable_list& vjps, const std::vector<bool>& needed) const {
  std::vector<bool> defined;
  for (const auto& vjp : vjps)
    defined.push_back(vjp.defined());
  if (std::find(defined.begin(), defined.end(), true) == defined.end())
    return true;
  const auto masked = compiled_region_->undefined_gradients(defined);
  for (size_t k = 0; k < needed.size(); ++k) {
    if (needed[k] && !masked->undefined[k])
      return false;
  }
  return true;
}

void RegionCall::pass_nothing() {
  Run run;
  run.is_replay = true;
  run.replayed.resize(compiled_region_->summands().size());
  const std::lock_guard<std::mutex> lock(mutex_);
  put_replay(std::move(run));
}

void RegionCall::put_replay(Run&& run) {
  auto owned = std::make_shared<Run>(std::move(run));
  // A graph task frees its callbacks however it ends.
  torch::autograd::Engine::get_default_engine().queue_callback([owned] {});
  std::erase_if(replays_, [](const auto& each) { return each.second.expired(); });
  replays_[torch::autograd::get_current_graph_task_id()] = owned;
}

std::optional<RegionCall::Run> RegionCall::take_replay() {
  const auto found = replays_.find(torch::autograd::get_current_graph_task_id());
  if (found == replays_.end())
    return std::nullopt;
  const auto owned = found->second.lock();
  replays_.erase(found);
  return owned == nullptr ? std::nullopt : std::optional<Run>(std::move(*owned));
}

}  // namespace aten_recompute
