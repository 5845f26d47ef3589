#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "backend/autograd/out_of_memory_text.h"
#include "backend/autograd/region_call.h"
#include "backend/autograd/shared_casts.h"
#include "backend/autograd/stage_node.h"
#include "backend/planning/method_call.h"
#include "backend/region/region.h"
#include "common/log.h"
#include "common/strategy_traits.h"
#include "runtime/arena/scratch_memory.h"
#include "runtime/autocast.h"
#include "runtime/autograd_modes.h"
#include "runtime/one_line_errors.h"
#include "runtime/tape_reach.h"

namespace aten_recompute {
namespace {

using torch::autograd::Edge;
using torch::jit::Stack;

bool share_storage(const c10::IValue& a, const at::Tensor& b) {
  return a.isTensor() && a.toTensor().has_storage() && b.has_storage() &&
         a.toTensor().storage().is_alias_of(b.storage());
}

using HandedValues = std::map<size_t, std::shared_ptr<HandedValue>>;  // by input

// Returns the inputs that are not kept, because the plan has other regions make them again.
HandedValues find_handed(const CompiledRegion& compiled_region,
                         const std::vector<c10::IValue>& inputs) {
  HandedValues handed;
  if (at::SavedTensorDefaultHooks::get_hooks().has_value())
    return handed;
  for (auto input : compiled_region.handed().made_again) {
    const auto edge = torch::autograd::impl::gradient_edge(inputs[input].toTensor());
    auto* const maker = dynamic_cast<StageNode*>(edge.function.get());
    if (maker == nullptr)
      continue;
    // The edge keeps the node, and with it the call.
    const auto make = [edge, maker] {
      return maker->call().replay_output(edge.input_nr, edge.function);
    };
    auto& value = handed[input];
    value = std::make_shared<HandedValue>(inputs[input].toTensor(), make);
    // The call makes the value again before it releases what that takes.
    maker->call().add_reader(value);
  }
  return handed;
}

// Notes what running the region again needs beside its captures. Per input: is it kept alive for
// it?
std::vector<bool> note_for_replay(RegionCall& call, const std::vector<c10::IValue>& inputs,
                                  const HandedValues& handed) {
  std::vector<bool> is_kept(inputs.size(), false);
  const auto& compiled_region = call.compiled_region();
  const auto captured = captured_inputs(compiled_region, inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (captured[i])
      continue;
    ReplayInput noted;
    noted.input = i;
    if (const auto found = handed.find(i); found != handed.end())
      noted.saved.handed = found->second;
    else if (compiled_region.handed().makes_again && !compiled_region.written_inputs()[i])
      noted.saved = save_capture(inputs[i], /*reachable=*/true, /*is_output=*/false);
    else
      noted = note_replay_input(i, inputs[i], compiled_region.written_inputs()[i]);
    is_kept[i] = !noted.maker.is_valid();
    call.add_replay_input(std::move(noted));
  }
  for (auto i : call.compiled_region().read_statistics()) {
    const bool is_tensor = inputs[i].isTensor() && inputs[i].toTensor().defined();
    call.add_statistics(is_tensor ? c10::IValue(inputs[i].toTensor().detach().clone()) : inputs[i]);
  }
  if (call.compiled_region().draws_random_numbers())
    call.set_random_states(RandomStates(inputs));
  return is_kept;
}

std::vector<c10::IValue> take_inputs(Stack& stack, size_t count) {
  std::vector<c10::IValue> inputs(
      std::make_move_iterator(stack.end() - static_cast<std::ptrdiff_t>(count)),
      std::make_move_iterator(stack.end()));
  torch::jit::drop(stack, count);
  return inputs;
}

std::vector<SavedCapture> capture_inputs(const CompiledRegion& compiled_region,
                                         const std::vector<c10::IValue>& inputs,
                                         const HandedValues& handed) {
  std::vector<SavedCapture> captures;
  const auto& captured = compiled_region.gradient().df_input_captured_inputs;
  for (size_t k = 0; k < captured.size(); ++k) {
    if (const auto found = handed.find(captured[k]); found != handed.end()) {
      captures.emplace_back().handed = found->second;
      continue;
    }
    const bool reachable = !compiled_region.read_as_metadata()[k];
    captures.push_back(save_capture(inputs[captured[k]], reachable, /*is_output=*/false));
  }
  return captures;
}

std::vector<const void*> tensors_of(const std::vector<c10::IValue>& inputs) {
  std::vector<const void*> tensors;
  for (const auto& input : inputs) {
    if (input.isTensor())
      tensors.push_back(input.toTensor().unsafeGetTensorImpl());
  }
  return tensors;
}

// Returns the inputs, by index, that a captured output may be a view of. Whether it is one is known
// after the forward has run.
std::map<size_t, at::Tensor> find_possible_bases(const CompiledRegion& compiled_region,
                                                 const std::vector<c10::IValue>& inputs) {
  std::map<size_t, at::Tensor> bases;
  for (const auto& aliased : compiled_region.aliased_inputs()) {
    for (auto i : aliased)
      bases[i] = inputs[i].isTensor() ? inputs[i].toTensor() : at::Tensor();
  }
  return bases;
}

// Makes each output of the region a tensor that can have a history of its own. An operator may have
// returned an input, which has another history, and a constant such as torch.zeros(3) must be a new
// tensor in each call. `tensors` are the inputs.
void make_outputs_distinct(const CompiledRegion& compiled_region, std::vector<const void*> tensors,
                           std::vector<c10::IValue>& outputs) {
  const auto num_outputs = compiled_region.gradient().f_real_outputs;
  for (size_t i = 0; i < num_outputs; ++i) {
    if (!outputs[i].isTensor() || !outputs[i].toTensor().defined())
      continue;
    if (compiled_region.forward().outputs()[i].is_constant)
      outputs[i] = outputs[i].toTensor().clone();
    const void* tensor = outputs[i].toTensor().unsafeGetTensorImpl();
    if (std::find(tensors.begin(), tensors.end(), tensor) != tensors.end())
      outputs[i] = at::alias(outputs[i].toTensor());
    else
      tensors.push_back(tensor);
  }
}

struct ForwardRun {
  std::vector<c10::IValue> outputs;  // the region's outputs, then the captured values
  DataSizes data_sizes;              // that data decided, if the plan depends on any
  std::vector<bool> requires_grad;   // TapeReach::outputs()
};

// Runs the forward. With `is_too_large`, which is asked each time that data have decided more sizes
// and the run can still be given up, returns nullopt where it says so; `inputs`, which are taken
// otherwise, are as before then.
std::optional<ForwardRun> run_forward(const CompiledRegion& compiled_region,
                                      std::vector<c10::IValue>& inputs,
                                      const std::vector<const void*>& input_tensors,
                                      StepArena* arena, size_t run,
                                      const std::function<bool(const DataSizes&)>& is_too_large) {
  const WithoutAutograd guard;
  const WithoutAutocast no_autocast;
  const auto* plan = compiled_region.plan();
  const bool data_decide_sizes = plan != nullptr && !plan->data_sizes.empty();
  const auto& forward = compiled_region.forward();
  auto held = is_too_large ? inputs : std::vector<c10::IValue>();
  auto registers = forward.start(std::move(inputs));
  const auto& sources = compiled_region.graphs().tape_sources;
  const TapeReach reach(sources.is_needed() ? &sources : nullptr);
  ForwardRun result;
  {
    const AllocationScope scope(arena, PassKey::of(run, 0), &forward);
    size_t begin = 0;
    const auto run_up_to = [&](size_t end) {
      forward.run(registers, begin, end, nullptr, nullptr,
                  data_decide_sizes ? &result.data_sizes : nullptr);
      begin = end;
    };
    if (is_too_large) {
      for (auto end : compiled_region.data_checks()) {
        run_up_to(end);
        if (is_too_large(result.data_sizes)) {
          inputs = std::move(held);
          return std::nullopt;
        }
      }
      held.clear();
    }
    run_up_to(forward.instructions().size());
  }
  result.requires_grad = reach.outputs();
  for (size_t i = 0; i < forward.outputs().size(); ++i)
    result.outputs.push_back(forward.take_output(registers, i));
  make_outputs_distinct(compiled_region, input_tensors, result.outputs);
  return result;
}

// Makes `node` the history of the outputs that require grad. `requires_grad` is what
// TapeReach::outputs() returns.
void set_histories(RegionCall& call, const std::vector<c10::IValue>& outputs,
                   const std::vector<bool>& requires_grad,
                   const NodePtr<torch::autograd::Node>& node) {
  const auto& vjps = call.compiled_region().gradient().df_input_vjps;
  for (size_t k = 0; k < vjps.size(); ++k) {
    const auto i = vjps[k];
    const auto& output = outputs[i].toTensor();
    OutputMetadata metadata{output.sizes().vec(), output.options()};
    if (output.has_storage())
      metadata.storage = output.storage().getWeakStorageImpl();
    call.add_output(std::move(metadata));
    // The type tells only here that an output has no gradient, such as the indices of a maximum.
    if (torch::autograd::isDifferentiableType(output.scalar_type()) &&
        (requires_grad.empty() || requires_grad[k]))
      torch::autograd::set_history(output, node);
    else
      node->add_input_metadata(torch::autograd::Node::undefined_input());
  }
}

// The history of an output whose graph autograd.grad() in the method has freed. It raises, unless
// its first edge leads to the region, and no gradient of those to which the others lead is asked
// for.
struct FreedGraph : torch::autograd::Node {
  explicit FreedGraph(bool passes_gradient) : passes_gradient_(passes_gradient) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    bool is_freed = !passes_gradient_;
    for (size_t i = 1; i < num_outputs(); ++i)
      is_freed = is_freed || task_should_compute_output(i);
    TORCH_CHECK(!is_freed,
                "Trying to backward through the graph a second time: autograd.grad() in the method "
                "has freed it. Say retain_graph=True there.");
    gradients.resize(num_outputs());
    return std::move(gradients);
  }
  std::string name() const override { return "AtenRecomputeFreedGraph"; }

