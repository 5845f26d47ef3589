#include "passes/run_by_name.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/did_you_mean.h"
#include "common/join.h"
#include "ir/dead_code.h"
#include "ir/functionalize.h"
#include "ir/joint_graph.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/alternatives.h"
#include "passes/autodiff/differentiate.h"
#include "passes/autodiff/expand_gradients.h"
#include "passes/autodiff/hoist_metadata.h"
#include "passes/autodiff/name_values.h"
#include "passes/autodiff/sum_parts.h"
#include "passes/frontend/path/path_builder.h"
#include "passes/frontend/path/record_path.h"
#include "passes/frontend/regions/form_regions.h"
#include "passes/frontend/regions/mark_clobbered_reads.h"
#include "passes/frontend/rewrites/assign_layers.h"
#include "passes/frontend/rewrites/autocast_blocks.h"
#include "passes/frontend/rewrites/fold_attributes.h"
#include "passes/frontend/rewrites/fold_conditions.h"
#include "passes/frontend/rewrites/functionalize_lists.h"
#include "passes/frontend/rewrites/inline_modules.h"
#include "passes/frontend/rewrites/not_recordable.h"
#include "passes/frontend/rewrites/number_constants.h"
#include "passes/frontend/rewrites/profiler_ranges.h"
#include "passes/frontend/rewrites/propagate_ranks.h"
#include "passes/frontend/rewrites/restore_convolutions.h"
#include "passes/frontend/rewrites/sink_into_checks.h"
#include "passes/frontend/rewrites/small_passes.h"
#include "passes/frontend/rewrites/split_list_attributes.h"
#include "passes/partition/extract.h"
#include "passes/partition/splice.h"
#include "passes/partition/split_sums.h"
#include "passes/partition/undefined_gradients.h"
#include "passes/profile/profile.h"
#include "passes/region/channels_last.h"
#include "passes/region/forward_tensors.h"
#include "passes/region/fuse_batch_norm.h"
#include "passes/region/insert_casts.h"
#include "passes/region/noop_elimination.h"
#include "passes/region/slice_rows.h"
#include "passes/strategy/graph_problem.h"
#include "passes/strategy/plan_region.h"
#include "passes/strategy/strategies.h"
#include "planner/model/simulator.h"
#include "runtime/autocast.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using GraphPtr = std::shared_ptr<Graph>;

// What a pass is run with. `graphs` is what it leaves; at first the graph itself.
struct Run {
  GraphPtr graph;
  const NamedPassInput& input;
  std::vector<GraphPtr> graphs;
};

enum class Needs : uint8_t { kGraph, kModule, kInputs, kModuleAndInputs, kJointGraph };

struct NamedPass {
  Pass pass;
  const char* summary;
  Needs needs;
  void (*body)(Run& run);
};

// ---- joint graphs ----

// Attributes of backward_start, and of nodes in front of it (kRequiresGrad: one flag per output).
const auto kNumInputs = c10::Symbol::attr("num_inputs");
const auto kNumOutputs = c10::Symbol::attr("num_outputs");
const auto kVjpOutputs = c10::Symbol::attr("vjp_outputs");
const auto kGradientInputs = c10::Symbol::attr("gradient_inputs");
const auto kOutputRequiresGrad = c10::Symbol::attr("output_requires_grad");
const auto kRequiresGrad = c10::Symbol::attr("requires_grad");
const auto kSteps = c10::Symbol::attr("steps");

template <class Numbers>
std::vector<int64_t> as_ints(const Numbers& numbers) {
  return {numbers.begin(), numbers.end()};
}

template <class Number>
std::vector<Number> from_ints(const std::vector<int64_t>& numbers) {
  std::vector<Number> result;
  for (const auto number : numbers)
    result.push_back(static_cast<Number>(number));
  return result;
}

std::vector<int64_t> flags(at::ArrayRef<torch::jit::Value*> values, const JointGraph& joint) {
  std::vector<int64_t> result;
  for (const auto* value : values)
    result.push_back(joint.requires_grad.count(value->unique()) != 0 ? 1 : 0);
  return result;
}

