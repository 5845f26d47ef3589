#include "backend/region/region.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>
#include <utility>

#include "backend/autograd/region_call.h"
#include "backend/memory/pending_calls.h"
#include "backend/planning/method_call.h"
#include "common/log.h"
#include "common/strategy_traits.h"
#include "ir/functionalize.h"
#include "ir/graph_device.h"
#include "ir/node_traits.h"
#include "ir/size_numbers.h"
#include "ir/symbols.h"
#include "rules/registry.h"
#include "runtime/arena/scratch_memory.h"
#include "runtime/inner_gradient.h"
#include "runtime/one_line_errors.h"

namespace aten_recompute {
namespace {

// Returns whether the graph has an operator of which the rule holds on the CPU only.
bool has_rules_for_cpu(torch::jit::Graph& graph) {
  const auto nodes = graph.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [](const torch::jit::Node* node) {
    const auto* rule = find_rule(node);
    return rule != nullptr && rule->on_cpu_only;
  });
}

bool has_node(torch::jit::Graph& graph, c10::Symbol kind) {
  const auto nodes = graph.nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const torch::jit::Node* node) { return node->kind() == kind; });
}

// Returns the inputs, by index, whose gradients the graph asks for itself. An operator between an
// input and a target may return the input.
std::vector<size_t> targets_among_inputs(torch::jit::Graph& graph) {
  std::vector<size_t> targets;
  for (const auto* node : graph.nodes()) {
    if (node->kind() != symbols::kGradient)
      continue;
    const auto request = GradientRequest::of(*node);
    for (int64_t i = 0; i < request.num_targets; ++i) {
      const auto* target = node->input(static_cast<size_t>(request.num_outputs + i));
      while (may_alias_an_argument(target->node()) && !target->node()->inputs().empty())
        target = target->node()->input(0);
      if (target->node() == graph.param_node())
        targets.push_back(target->offset());
    }
  }
  return targets;
}

// Returns whether the caller has registered a hook for the gradient of the tensor.
bool has_hook(const at::Tensor& tensor) {
  if (!tensor.requires_grad())
    return false;
  if (tensor.is_leaf())
    return !torch::autograd::impl::hooks(tensor).empty();
  auto& node = *tensor.grad_fn();
  return !node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() ||
         !node.retains_grad_hooks().empty();
}

void log_plan(const RegionGraphs& graphs) {
  if (log_enabled(LogTopic::kPlan, LogLevel::kInfo)) {
    log_info(LogTopic::kPlan, "a region keeps " + std::to_string(graphs.report.saved.size()) +
                                  " values and computes " +
                                  std::to_string(graphs.report.recomputed.size()) + " again" +
                                  (graphs.plan ? describe(graphs.plan->metrics) : ""));
  }
  if (log_enabled(LogTopic::kPlan, LogLevel::kDebug)) {
    const auto listed = [](const std::vector<std::string>& names) {
      std::string text;
      for (const auto& name : names)
        text += ' ' + name;
      return text.empty() ? " nothing" : text;
    };
    log_debug(LogTopic::kPlan, "kept:" + listed(graphs.report.saved));
    log_debug(LogTopic::kPlan, "computed again:" + listed(graphs.report.recomputed));
  }
}

// Returns how two keys of a region with inputs of these names differ.
std::string difference(const SpecializationKey& before, const SpecializationKey& now,
                       const std::vector<std::string>& names) {
  std::string more, fewer;
  for (size_t i = 0; i < names.size(); ++i) {
    if (before.requires_grad[i] == now.requires_grad[i])
      continue;
    auto& list = now.requires_grad[i] ? more : fewer;
    list += (list.empty() ? "" : ", ") + names[i];
  }
  if (!more.empty())
    return "these inputs require a gradient now: " + more;
  if (!fewer.empty())
    return "these inputs require no gradient any more: " + fewer;
  if (before.same != now.same)
    return "other inputs are the same tensor";
  if (before.is_on_cpu != now.is_on_cpu)
    return "the inputs are on another device";
  if (before.is_complex != now.is_complex)
    return now.is_complex ? "an input holds complex numbers" : "all inputs are real numbers";
  if (before.autocast != now.autocast)
    return "autocast has other settings";
  if (before.types != now.types)
    return "the inputs have other types under autocast";
  if (before.returned != now.returned)
    return "other calls such as to() and contiguous() have nothing to do";
  return "the inputs have other layouts";
}