 private:
  bool passes_gradient_;
};

// `edges` lead to the inputs behind each freed graph: a backward that asks for their gradients
// alone has to come to the node, too.
void set_freed_histories(const CompiledRegion& compiled_region,
                         const std::vector<c10::IValue>& outputs,
                         std::vector<torch::autograd::edge_list> edges) {
  const auto& freed = compiled_region.graphs().freed;
  for (size_t i = 0; i < freed.size(); ++i) {
    const auto& output = outputs[freed[i].output].toTensor();
    if (!torch::autograd::isDifferentiableType(output.scalar_type()))
      continue;
    const bool passes_gradient = freed[i].depends_on_others && output.requires_grad();
    auto node = make_node<FreedGraph>(passes_gradient);
    if (passes_gradient)
      edges[i].insert(edges[i].begin(), torch::autograd::impl::gradient_edge(output));
    if (freed[i].leads_to_own_leaf)  // nobody else has the leaf, but a backward() goes there
      edges[i].push_back(torch::autograd::impl::gradient_edge(at::empty({0}).requires_grad_()));
    node->set_next_edges(std::move(edges[i]));
    torch::autograd::set_history(output, node);
  }
}

std::vector<torch::autograd::edge_list> edges_of_freed_outputs(
    const CompiledRegion& compiled_region, const std::vector<c10::IValue>& inputs) {
  std::vector<torch::autograd::edge_list> edges;
  for (const auto& freed : compiled_region.graphs().freed) {
    edges.emplace_back();
    for (auto i : freed.inputs) {
      if (inputs[i].isTensor() && inputs[i].toTensor().requires_grad())
        edges.back().push_back(torch::autograd::impl::gradient_edge(inputs[i].toTensor()));
    }
  }
  return edges;
}

// Has a write to an output of the region be noticed where the value, in the same memory, was saved:
// views that are made without autograd count versions of their own.
void share_version(const c10::IValue& value, const std::vector<c10::IValue>& outputs,
                   size_t num_outputs) {
  if (!value.isTensor() || !value.toTensor().defined() || value.toTensor().is_inference())
    return;
  for (size_t i = 0; i < num_outputs; ++i) {
    if (!outputs[i].isTensor() || !share_storage(value, outputs[i].toTensor()))
      continue;
    value.toTensor().unsafeGetTensorImpl()->set_version_counter(
        outputs[i].toTensor().unsafeGetTensorImpl()->version_counter());
  }
}

// Saves the captured values among the outputs, and leaves only the region's outputs.
void capture_outputs(RegionCall& call, std::vector<c10::IValue>& outputs,
                     const std::map<size_t, at::Tensor>& possible_bases) {
  const auto& compiled_region = call.compiled_region();
  const auto& gradient = compiled_region.gradient();
  const size_t num_captured_inputs = gradient.df_input_captured_inputs.size();
  for (size_t k = 0; k < gradient.df_input_captured_outputs.size(); ++k) {
    const auto i = gradient.df_input_captured_outputs[k];
    const bool is_output = i < gradient.f_real_outputs;
    const bool is_seen = compiled_region.shares_with_output()[k];
    // What may be an input itself has that input's versions, and a guard below.
    if (is_seen && !is_output && compiled_region.aliased_inputs()[k].empty())
      share_version(outputs[i], outputs, gradient.f_real_outputs);
    const bool has_history =
        is_seen && outputs[i].isTensor() && outputs[i].toTensor().requires_grad();
    call.add_capture(save_capture(outputs[i], is_seen, has_history));
    if (is_output)
      continue;
    for (auto base : compiled_region.aliased_inputs()[k]) {
      const auto& tensor = possible_bases.at(base);
      if (tensor.defined() && share_storage(outputs[i], tensor))
        call.add_guard(num_captured_inputs + k, tensor);
    }
    outputs[i] = c10::IValue();
  }
  outputs.resize(gradient.f_real_outputs);
}

}  // namespace