// Puts what JointGraph has besides its graph into the graph.
void write(const JointGraph& joint) {
  auto* start = joint.backward_start;
  start->i_(kNumInputs, static_cast<int64_t>(joint.num_inputs));
  start->i_(kNumOutputs, static_cast<int64_t>(joint.num_outputs));
  start->is_(kVjpOutputs, as_ints(joint.vjp_outputs));
  start->is_(kGradientInputs, as_ints(joint.gradient_inputs));
  start->is_(kOutputRequiresGrad, as_ints(joint.output_requires_grad));
  start->is_(kRequiresGrad, flags(joint.graph->inputs(), joint));
  for (auto* node : joint.forward_nodes()) {
    auto marked = flags(node->outputs(), joint);
    if (std::find(marked.begin(), marked.end(), 1) != marked.end())
      node->is_(kRequiresGrad, std::move(marked));
  }
}

// Takes it out again: nodes with other attributes would be of other classes for the profile.
JointGraph read(const GraphPtr& graph) {
  JointGraph joint;
  joint.graph = graph;
  const auto note = [&](at::ArrayRef<torch::jit::Value*> values, Node* node) {
    if (!node->hasAttribute(kRequiresGrad))
      return;
    const auto& marked = node->is(kRequiresGrad);
    for (size_t i = 0; i < std::min(values.size(), marked.size()); ++i) {
      if (marked[i] != 0)
        joint.requires_grad.insert(values[i]->unique());
    }
  };
  for (auto* node : graph->nodes()) {
    if (node->kind() == symbols::kBackwardStart) {
      joint.backward_start = node;
      break;
    }
    note(node->outputs(), node);
    if (node->hasAttribute(kRequiresGrad))
      node->removeAttribute(kRequiresGrad);
  }
  auto* start = joint.backward_start;
  if (start == nullptr || !start->hasAttribute(kNumInputs)) {
    throw std::invalid_argument(
        "the pass needs a joint graph, which the pass \"differentiate\" returns");
  }
  note(graph->inputs(), start);
  joint.num_inputs = static_cast<size_t>(start->i(kNumInputs));
  joint.num_outputs = static_cast<size_t>(start->i(kNumOutputs));
  joint.vjp_outputs = from_ints<size_t>(start->is(kVjpOutputs));
  joint.gradient_inputs = from_ints<size_t>(start->is(kGradientInputs));
  for (const auto flag : start->is(kOutputRequiresGrad))
    joint.output_requires_grad.push_back(flag != 0);
  return joint;
}

// ---- the passes that need more than a call ----

// Returns which inputs require grad: as was said, or all tensors.
std::vector<bool> requires_grad_of(const Run& run) {
  auto requires_grad = run.input.requires_grad;
  if (requires_grad.empty()) {
    for (const auto* value : run.graph->inputs())
      requires_grad.push_back(value->type()->isSubtypeOf(*c10::TensorType::get()));
  }
  if (requires_grad.size() != run.graph->inputs().size()) {
    throw std::invalid_argument("requires_grad has " + std::to_string(requires_grad.size()) +
                                " flags, but the graph has " +
                                std::to_string(run.graph->inputs().size()) + " inputs");
  }
  return requires_grad;
}

void run_expand_gradients(Run& run) {
  run.graphs = {expand_gradients(run.graph, requires_grad_of(run))};
}

void run_differentiate(Run& run) {
  const auto requires_grad = requires_grad_of(run);
  const auto joint =
      differentiate(run.graph, requires_grad, std::vector<bool>(run.graph->outputs().size(), true));
  write(joint);
  run.graphs = {joint.graph};
}

template <class Body>
void on_joint_graph(Run& run, const Body& body) {
  auto joint = read(run.graph);
  body(joint);
  write(joint);
}

void run_profile_by_name(Run& run) {
  on_joint_graph(run, [&](JointGraph& joint) {
    const auto costs = profile(joint, run.input.inputs, run.input.options.cost_model);
    for (const auto& nodes : {joint.forward_nodes(), joint.backward_nodes()}) {
      for (auto* node : nodes) {
        const auto found = costs.nodes.find(node);
        if (found == costs.nodes.end())
          continue;
        node->f_(c10::Symbol::attr("seconds"), found->second.seconds);
        node->f_(c10::Symbol::attr("flops"), found->second.flops);
      }
    }
  });
}

std::array<int64_t, 4> numbers_of(const Step& step) {
  return {step.node, step.slot, static_cast<int64_t>(step.output_mask),
          static_cast<int64_t>(step.reusable_operands)};
}

