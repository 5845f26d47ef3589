#include "backend/autograd/region_call.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>
#include <set>

#include "backend/autograd/out_of_memory_text.h"
#include "runtime/autograd_modes.h"

namespace aten_recompute {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

bool has_nan(const at::Tensor& tensor) {
  return tensor.defined() && at::isFloatingType(tensor.scalar_type()) &&
         at::isnan(tensor).any().item<bool>();
}

// Marks in `skip` the instructions of the stage whose results neither a needed gradient of the
// stage nor a later stage depends on. `skip` has one flag per instruction of the program, or is
// empty.
void skip_unneeded(const CompiledRegion& region, size_t index, const std::vector<bool>& needed,
                   bool later_stages, std::vector<bool>& skip) {
  const auto& program = region.backward();
  const auto& stage = region.stages()[index];
  skip.resize(program.instructions().size(), false);
  std::vector<bool> wanted(program.num_registers(), false);
  for (size_t i = 0; i < stage.gradients.size(); ++i) {
    const auto& output = program.outputs()[stage.gradients[i]];
    if (needed[i] && !output.is_constant)
      wanted[output.index] = true;
  }
  for (size_t i = stage.end; i-- > stage.begin;) {
    const auto& instruction = program.instructions()[i];
    bool used = false;
    for (auto output : instruction.outputs)
      used = used || (output >= 0 &&
                      (wanted[output] || (later_stages && region.is_read_after(index, output))));
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

// Returns the storage of the value; nullptr if it is no tensor with one.
const c10::StorageImpl* storage_of(const c10::IValue& value) {
  const bool has_storage =
      value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage();
  return has_storage ? value.toTensor().storage().unsafeGetStorageImpl() : nullptr;
}

// Returns whether the value is a tensor in this storage.
bool lies_in(const c10::IValue& value, const c10::StorageImpl* storage) {
  return storage != nullptr && storage_of(value) == storage;
}

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

RegionCall::~RegionCall() {
  if (watch_ != nullptr)
    watch_->release();
}

void RegionCall::forget_captures() {
  captures_.clear();
  guards_.clear();
  replay_inputs_.clear();
  statistics_.clear();
  pending_.reset();
}

void RegionCall::add_reader(const std::shared_ptr<HandedValue>& reader) {
  const std::lock_guard<std::mutex> lock(mutex_);
  readers_.push_back(reader);
}

void RegionCall::serve_readers() {
  std::vector<std::weak_ptr<HandedValue>> readers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (released_)
      return;
    readers.swap(readers_);
  }
  for (const auto& each : readers) {
    if (const auto reader = each.lock())
      reader->make_now();
  }
}

void RegionCall::release() {
  serve_readers();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!is_spent_.empty() && !released_)
    return;  // other outputs may have a backward of their own
  released_ = true;
  forget_captures();
}

RegionCall::Run RegionCall::start(variable_list&& vjps, const NodePtr<Node>& node) {
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  const bool keep = torch::autograd::get_current_graph_task_keep_graph();
  if (pending_ != nullptr) {
    const auto others = pending_->begin_backward();
    const auto assumed = compiled_region_->plan()->assumed.caller.other_calls;
    has_other_sizes_ = has_other_sizes_ || others.like_planned < assumed;
    if (watch_ != nullptr && difference_ != nullptr) {
      const bool are_seen = others.num_earlier == 0 || others.first_earlier >= watch_->first_call();
      watch_->note_other_calls(others.num_earlier, are_seen, others.has_later);
    }
    note_retained(keep);
  }
  Run run;
  run.pass = ++num_passes_;
  run.keeps_captures = keep;
  std::vector<bool> defined;
  for (const auto& vjp : vjps)
    defined.push_back(vjp.defined());
  for (size_t k = 0; k < is_spent_.size(); ++k)
    TORCH_CHECK(!defined[k] || !is_spent_[k], torch::autograd::ERR_BACKWARD_TWICE);
  if (std::find(defined.begin(), defined.end(), false) != defined.end())
    run.undefined = compiled_region_->undefined_gradients(defined);
  std::vector<c10::IValue> inputs;
  inputs.reserve(vjps.size() + captures_.size());
  for (size_t k = 0; k < vjps.size(); ++k) {
    if (vjps[k].defined())
      inputs.emplace_back(std::move(vjps[k]));
    else if (run.undefined->zeros[k])
      inputs.emplace_back(at::zeros(outputs_[k].sizes, outputs_[k].options));
    else
      inputs.emplace_back();
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
    } else if (capture.handed != nullptr) {
      try {
        capture.handed->check();
        run.handed.emplace_back(i, capture.handed);
      } catch (const c10::Error&) {
        run.changed.emplace(vjps.size() + i, std::current_exception());
      }
      inputs.emplace_back();
    } else if (capture.is_variable) {
      inputs.emplace_back(unpack(i, capture.variable));
    } else if (keep) {
      inputs.push_back(capture.value);
    } else {
      inputs.push_back(std::move(capture.value));
    }
  }
  const auto of_others = keep || run.undefined == nullptr
                             ? std::nullopt
                             : captures_of_others(defined, run.undefined->skip, inputs);
  if (of_others) {
    is_spent_.resize(defined.size());
    for (size_t k = 0; k < defined.size(); ++k)
      is_spent_[k] = is_spent_[k] || defined[k];
    for (size_t i = 0; i < captures_.size(); ++i) {
      if (!(*of_others)[i])
        captures_[i] = {};
      else if (!captures_[i].is_variable && captures_[i].handed == nullptr)
        captures_[i].value = inputs[vjps.size() + i];
    }
    std::erase_if(run.handed, [&](const auto& each) { return (*of_others)[each.first]; });
  } else if (!keep) {
    // From here on only the registers hold the captures, each until its last use.
    released_ = true;
    forget_captures();
  }
  if (compiled_region_->caller() != nullptr && !compiled_region_->caller()->is_settled() &&
      run.packed.empty())
    compiled_region_->caller()->see(outputs_seen_with(inputs, defined, keep));
  run.registers = compiled_region_->backward().start(std::move(inputs));
  return run;
}