bool are_on_cpu(const std::vector<c10::IValue>& inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [](const c10::IValue& input) {
    return !input.isTensor() || !input.toTensor().defined() || input.toTensor().is_cpu();
  });
}

bool any_is_complex(const std::vector<c10::IValue>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const c10::IValue& input) {
    return input.isTensor() && input.toTensor().defined() && input.toTensor().is_complex();
  });
}

bool has_real_gradient(const torch::jit::Graph& graph) {
  const auto nodes = graph.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [](const torch::jit::Node* node) {
    return node->hasAttribute(symbols::kIsReal);
  });
}

void forget_real(torch::jit::Graph& graph) {
  for (auto* node : graph.nodes()) {
    if (node->hasAttribute(symbols::kIsReal))
      node->removeAttribute(symbols::kIsReal);
  }
}

// Notes what calls that were planned for these shapes have shown of other calls and backwards.
void note_others(std::vector<std::pair<InputShapes, CallerAssumptions>>& noted,
                 const InputShapes& shapes, const CallerBehavior& caller) {
  constexpr size_t kMost = 16;  // shapes; a program that has more makes new ones all the time
  std::erase_if(noted, [&](const auto& each) { return each.first == shapes; });
  CallerAssumptions seen;
  seen.other_calls = caller.other_calls();
  seen.retained = caller.retained();
  seen.num_fewer = caller.num_fewer();
  if (noted.size() == kMost)
    noted.erase(noted.begin());
  noted.emplace_back(shapes, seen);
}

}  // namespace

std::vector<bool> attribute_flags(const torch::jit::Node* region) {
  std::vector<bool> flags;
  for (auto flag : region->is(symbols::kIsAttribute))
    flags.push_back(flag != 0);
  return flags;
}

Region::Region(std::shared_ptr<torch::jit::Graph> graph, std::vector<bool> is_attribute,
               Options options, bool is_one_of_several, std::shared_ptr<PinnedPlan> pinned_plan,
               MethodMemory method_memory)
    : graph_(std::move(graph)),
      is_attribute_(std::move(is_attribute)),
      decides_sizes_(numbers_that_decide_sizes(*graph_)),
      options_(std::move(options)),
      is_one_of_several_(is_one_of_several),
      pinned_plan_(std::move(pinned_plan)),
      method_memory_(is_one_of_several ? MethodMemory{} : std::move(method_memory)),
      depends_on_device_(has_rules_for_cpu(*graph_)),
      depends_on_autocast_(depends_on_autocast(graph_->block())),
      takes_gradients_(has_node(*graph_, symbols::kGradient)),
      has_real_gradient_(has_real_gradient(*graph_)),
      makes_leaves_(has_node(*graph_, symbols::kRequireGrad)),
      targets_(targets_among_inputs(*graph_)),
      uncompiled_(for_autograd(*graph_), /*is_planned=*/false),
      noop_elimination_(graph_),
      difference_(std::make_shared<PeakDifference>("", options_)) {}

std::vector<std::shared_ptr<const CompiledRegion>> Region::compiled_regions() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<size_t, std::shared_ptr<const CompiledRegion>> in_order;
  for (const auto& [key, plans] : compiled_regions_) {
    for (const auto& each : plans.planned.in_order()) {
      if (each->compiled_region != nullptr)
        in_order.emplace(each->number, each->compiled_region);
    }
  }
  std::vector<std::shared_ptr<const CompiledRegion>> compiled_regions;
  for (const auto& [number, compiled_region] : in_order)
    compiled_regions.push_back(compiled_region);
  return compiled_regions;
}

double Region::room_of(const CompiledRegion* compiled_region) const {
  if (compiled_region == nullptr || compiled_region->plan() == nullptr || !options_.memory_bytes ||
      is_one_of_several_)
    return 1.0;
  const auto peak = compiled_region->plan()->metrics.predicted_peak_bytes;
  return peak <= 0 ? 1.0
                   : std::max(1.0, static_cast<double>(*options_.memory_bytes) /
                                       static_cast<double>(peak));
}