std::vector<bool> captured_inputs(const CompiledRegion& compiled_region, size_t num_inputs) {
  std::vector<bool> captured(num_inputs, false);
  const auto& captures = compiled_region.gradient().df_input_captured_inputs;
  for (size_t k = 0; k < captures.size(); ++k)
    captured[captures[k]] = !compiled_region.read_as_metadata()[k];
  return captured;
}

std::vector<Edge> gradient_edges(const CompiledRegion& compiled_region,
                                 const std::vector<c10::IValue>& inputs) {
  std::vector<Edge> edges;
  for (auto i : compiled_region.gradient().df_output_vjps)
    edges.push_back(torch::autograd::impl::gradient_edge(inputs[i].toTensor()));
  return edges;
}

void Region::run_uncompiled(Stack& stack, std::vector<c10::IValue> inputs) const {
  auto registers = uncompiled_.start(std::move(inputs));
  uncompiled_.run(registers, 0, uncompiled_.instructions().size());
  for (size_t i = 0; i < graph_->outputs().size(); ++i) {
    stack.push_back(uncompiled_.take_output(registers, i));
  }
}

Region::Choice Region::choose(const SpecializationKey& key,
                              const std::vector<c10::IValue>& inputs) {
  const OutsideOfSteps compiling;
  const WithoutAutocastCache no_cache;
  if (!traits_of(options_).depends_on_shapes(is_one_of_several_))
    return compiled_for(key, inputs, {}, false, false);
  const InputShapes shapes(inputs, is_attribute_, decides_sizes_);
  auto* call = MethodCall::current();
  if (call == nullptr)
    return compiled_for(key, inputs, shapes, false, is_one_of_several_);
  if (auto compiled_region = call->planned({this, key, shapes, nullptr}))
    return {compiled_region};
  auto choice = compiled_for(key, inputs, shapes, /*exact=*/!call->has_plan(), /*leanest=*/true);
  call->ran(choice.compiled_region);
  return choice;
}