std::optional<std::vector<bool>> RegionCall::captures_of_others(
    const std::vector<bool>& defined, const std::vector<bool>& skip,
    const std::vector<c10::IValue>& inputs) const {
  const auto num_vjps = defined.size();
  const bool is_plain =
      guards_.empty() && std::all_of(captures_.begin(), captures_.end(),
                                     [](const auto& capture) { return capture.packed == nullptr; });
  // An output is the caller's if something besides the captures holds its storage.
  const auto is_held = [&](size_t k) {
    const auto storage = outputs_[k].storage.lock();
    if (storage.get() == nullptr)
      return false;
    size_t holders = 1;
    for (size_t i = 0; i < captures_.size(); ++i) {
      if (lies_in(inputs[num_vjps + i], storage.get()))
        holders += captures_[i].is_variable ? 2 : 1;
    }
    return holders < storage.use_count();
  };
  std::vector<bool> others(num_vjps);
  bool any_is_held = false;
  for (size_t k = 0; k < num_vjps && is_plain; ++k) {
    others[k] = !defined[k] && (is_spent_.empty() || !is_spent_[k]);
    any_is_held = any_is_held || (others[k] && is_held(k));
  }
  if (!any_is_held)
    return std::nullopt;
  const auto of_others = compiled_region_->undefined_gradients(others);
  std::vector<bool> is_read_by_others(captures_.size());
  const auto& instructions = compiled_region_->backward().instructions();
  for (size_t i = 0; i < instructions.size(); ++i) {
    for (const auto& operand : instructions[i].operands) {
      const auto capture = static_cast<size_t>(operand.index) - num_vjps;
      if (operand.is_constant || capture >= captures_.size())
        continue;
      if (!skip[i] && !of_others->skip[i])
        return std::nullopt;  // eager PyTorch has freed what this operator has saved
      is_read_by_others[capture] = is_read_by_others[capture] || !of_others->skip[i];
    }
  }
  return is_read_by_others;
}