void Region::say_why_compiled(const SpecializationKey& key, const InputShapes& shapes,
                              const Plans& plans, bool is_outdated) const {
  std::vector<std::string> all;
  std::vector<std::string> names;  // of the inputs whose shapes count
  for (size_t i = 0; i < graph_->inputs().size(); ++i) {
    all.push_back(graph_->inputs()[i]->debugNameBase());
    if (!is_attribute_[i])
      names.push_back(all.back());
  }
  std::string why;
  if (is_outdated) {
    why = "a step has shown other outputs, gradients or sizes than were assumed";
  } else if (!plans.planned.empty()) {
    why = "larger inputs: " + plans.planned.in_order().back()->shapes.difference(shapes, names);
  } else if (last_key_ != nullptr) {
    why = difference(*last_key_, key, all);
  } else {
    return;
  }
  log_info(LogTopic::kSpecialize, "a region is compiled again: " + why);
}

std::shared_ptr<const CompiledRegion> Region::compile(const SpecializationKey& key,
                                                      const std::vector<c10::IValue>& inputs,
                                                      const InputShapes& shapes, bool leanest,
                                                      const Plans& plans) const {
  const auto& options = options_;
  std::vector<KnownPlan> known;
  std::vector<KnownLayout> known_layouts;
  std::optional<bool> channels_last;
  for (const auto& each : plans.planned.in_order()) {
    if (each->compiled_region == nullptr)
      continue;
    const auto& layout = each->compiled_region->graphs().layout;
    channels_last = layout.channels_last;
    const auto* plan = each->compiled_region->plan();
    if (plan == nullptr)
      continue;
    const KnownPlan as_known{plan->retention.get(), plan->metrics.unplanned_peak_bytes};
    // Plans of a forward in slices are about other operators.
    if (layout.sliced != nullptr)
      known_layouts.push_back({layout, as_known});
    else
      known.push_back(as_known);
  }
  const auto seen = seen_in(plans, shapes);
  const auto compiled = [&](const Options& by) {
    RegionInput input{graph_for(key), key.requires_grad,
                      is_attribute_,  plans.policy.for_next_plan(by),
                      inputs,         leanest,
                      seen,           rules_,
                      known,          plans.policy.largest_unplanned_bytes(),
                      channels_last,  key.autocast};
    input.is_one_of_several = is_one_of_several_;
    input.method_memory = method_memory_;
    input.leaves_room = plans.policy.leaves_room();
    input.known_layouts = known_layouts;
    // A simulation whose systems grow goes on, with a warning.
    if (takes_gradients_ && !plans.planned.empty())
      input.options.leanest_if_unreachable = true;
    auto compiled_region = std::make_shared<CompiledRegion>(compile_region(input));
    if (is_one_of_several_ && compiled_region->caller() != nullptr)
      compiled_region->caller()->count_only({});
    log_plan(compiled_region->graphs());
    return compiled_region;
  };
  if (!traits_of(options).follows_plan_file || is_one_of_several_)
    return compiled(options);
  try {
    auto compiled_region = compiled(options);
    pinned_plan_->matched = true;
    return compiled_region;
  } catch (const std::invalid_argument& error) {
    if (!pinned_plan_->matched)
      throw;
    pinned_plan_->warn_of_unplanned_call(
        LogTopic::kPlan,
        std::string("a call of another kind than those planned for (evaluation, frozen layers) "
                    "keeps everything that its backward needs: ") +
            error.what());
    return compiled(without_recomputation(options));
  }
}

SeenInCalls Region::seen_in(const Plans& plans, const InputShapes& shapes) {
  auto seen = plans.seen;
  if (plans.others.empty())
    return seen;
  // Inputs that are larger than all before are used as the last ones were.
  auto found = std::find_if(plans.others.rbegin(), plans.others.rend(),
                            [&](const auto& each) { return each.first.cover(shapes); });
  const auto& caller = (found == plans.others.rend() ? plans.others.rbegin() : found)->second;
  seen.caller.other_calls = caller.other_calls;
  seen.caller.retained = caller.retained;
  seen.caller.num_fewer = caller.num_fewer;
  return seen;
}