namespace {

// Returns whether a checkpoint repeats the call in a backward. It compares what the call saves with
// what the first one saved, so both run the same plan.
bool is_repeated_by_checkpoint() {
  return at::SavedTensorDefaultHooks::get_hooks().has_value() &&
         torch::autograd::get_current_graph_task_id() >= 0;
}

// Removes the smallest shapes that cover these from the list. Returns whether there are any.
bool take_replaced(std::vector<InputShapes>& replaced, const InputShapes& shapes) {
  auto best = replaced.end();
  for (auto each = replaced.begin(); each != replaced.end(); ++each) {
    if (each->cover(shapes) && (best == replaced.end() || best->cover(*each)))
      best = each;
  }
  if (best == replaced.end())
    return false;
  replaced.erase(best);
  return true;
}

}  // namespace

Region::Choice Region::compiled_for(const SpecializationKey& key,
                                    const std::vector<c10::IValue>& inputs,
                                    const InputShapes& shapes, bool exact, bool leanest) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& plans = compiled_regions_[key];
  std::vector<std::shared_ptr<Planned>> removed;
  if (traits_of(options_).keeps_budget && !is_repeated_by_checkpoint())
    removed = remove_outdated(plans);
  // Where a region cannot be differentiated, shapes make no difference.
  const auto* found =
      plans.planned.find_if([](const auto& each) { return each->compiled_region == nullptr; });
  if (found == nullptr && !exact && traits_of(options_).keeps_budget)
    found = find_for_data(plans, shapes);
  if (found == nullptr)
    found = plans.planned.find(shapes, exact);
  if (found != nullptr)
    return {(*found)->compiled_region, (*found)->shapes != shapes, plans.policy.may_start_again()};
  if (log_enabled(LogTopic::kSpecialize, LogLevel::kInfo))
    say_why_compiled(key, shapes, plans, !removed.empty());
  if (!take_replaced(plans.replaced, shapes) && !plans.planned.empty())
    plans.policy.note_larger_inputs();
  last_key_ = &compiled_regions_.find(key)->first;
  // The step that follows is recorded in memory of its own, so it needs none that is kept.
  ArenaPool::instance().clear();
  const ScratchMemory scratch;
  std::shared_ptr<const CompiledRegion> compiled_region;
  try {
    compiled_region = compile(key, inputs, shapes, leanest, plans);
  } catch (const NotDifferentiable& error) {
    log_warning(LogTopic::kRules,
                std::string("a region runs under ordinary autograd, unplanned: ") + error.what());
  } catch (const NotProfiled&) {
    bring_back_outgrown(plans, removed);
    return {};  // the region's own run raises the error
  } catch (const std::exception&) {
    rethrow_in_one_line();
  }
  if (compiled_region != nullptr && compiled_region->plan() != nullptr)
    plans.policy.note_plan(compiled_region->plan()->metrics.unplanned_peak_bytes);
  plans.planned.insert(std::make_shared<Planned>(
      Planned{shapes.with_room(room_of(compiled_region.get())), compiled_region, num_compiled_++}));
  return {compiled_region};
}