Step step_of(const int64_t* numbers) {
  return {static_cast<int32_t>(numbers[0]), static_cast<int32_t>(numbers[1]),
          static_cast<uint64_t>(numbers[2]), static_cast<uint32_t>(numbers[3])};
}

void run_plan(Run& run) {
  on_joint_graph(run, [&](JointGraph& joint) {
    const auto& options = run.input.options;
    std::optional<Profile> costs;
    if (needs_profile(options)) {
      if (run.input.inputs.size() != joint.num_inputs) {
        throw std::invalid_argument(
            "the pass \"plan\" needs the inputs of the region for this "
            "strategy: " +
            std::to_string(joint.num_inputs) + " of them");
      }
      costs = profile(joint, run.input.inputs, options.cost_model);
    }
    const std::vector<bool> no_attributes(joint.num_inputs, false);
    const SeenInCalls nothing_seen;
    const auto planned = plan_region(
        {joint, costs ? &*costs : nullptr, options, no_attributes, nothing_seen, false, {}, 0});
    std::vector<int64_t> steps;
    for (const auto& step : planned.steps) {
      for (const auto number : numbers_of(step))
        steps.push_back(number);
    }
    joint.backward_start->is_(kSteps, std::move(steps));
  });
}

void run_splice(Run& run) {
  on_joint_graph(run, [](JointGraph& joint) {
    if (!joint.backward_start->hasAttribute(kSteps)) {
      throw std::invalid_argument(
          "the pass \"splice\" needs a schedule, which the pass \"plan\" makes");
    }
    const auto numbers = joint.backward_start->is(kSteps);
    std::vector<Step> steps;
    for (size_t i = 0; i + 4 <= numbers.size(); i += 4)
      steps.push_back(step_of(&numbers[i]));
    splice(joint, make_problem(joint, nullptr), steps);
    joint.backward_start->removeAttribute(kSteps);
  });
}

void run_extract(Run& run) {
  const auto joint = read(run.graph);
  auto gradient = extract(joint);
  write(joint);
  run.graphs = {std::move(gradient.f), std::move(gradient.df)};
}

void run_record_path(Run& run) {
  try {
    run.graphs = {record_path(run.graph, run.input.self, run.input.inputs).graph};
  } catch (const NotRecordable& error) {
    throw std::invalid_argument(std::string("the path cannot be recorded: ") + error.what());
  }
}

void run_noop_elimination(Run& run) {
  NoopElimination pass(run.graph);
  run.graphs = {pass.fold(pass.find(run.input.inputs))};
}

// A pass that returns another graph where it changes something.
void run_other(Run& run, const GraphPtr& changed) {
  if (changed != nullptr)
    run.graphs = {changed};
}

void run_insert_casts(Run& run) {
  const auto autocast = AutocastState::current();
  if (autocast.is_on() || depends_on_autocast(run.graph->block()))
    run_other(run, insert_casts(*run.graph, run.input.inputs, autocast).graph);
}

void run_slice_rows(Run& run) {
  const ForwardTensors tensors(run.graph, requires_grad_of(run), run.input.inputs);
  run.graphs = {slice_rows(*run.graph, tensors, {}).graph};
}