std::vector<std::shared_ptr<Region::Planned>> Region::remove_outdated(Plans& plans) {
  const auto is_outdated = [](const std::shared_ptr<Planned>& each) {
    return each->outgrown ||
           (each->compiled_region != nullptr && each->compiled_region->is_outdated());
  };
  std::vector<std::shared_ptr<Planned>> removed;
  for (const auto& each : plans.planned.in_order()) {
    if (!is_outdated(each))
      continue;
    removed.push_back(each);
    plans.policy.note_replacement();
    if (each->compiled_region->is_outdated()) {
      const auto& caller = *each->compiled_region->caller();
      plans.seen.profile.expanded = caller.expanded();
      plans.seen.caller = {caller.freed_before_backward(), caller.loss_factor(),
                           caller.held_factor()};
      note_others(plans.others, each->shapes, caller);
    }
    if (std::find(plans.replaced.begin(), plans.replaced.end(), each->shapes) ==
        plans.replaced.end())
      plans.replaced.push_back(each->shapes);
  }
  plans.planned.erase_if(is_outdated);
  return removed;
}

void Region::bring_back_outgrown(Plans& plans,
                                 const std::vector<std::shared_ptr<Planned>>& removed) {
  bool has_any = false;
  for (const auto& each : removed) {
    if (!each->outgrown || each->compiled_region->is_outdated())
      continue;
    has_any = true;
    each->outgrown = false;
    plans.seen.profile.data_sizes = each->compiled_region->plan()->data_sizes;
    plans.planned.insert(each);
  }
  if (has_any)
    plans.policy.note_other_path();
}

DataGrowth Region::growth_beyond(const CompiledRegion* compiled_region,
                                 const DataSizes& sizes) const {
  if (compiled_region == nullptr || compiled_region->plan() == nullptr)
    return DataGrowth::kNone;
  return growth_of(sizes, compiled_region->plan()->data_sizes, room_of(compiled_region));
}

bool Region::has_outgrown(const SpecializationKey& key, const CompiledRegion& compiled_region,
                          const InputShapes& shapes, const DataSizes& sizes) {
  const auto growth = growth_beyond(&compiled_region, sizes);
  if (growth == DataGrowth::kNone)
    return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& plans = compiled_regions_[key];
  plans.policy.note_larger_data();
  bool has_another = false;
  for (const auto& each : plans.planned.in_order()) {
    if (each->compiled_region.get() == &compiled_region) {
      each->outgrown = true;
    } else if (each->shapes.cover(shapes)) {
      if (growth_beyond(each->compiled_region.get(), sizes) == DataGrowth::kNone)
        has_another = true;
      else
        each->outgrown = true;
    }
  }
  if (!has_another)
    plans.seen.profile.data_sizes = sizes_after(growth, sizes, compiled_region.plan()->data_sizes);
  return true;
}

const std::shared_ptr<Region::Planned>* Region::find_for_data(Plans& plans,
                                                              const InputShapes& shapes) {
  std::shared_ptr<Planned> best;
  double most = 0.0;
  for (const auto& each : plans.planned.in_order()) {
    if (each->compiled_region == nullptr || each->compiled_region->plan() == nullptr ||
        !each->shapes.cover(shapes))
      continue;
    const auto elements = elements_of(each->compiled_region->plan()->data_sizes);
    if (elements > most) {
      most = elements;
      best = each;
    }
  }
  return best == nullptr ? nullptr
                         : plans.planned.find_if([&](const auto& each) { return each == best; });
}

std::shared_ptr<const CompiledRegion> Region::compile_again(const CompiledRegion& before,
                                                            const SpecializationKey& key,
                                                            const RetentionPlan& retention,
                                                            HandedOver handed) const {
  RegionInput input{graph_for(key), key.requires_grad, is_attribute_, options_, {}, false, {},
                    rules_};
  input.is_one_of_several = is_one_of_several_;
  auto graphs = recompile_with_plan(input, before.graphs(), retention, handed.results);
  graphs.plan->handed.clear();
  for (auto input : handed.made_again)
    graphs.plan->handed.push_back(graphs.plan->boundary.inputs[input]);
  return std::make_shared<CompiledRegion>(std::move(graphs), before.caller(), std::move(handed));
}