void Region::run(Stack& stack) {
  auto inputs = take_inputs(stack, graph_->inputs().size());
  auto key = key_of(inputs);
  const auto& requires_grad = key.requires_grad;
  if (std::find(requires_grad.begin(), requires_grad.end(), true) == requires_grad.end() &&
      !(makes_leaves_ && at::GradMode::is_enabled())) {
    note_casts_without_gradient(inputs);
    run_uncompiled(stack, std::move(inputs));
    return;
  }
  if (has_hooked_target(inputs)) {
    run_uncompiled(stack, std::move(inputs));
    return;
  }
  key.returned = noop_elimination_.find(inputs);
  // A call whose data make larger tensors than planned for is planned again while it has taken
  // little memory, once for each of a few places at which they decide.
  constexpr size_t kMostPlans = 4;
  const bool is_alone = traits_of(options_).keeps_budget && !is_one_of_several_;
  for (size_t plans = 1; !run_compiled(stack, inputs, key, is_alone && plans < kMostPlans); ++plans)
    continue;
}

bool Region::run_compiled(Stack& stack, std::vector<c10::IValue>& inputs,
                          const SpecializationKey& key, bool may_plan_again) {
  const auto [compiled_region, is_for_larger, may_start_again] = choose(key, inputs);
  if (compiled_region == nullptr) {
    run_uncompiled(stack, std::move(inputs));
    return true;
  }

  const auto edges = gradient_edges(*compiled_region, inputs);
  auto edges_of_summands = share_casts(*compiled_region, inputs, edges);
  // A region without a profile has no part in a plan for the whole method.
  auto* dataflow = MethodCall::current() == nullptr || compiled_region->plan() == nullptr
                       ? nullptr
                       : MethodCall::current()->dataflow();
  const auto handed = find_handed(*compiled_region, inputs);
  const auto call = std::make_shared<RegionCall>(compiled_region,
                                                 capture_inputs(*compiled_region, inputs, handed));
  if (!is_one_of_several_)
    call->set_alone();
  const auto is_kept = note_for_replay(*call, inputs, handed);
  const auto own_watch = watch(*call, inputs, is_for_larger);
  if (dataflow != nullptr)
    dataflow->begin_run(compiled_region, is_attribute_, inputs, is_kept, edges);
  auto freed_edges = edges_of_freed_outputs(*compiled_region, inputs);
  const auto input_tensors = tensors_of(inputs);
  const auto possible_bases = find_possible_bases(*compiled_region, inputs);

  InputShapes shapes;  // asked for where data may outgrow the plan
  if (compiled_region->plan() != nullptr && !compiled_region->plan()->data_sizes.empty())
    shapes = InputShapes(inputs, is_attribute_, decides_sizes_);
  std::function<bool(const DataSizes&)> is_too_large;
  if (may_plan_again && may_start_again && !compiled_region->data_checks().empty()) {
    is_too_large = [&, compiled_region = compiled_region](const DataSizes& sizes) {
      return has_outgrown(key, *compiled_region, shapes, sizes);
    };
  }
  OpenStep arena(options_.arena == ArenaMode::kOff
                     ? nullptr
                     : ArenaCall::step_for(compiled_region->arena_plans(),
                                           options_.arena == ArenaMode::kRelease));
  const size_t arena_run = arena.get() == nullptr ? 0 : arena.get()->begin_run();
  std::optional<ForwardRun> forward;
  try {
    forward =
        run_forward(*compiled_region, inputs, input_tensors, arena.get(), arena_run, is_too_large);
  } catch (c10::Error& error) {
    explain_if_out_of_memory(*compiled_region, !is_one_of_several_, error);
    throw;
  }
  if (!forward)
    return false;
  auto& [outputs, data_sizes, outputs_require_grad] = *forward;
  const bool makes_again = compiled_region->handed().makes_again && arena.get() != nullptr;
  const size_t run_again = makes_again ? arena.get()->begin_run() : 0;
  call->set_arena(std::move(arena), arena_run, run_again);
  if (traits_of(options_).keeps_budget) {
    auto* const method = MethodCall::current();
    if (has_outgrown(key, *compiled_region, shapes, data_sizes)) {
      warn_of_larger_data_(
          LogTopic::kMemory,
          "memory_budget may be exceeded by this call: its data made tensors larger than those "
          "planned for. The region is planned again before the next call");
      if (method != nullptr)
        method->outgrew();
    }
    if (compiled_region->plan() != nullptr &&
        are_other_sizes(data_sizes, compiled_region->plan()->data_sizes)) {
      call->note_other_sizes();
      if (method != nullptr)
        method->note_other_sizes();
    }
  }

  const auto node = make_stages(call, std::move(edges_of_summands));
  if (dataflow != nullptr)
    dataflow->end_run(outputs, node);
  set_histories(*call, outputs, outputs_require_grad, node);
  set_freed_histories(*compiled_region, outputs, std::move(freed_edges));
  capture_outputs(*call, outputs, possible_bases);
  if (is_for_larger)
    call->note_other_sizes();
  if (traits_of(options_).keeps_budget && !is_one_of_several_)
    call->wait_for_backward();
  if (own_watch != nullptr)
    own_watch->end_call();
  for (auto& output : outputs)
    stack.push_back(std::move(output));
  return true;
}

}  // namespace aten_recompute