// One row for each row of all_passes(), in the same order.
constexpr std::array kNamedPasses{
    NamedPass{Pass::kInlineModules, "puts called methods and functions in place of their calls",
              Needs::kGraph, [](Run& run) { inline_modules(run.graph); }},
    NamedPass{Pass::kProfilerRanges, "removes the ranges that a method names for a profiler",
              Needs::kGraph, [](Run& run) { remove_profiler_ranges(*run.graph); }},
    NamedPass{Pass::kNumberConstants, "gives the numbers of a trace their type back", Needs::kGraph,
              [](Run& run) { number_constants(*run.graph); }},
    NamedPass{Pass::kAutocastBlocks, "replaces autocast contexts by two operators", Needs::kGraph,
              [](Run& run) { autocast_blocks(*run.graph); }},
    NamedPass{Pass::kRestoreConvolutions,
              "gives traced convolutions the operators that were called", Needs::kGraph,
              [](Run& run) { restore_convolutions(*run.graph); }},
    NamedPass{Pass::kAssignLayers, "numbers the layers that nodes belong to", Needs::kGraph,
              [](Run& run) { assign_layers(run.graph, run.input.options.layer_pattern); }},
    NamedPass{Pass::kRecordPath, "returns the straight line of operators that a call takes",
              Needs::kModuleAndInputs, run_record_path},
    NamedPass{Pass::kFoldAttributes, "folds attributes that are no tensors", Needs::kModule,
              [](Run& run) { fold_attributes(run.graph, run.input.self); }},
    NamedPass{Pass::kSpecializeInputs, "assumes ranks, and which inputs are None", Needs::kInputs,
              [](Run& run) { specialize_inputs(run.graph, run.input.inputs); }},
    NamedPass{Pass::kReplaceViewAs, "rewrites view_as(x, y) to view(x, y.size()), and its like",
              Needs::kGraph, [](Run& run) { replace_view_as(*run.graph); }},
    NamedPass{Pass::kRemoveWholeSlices, "removes slices of a whole dimension", Needs::kGraph,
              [](Run& run) { remove_whole_slices(*run.graph); }},
    NamedPass{Pass::kPoolConstants, "leaves one of equal constants", Needs::kGraph,
              [](Run& run) { torch::jit::ConstantPooling(run.graph); }},
    NamedPass{Pass::kFoldConditions, "answers conditions that are constant", Needs::kGraph,
              [](Run& run) { fold_conditions(run.graph); }},
    NamedPass{Pass::kPropagateConstants, "computes what depends on constants alone", Needs::kGraph,
              [](Run& run) { propagate_constants(run.graph); }},
    NamedPass{Pass::kSimplify, "runs LibTorch's peephole pass", Needs::kGraph,
              [](Run& run) { simplify(run.graph); }},
    NamedPass{Pass::kUnrollLoops, "unrolls loops with a constant number of rounds", Needs::kGraph,
              [](Run& run) { torch::jit::UnrollConstantLoops(run.graph); }},
    NamedPass{Pass::kLowerTuples, "takes tuples between operators apart", Needs::kGraph,
              [](Run& run) { torch::jit::LowerSimpleTuples(run.graph->block()); }},
    NamedPass{Pass::kFunctionalizeLists, "makes changes of lists functional", Needs::kGraph,
              [](Run& run) { functionalize_lists(run.graph); }},
    NamedPass{Pass::kFunctionalize, "makes in-place operators on own values functional",
              Needs::kGraph, [](Run& run) { functionalize(run.graph); }},
    NamedPass{Pass::kPropagateShapes, "infers ranks by LibTorch's shape propagation", Needs::kGraph,
              [](Run& run) { propagate_shapes(run.graph); }},
    NamedPass{Pass::kPropagateRanks, "infers ranks where that answers a condition", Needs::kModule,
              [](Run& run) { propagate_ranks(run.graph, run.input.self); }},
    NamedPass{Pass::kHoistAttributes, "reads attributes at the beginning", Needs::kGraph,
              [](Run& run) { hoist_attributes(run.graph); }},
    NamedPass{Pass::kSplitListAttributes, "reads the elements of attributes that are lists",
              Needs::kModule, [](Run& run) { split_list_attributes(run.graph, run.input.self); }},
    NamedPass{Pass::kSinkIntoChecks, "moves what only a check needs into it", Needs::kGraph,
              [](Run& run) { sink_into_checks(run.graph); }},
    NamedPass{Pass::kRemoveIdleDropout, "removes dropout that does nothing", Needs::kGraph,
              [](Run& run) { remove_idle_dropout(*run.graph); }},
    NamedPass{Pass::kEliminateDeadCode, "removes what has no effect", Needs::kGraph,
              [](Run& run) { remove_dead_code(run.graph->block()); }},
    NamedPass{Pass::kMarkClobberedReads, "marks reads of what is written before they are over",
              Needs::kGraph, [](Run& run) { mark_clobbered_reads(*run.graph); }},
    NamedPass{Pass::kFormRegions, "puts stretches that can be differentiated into one node each",
              Needs::kGraph, [](Run& run) { form_regions(run.graph); }},
    NamedPass{Pass::kNoopElimination, "removes operators that return their argument",
              Needs::kInputs, run_noop_elimination},
    NamedPass{Pass::kInsertCasts,
              "makes the casts of autocast operators, with its present settings", Needs::kInputs,
              run_insert_casts},
    NamedPass{Pass::kChannelsLast, "lays images out with their channels last", Needs::kGraph,
              [](Run& run) { run_other(run, with_channels_last(*run.graph)); }},
    NamedPass{Pass::kFuseBatchNorm, "makes one operator of a batch norm and its activation",
              Needs::kGraph, [](Run& run) { run_other(run, with_fused_batch_norms(*run.graph)); }},
    NamedPass{Pass::kSliceRows, "has all operators run slice by slice that can", Needs::kInputs,
              run_slice_rows},
    NamedPass{Pass::kExpandGradients, "computes gradients that the method asks for by operators",
              Needs::kGraph, run_expand_gradients},
    NamedPass{Pass::kDifferentiate, "returns the joint graph of a region", Needs::kGraph,
              run_differentiate},
    NamedPass{Pass::kSumParts, "makes one operator of the gradients of disjoint parts",
              Needs::kJointGraph, [](Run& run) { on_joint_graph(run, sum_parts); }},
    NamedPass{Pass::kHoistMetadata, "reads sizes and types in the forward", Needs::kJointGraph,
              [](Run& run) { on_joint_graph(run, hoist_metadata); }},
    NamedPass{Pass::kNameValues, "names values by operator and number", Needs::kJointGraph,
              [](Run& run) { on_joint_graph(run, name_values); }},
    NamedPass{Pass::kAlternatives, "adds other ways to the same value", Needs::kJointGraph,
              [](Run& run) { on_joint_graph(run, add_alternatives); }},
    NamedPass{Pass::kProfile, "writes to each node what it costs", Needs::kJointGraph,
              run_profile_by_name},
    NamedPass{Pass::kPlan, "decides what to recompute", Needs::kJointGraph, run_plan},
    NamedPass{Pass::kSplice, "copies what is recomputed into the backward", Needs::kJointGraph,
              run_splice},
    NamedPass{Pass::kExtract, "returns forward and backward as graphs of their own",
              Needs::kJointGraph, run_extract},
    NamedPass{Pass::kSplitSums, "returns gradients summand by summand", Needs::kGraph,
              [](Run& run) { split_sums(*run.graph); }},
    NamedPass{Pass::kUndefinedGradients, "lets gradients stay undefined", Needs::kGraph,
              [](Run& run) {
                const auto& given = run.input.requires_grad;
                allow_undefined_gradients(*run.graph, given.empty() ? 1 : given.size());
              }},
};