SpecializationKey Region::key_of(const std::vector<c10::IValue>& inputs,
                                 std::optional<at::Device> described) const {
  SpecializationKey key;
  key.requires_grad.resize(inputs.size(), false);
  if (!at::GradMode::is_enabled())
    return key;
  key.autocast = AutocastState::current().for_graph(depends_on_autocast_);
  const bool has_casts = depends_on_autocast_ || key.autocast.is_on();
  // Sorted by address, then by index, so that equal tensors are neighbors.
  std::vector<std::pair<const void*, size_t>> tensors;
  tensors.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].isTensor() || !inputs[i].toTensor().requires_grad())
      continue;
    key.requires_grad[i] = true;
    tensors.emplace_back(inputs[i].toTensor().unsafeGetTensorImpl(), i);
  }
  std::sort(tensors.begin(), tensors.end());
  for (size_t k = 1, first = 0; k < tensors.size(); ++k) {
    if (tensors[k].first != tensors[first].first) {
      first = k;
      continue;
    }
    // The profile handles tied weights by itself; autocast casts them once.
    const auto [a, b] = std::pair(tensors[first].second, tensors[k].second);
    if (!(is_attribute_[a] && is_attribute_[b]) || has_casts)
      key.same.emplace_back(a, b);
  }
  std::sort(key.same.begin(), key.same.end());  // must not depend on addresses
  key.is_on_cpu = depends_on_device_ && (described ? described->is_cpu() : are_on_cpu(inputs));
  key.is_complex = has_real_gradient_ && any_is_complex(inputs);
  key.may_change_layouts = may_change_layouts(options_, inputs);
  if (!has_casts)
    return key;
  for (const auto& input : inputs) {
    const bool is_tensor = input.isTensor() && input.toTensor().defined();
    key.types.emplace_back(is_tensor ? static_cast<int>(input.toTensor().scalar_type()) : -1,
                           is_tensor && input.toTensor().is_leaf());
  }
  return key;
}

bool Region::has_hooked_target(const std::vector<c10::IValue>& inputs) const {
  return std::any_of(targets_.begin(), targets_.end(), [&](size_t i) {
    return inputs[i].isTensor() && has_hook(inputs[i].toTensor());
  });
}

RegionInput Region::compilation_of(const std::vector<c10::IValue>& inputs,
                                   std::optional<at::Device> described) {
  auto key = key_of(inputs, described);
  key.returned = noop_elimination_.find(inputs);
  RegionInput input{graph_for(key), key.requires_grad, is_attribute_, options_, inputs, false, {},
                    rules_};
  input.described = described;
  input.autocast = key.autocast;
  input.is_one_of_several = is_one_of_several_;
  input.method_memory = method_memory_;
  return input;
}

std::shared_ptr<torch::jit::Graph> Region::graph_for(const SpecializationKey& key) const {
  auto graph = noop_elimination_.fold(key.returned);
  if (key.same.empty() && !key.is_on_cpu && !key.is_complex)
    return graph;
  graph = graph->copy();
  if (key.is_on_cpu)
    put_inputs_on_cpu(*graph);
  if (key.is_complex)
    forget_real(*graph);
  for (const auto& [first, second] : key.same) {
    if (*graph->inputs()[first]->type() == *graph->inputs()[second]->type())
      graph->inputs()[second]->replaceAllUsesWith(graph->inputs()[first]);
  }
  return graph;
}

std::shared_ptr<StepWatch> Region::watch(RegionCall& call, const std::vector<c10::IValue>& inputs,
                                         bool is_for_larger) const {
  const auto& compiled_region = call.compiled_region();
  if (compiled_region.plan() == nullptr)
    return nullptr;
  if (auto* method = MethodCall::current()) {
    if (auto watch = method->watch()) {
      const auto number = watch->begin_forward();
      call.set_watch(std::move(watch), number);
    }
    return nullptr;
  }
  const bool has_step = traits_of(options_).keeps_budget && !is_one_of_several_ &&
                        MethodCall::may_watch() && StepWatch::sees_all_memory();
  if (!has_step)
    return nullptr;
  const auto bytes_before = bytes_of_copies(method_memory_, inputs);
  auto watch = StepWatch::take_over(this, bytes_before);
  if (watch == nullptr && compiled_region.wants_watch(is_for_larger))
    watch = StepWatch::start(bytes_before, this, PendingCalls::of_process().next_number());
  if (watch != nullptr)
    call.set_own_watch(watch, is_for_larger, difference_);
  return watch;
}

}  // namespace aten_recompute