std::vector<CallerBehavior::Output> RegionCall::outputs_seen_with(
    const std::vector<c10::IValue>& inputs, const std::vector<bool>& defined,
    bool keeps_captures) const {
  std::vector<CallerBehavior::Output> seen;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    auto& output = seen.emplace_back();
    output.sizes = outputs_[k].sizes;
    output.element_bytes = outputs_[k].options.dtype().itemsize();
    if (defined[k])
      output.gradient = inputs[k].toTensor();
    if (keeps_captures)
      continue;
    // The output is freed if nobody but the captures holds its storage.
    const auto storage = outputs_[k].storage.lock();
    const auto holds_it = [&](const c10::IValue& input) { return lies_in(input, storage.get()); };
    output.is_freed_before_backward =
        storage.get() == nullptr ||
        static_cast<size_t>(std::count_if(inputs.begin(), inputs.end(), holds_it)) + 1 >=
            storage.use_count();
  }
  return seen;
}

void RegionCall::unpack_for_stage(Run& run, size_t stage, const NodePtr<Node>& node) const {
  for (auto& [capture, packed] : run.packed) {
    if (packed == nullptr || compiled_region_->first_stage_of()[capture] != stage)
      continue;
    run.registers[compiled_region_->num_vjps() + capture] = packed->unpack(node);
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
    run.changed.emplace(compiled_region_->num_vjps() + capture,
                        std::make_exception_ptr(c10::Error({}, error)));
  }
}