static_assert(has_a_row_for_each_pass(kNamedPasses),
              "kNamedPasses has a row for each enumerator of Pass, in their order");

const NamedPass& named(Pass pass) {
  return kNamedPasses[static_cast<size_t>(pass)];
}

const PassInfo& find(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& info : all_passes()) {
    if (name == info.name)
      return info;
    names.emplace_back(info.name);
  }
  throw std::invalid_argument("there is no pass \"" + name + "\"; there are " + join(names) +
                              did_you_mean(name, names));
}

void check(const PassInfo& info, const Run& run) {
  const std::string name = info.name;
  const auto& input = run.input;
  const auto needs = named(info.pass).needs;
  const bool needs_module = needs == Needs::kModule || needs == Needs::kModuleAndInputs;
  const bool needs_inputs = needs == Needs::kInputs || needs == Needs::kModuleAndInputs;
  if (needs_module && input.self == nullptr) {
    throw std::invalid_argument("the pass \"" + name +
                                "\" needs the module that the graph is a method of");
  }
  if (!needs_inputs)
    return;
  const bool is_for_region = info.pass == Pass::kNoopElimination ||
                             info.pass == Pass::kInsertCasts || info.pass == Pass::kSliceRows;
  const size_t num_given = is_for_region ? 0 : 1;  // the others are for a method
  if (input.inputs.size() + num_given != run.graph->inputs().size()) {
    throw std::invalid_argument("the pass \"" + name + "\" needs the inputs of a call: " +
                                std::to_string(run.graph->inputs().size() - num_given) +
                                " of them, not " + std::to_string(input.inputs.size()));
  }
}

}  // namespace

const char* summary_of(Pass pass) {
  return named(pass).summary;
}

std::vector<GraphPtr> run_by_name(const std::string& name, const GraphPtr& graph,
                                  const NamedPassInput& input) {
  const auto& info = find(name);
  Run run{graph, input, {graph}};
  check(info, run);
  run_pass(info.pass, graph, [&] { named(info.pass).body(run); });
  return run.graphs;
}

}  // namespace aten_recompute