void RegionCall::check_for_changes(const Run& run, const Program& program, const Stage& stage,
                                   const std::vector<bool>& needed, bool all_needed,
                                   const std::vector<bool>& skip) const {
  const auto check = [&](const Program::Operand& operand) {
    if (operand.is_constant)
      return;
    for (auto capture : compiled_region_->captures_of()[operand.index]) {
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

void RegionCall::find_handed(Run& run, const Stage& stage, size_t index) const {
  const auto& program = compiled_region_->backward();
  for (auto& [capture, handed] : run.handed) {
    const auto place = static_cast<int32_t>(compiled_region_->num_vjps() + capture);
    const auto reads = [&](const Program::Operand& operand) {
      return !operand.is_constant && operand.index == place;
    };
    bool is_read = false;
    if (index < stage.end) {
      const auto& operands = program.instructions()[index].operands;
      is_read = std::any_of(operands.begin(), operands.end(), reads);
    } else {
      is_read = std::any_of(stage.gradients.begin(), stage.gradients.end(),
                            [&](size_t k) { return reads(program.outputs()[k]); });
    }
    if (!is_read)
      continue;
    run.registers[place] = run.keeps_captures ? handed->get() : handed->take();
    handed = nullptr;
  }
  std::erase_if(run.handed, [](const auto& each) { return each.second == nullptr; });
}

void RegionCall::run_piecewise(Run& run, const Stage& stage, const std::vector<bool>& skip) const {
  const auto& program = compiled_region_->backward();
  const auto* skipped = skip.empty() ? nullptr : &skip;
  size_t begin = stage.begin;
  for (size_t i = stage.begin; i < stage.end && !run.handed.empty(); ++i) {
    if (skipped != nullptr && skip[i])
      continue;
    program.run(run.registers, begin, i, skipped);
    begin = i;
    find_handed(run, stage, i);
  }
  program.run(run.registers, begin, stage.end, skipped);
  find_handed(run, stage, stage.end);
}

const torch::jit::Node* RegionCall::run_instructions(Run& run, const Stage& stage,
                                                     const std::vector<bool>& skip) const {
  const auto& program = compiled_region_->backward();
  const auto* skipped = skip.empty() ? nullptr : &skip;
  const AllocationScope scope(arena_step_.get(), PassKey::of(arena_run_, run.pass), &program);
  if (!torch::autograd::AnomalyMode::is_enabled() ||
      !torch::autograd::AnomalyMode::should_check_nan()) {
    run_piecewise(run, stage, skip);
    return nullptr;
  }
  const torch::jit::Node* first = nullptr;
  for (size_t i = stage.begin; i < stage.end; ++i) {
    if (skipped == nullptr || !skip[i])
      find_handed(run, stage, i);
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
  find_handed(run, stage, stage.end);
  return first;
}

void RegionCall::watch_gradient(size_t output, const Node& target) const {
  if (watch_ == nullptr)
    return;
  const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&target);
  if (leaf == nullptr)
    return;
  const auto& graphs = compiled_region().graphs();
  const auto input = graphs.gradient.df_output_vjps[graphs.summands[output].output];
  const bool is_added = leaf->variable.grad().defined();
  // Options::accumulate is about parameters. The gradient of an input is planned for as a new one.
  if (is_added || graphs.is_attribute[input])
    watch_->hand_on(is_added);
}

int64_t RegionCall::bytes_let_go() const {
  int64_t bytes = 0;
  for (const auto& output : outputs_) {
    if (output.storage.expired())
      bytes += static_cast<int64_t>(at::detail::computeStorageNbytesContiguous(
          output.sizes, output.options.dtype().itemsize()));
  }
  return bytes;
}

void RegionCall::note_retained(bool keeps_graph) {
  const double retained = num_passes_ > 0 ? 2.0 : keeps_graph ? 1.0 : 0.0;
  compiled_region_->caller()->see_retained(retained);
  has_other_sizes_ =
      has_other_sizes_ || retained < compiled_region_->plan()->assumed.caller.retained;
  if (keeps_graph && watch_ != nullptr)
    watch_->note_retained_graph();
}

int64_t RegionCall::bytes_kept() const {
  int64_t bytes = 0;
  std::set<const c10::StorageImpl*> seen;
  const auto add = [&](const c10::StorageImpl* storage) {
    if (storage != nullptr && seen.insert(storage).second)
      bytes += static_cast<int64_t>(storage->nbytes());
  };
  const auto num_inputs = compiled_region_->gradient().df_input_captured_inputs.size();
  for (size_t i = num_inputs; i < captures_.size(); ++i)
    add(storage_of(captures_[i].value));
  for (const auto& output : outputs_)
    add(output.storage.lock().get());
  return bytes;
}

void RegionCall::wait_for_backward() {
  // What hooks have packed is theirs. A checkpoint repeats the call, and expects it to keep the
  // same tensors under the same plan.
  if (compiled_region_->caller() == nullptr || at::SavedTensorDefaultHooks::get_hooks().has_value())
    return;
  const auto& metrics = compiled_region_->plan()->metrics;
  const auto planned = static_cast<double>(metrics.unplanned_saved_bytes);
  const auto saved = static_cast<double>(std::max<int64_t>(1, metrics.predicted_saved_bytes));
  const auto share =
      has_other_sizes_ ? std::min(1.0, static_cast<double>(bytes_kept()) / saved) : 1.0;
  pending_ = PendingCalls::of_process().add({compiled_region_->caller(), share * planned, planned});
}

RegionCall::Run RegionCall::take_run(size_t stage, variable_list&& vjps,
                                     const NodePtr<Node>& node) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (auto replay = take_replay())
    return *std::move(replay);
  const auto found = runs_.find(torch::autograd::get_current_graph_task_id());
  if (found == runs_.end()) {
    TORCH_CHECK(stage == 0, torch::autograd::ERR_BACKWARD_TWICE);
    return start(std::move(vjps), node);
  }
  auto run = std::move(found->second);
  runs_.erase(found);
  return run;
}

void RegionCall::put_back(Run&& run) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (run.is_replay)
    put_replay(std::move(run));
  else
    runs_.emplace(torch::autograd::get_current_graph_task_id(), std::move(run));
}

variable_list RegionCall::take_gradients(Run& run, size_t index, const std::vector<bool>& needed,
                                         bool later_stages, const torch::jit::Node* first_nan,
                                         const NodePtr<Node>& node) const {
  const auto& program = compiled_region_->backward();
  const auto& stage = compiled_region_->stages()[index];
  variable_list gradients(stage.gradients.size());
  for (size_t i = 0; i < stage.gradients.size(); ++i) {
    const auto k = stage.gradients[i];
    if (!needed[i] || (run.undefined != nullptr && run.undefined->undefined[k]))
      continue;
    // A gradient that later stages read as well stays in its register.
    const auto& output = program.outputs()[k];
    const bool read_later =
        later_stages && !output.is_constant && compiled_region_->is_read_after(index, output.index);
    auto gradient =
        read_later ? run.registers[output.index] : program.take_output(run.registers, k);
    if (gradient.isTensor())
      gradients[i] = std::move(gradient).toTensor();
    TORCH_CHECK(first_nan == nullptr || !has_nan(gradients[i]), "Function '", node->name(),
                "' returned nan values in a gradient; they come from ", description_of(first_nan));
  }
  return gradients;
}

variable_list RegionCall::run_stage(size_t index, variable_list&& vjps,
                                    const std::vector<bool>& needed, bool later_stages,
                                    const NodePtr<Node>& node) {
  const auto& stages = compiled_region_->stages();
  const auto& stage = stages[index];
  const auto& program = compiled_region_->backward();
  if (watch_ != nullptr && index == 0 && watch_->begin_backward(number_, bytes_let_go())) {
    torch::autograd::Engine::get_default_engine().queue_callback(
        [watch = watch_] { watch->stop(); });
  }
  if (index == 0 && !torch::autograd::get_current_graph_task_keep_graph())
    serve_readers();
  auto run = take_run(index, std::move(vjps), node);
  if (run.is_replay) {
    variable_list gradients;
    for (auto k : stage.gradients)
      gradients.push_back(std::move(run.replayed[k]));
    if (later_stages)
      put_back(std::move(run));
    return gradients;
  }

  const bool all_needed = std::find(needed.begin(), needed.end(), false) == needed.end() &&
                          (later_stages || index + 1 == stages.size());
  std::vector<bool> skip;
  if (run.undefined != nullptr)
    skip = run.undefined->skip;
  if (!all_needed)
    skip_unneeded(*compiled_region_, index, needed, later_stages, skip);
  if (index > 0)
    find_changes(run);
  if (!run.changed.empty())
    check_for_changes(run, program, stage, needed, all_needed, skip);

  unpack_for_stage(run, index, node);
  variable_list gradients;
  {
    const WithoutAutograd guard;
    const torch::jit::Node* first_nan = nullptr;
    try {
      first_nan = run_instructions(run, stage, skip);
    } catch (c10::Error& error) {
      explain_if_out_of_memory(*compiled_region_, is_alone_, error);
      throw;
    }
    gradients = take_gradients(run, index, needed, later_stages, first_nan, node);
  }
  if (later_stages) {
    put_back(std::move(run));
    return gradients;
  }
  for (const auto& [capture, handed] : run.handed) {
    if (!run.keeps_captures)
      handed->let_go();
  }
  end_arena_step();
  if (watch_ != nullptr) {
    run = {};
    watch_->end_backward(number_);
    if (difference_ != nullptr)
      compiled_region_->note_step(watch_->memory(), has_other_sizes_, *difference_);
  }
  return gradients;
}

void RegionCall::end_arena_step() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!released_ || !runs_.empty() || arena_step_.get() == nullptr)
    return;
  if (arena_step_.get()->is_recorded()) {
    // The gradients that have just left are consumed before the callback runs.
    torch::autograd::Engine::get_default_engine().queue_callback(
        [step = std::make_shared<OpenStep>(std::move(arena_step_))] { step->close(); });
  } else {
    arena_step_.close();
  }
}

}  // namespace aten_recompute
