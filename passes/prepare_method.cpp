#include "passes/prepare_method.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/log.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/frontend/path/record_path.h"
#include "passes/frontend/path/written_attributes.h"
#include "passes/frontend/rewrites/assign_layers.h"
#include "passes/frontend/rewrites/autocast_blocks.h"
#include "passes/frontend/rewrites/functionalize_lists.h"
#include "passes/frontend/rewrites/inline_modules.h"
#include "passes/frontend/rewrites/not_recordable.h"
#include "passes/frontend/rewrites/number_constants.h"
#include "passes/frontend/rewrites/profiler_ranges.h"
#include "passes/frontend/rewrites/restore_convolutions.h"
#include "passes/manager/pass_manager.h"
#include "passes/pipeline.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;

// Returns the path that this call takes, with the attributes in `carried` as values of it; nullopt
// where it cannot be recorded, and logs why; `raises` becomes whether that is because the call
// raises an error.
std::optional<RecordedPath> try_to_record(const std::shared_ptr<Graph>& inlined,
                                          const MethodInput& input, const AttributePaths& carried,
                                          bool& raises) {
  std::optional<RecordedPath> path;
  const auto record = [&](std::optional<int64_t> memory_bytes) {
    path = record_path(inlined, input.self, input.inputs,
                       {.kept = input.kept_branches,
                        .carried = carried,
                        .changing = input.changing_numbers,
                        .memory_bytes = memory_bytes,
                        .output_requires_grad = output_requires_grad});
  };
  run_pass(Pass::kRecordPath, [&] {
    try {
      if (input.memory_bytes)
        record(input.memory_bytes);
    } catch (const NotRecordable& error) {
      log_info(LogTopic::kPaths,
               std::string("a path is not recorded without memory: ") + error.what());
    }
    try {
      if (!path)
        record(std::nullopt);
    } catch (const NotRecordable& error) {
      raises = dynamic_cast<const CallRaises*>(&error) != nullptr;
      log_info(LogTopic::kPaths,
               (carried.empty() ? "a method keeps its control flow: "
                                : "a method keeps its writes to attributes where they are: ") +
                   std::string(error.what()));
    }
  });
  if (path && log_enabled(LogTopic::kPaths, LogLevel::kInfo)) {
    const auto nodes = path->graph->nodes();
    log_info(LogTopic::kPaths, "the path of a call was recorded: " +
                                   std::to_string(std::distance(nodes.begin(), nodes.end())) +
                                   " operators");
  }
  return path;
}

bool contains(const Graph& graph, c10::Symbol kind) {
  const auto nodes = graph.nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const torch::jit::Node* node) { return node->kind() == kind; });
}

// Compiles the method for the path that this call takes, with the attributes in `carried` as values
// of it. Returns nullopt if that is not possible.
std::optional<PreparedMethod> prepare_path_with(const std::shared_ptr<Graph>& inlined,
                                                const MethodInput& input,
                                                const AttributePaths& carried, bool& raises) {
  auto path = try_to_record(inlined, input, carried, raises);
  if (!path)
    return std::nullopt;
  PreparedMethod method;
  method.depends_on_autocast = path->depends_on_autocast || depends_on_autocast(inlined->block());
  method.graph = path->graph;
  auto guard = std::make_shared<PathGuard>(*path);
  method.assumptions = fold_call(method.graph, input.self, input.inputs, input.changing_numbers);
  prepare_recorded(method.graph, input.self, method.assumptions);
  method.assumptions.path = std::move(guard);
  auto& attributes = method.assumptions.attributes;
  attributes.insert(attributes.end(), path->attributes.begin(), path->attributes.end());
  method.checks = number_checks(*method.graph);
  method.has_late_changes = path->has_changes;
  const bool must_restore = method.may_leave_path() || method.has_late_changes;
  const bool asks_for_gradients = contains(*method.graph, symbols::kGradient);
  if (must_restore || asks_for_gradients || input.may_repeat) {
    auto written = written_attributes(*method.graph);
    if (!written && must_restore)
      return std::nullopt;
    method.may_lack_gradients = asks_for_gradients && written;
    method.can_repeat = input.may_repeat && written;
    if (written)
      method.written = std::move(*written);
  }
  run_pass(Pass::kFormRegions, method.graph,
           [&] { method.regions = form_regions_of_path(method.graph); });
  // What is not changed until nothing can raise need not be restored. A copy of it would be memory
  // that no plan knows of.
  const auto last = attributes_written_last(*method.graph);
  std::erase_if(method.written, [&](const auto& path) { return last.count(path) != 0; });
  return method;
}

// Compiles the method for the path that this call takes. Where writes to attributes divide it into
// regions, these attributes are values of the path, if that is possible. Returns nullopt if the
// path cannot be recorded.
std::optional<PreparedMethod> prepare_path(const std::shared_ptr<Graph>& inlined,
                                           const MethodInput& input, bool& raises) {
  auto method = prepare_path_with(inlined, input, {}, raises);
  if (!method || method->regions.nodes.size() <= 1)
    return method;
  const auto written = attributes_written_in_place(*method->graph);
  if (written.empty())
    return method;
  bool raises_as_well = false;
  auto carrying = prepare_path_with(inlined, input, written, raises_as_well);
  const bool is_better = carrying && carrying->regions.nodes.size() < method->regions.nodes.size();
  return is_better ? std::move(carrying) : std::move(method);
}

// Returns whether a node of the graph's own block changes what the caller can see, and is no
// tensor's memory.
bool changes_objects(Graph& graph) {
  const auto nodes = graph.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [](const torch::jit::Node* node) {
    return node->kind() == c10::prim::SetAttr ||
           (mutates_an_argument(node) && !is_tensor_type(*node->input(0)->type()));
  });
}

// Notes what a method that is no recorded path writes to, if that is known.
void note_writes(PreparedMethod& method) {
  if (!is_straight_line(*method.graph) || changes_objects(*method.graph))
    return;
  auto written = written_attributes(*method.graph);
  method.can_repeat = written.has_value();
  if (written)
    method.written = std::move(*written);
}

// Returns whether there is another path where gradients are enabled: that of this call, without
// them, could not be recorded, because the method asks for gradients.
bool may_have_path_with_gradients(Graph& graph) {
  static const auto set_grad_enabled = c10::Symbol::fromQualString("aten::set_grad_enabled");
  bool asks = false;
  for_each_node(graph.block(), [&](const torch::jit::Node* node) {
    asks = asks || asks_autograd(node) || runs_autograd(node) || node->kind() == set_grad_enabled;
  });
  return asks && !at::GradMode::is_enabled();
}

}  // namespace

PreparedMethod prepare_method(const MethodInput& input) {
  auto inlined = inline_method(*input.graph);
  run_pass(Pass::kAssignLayers, inlined, [&] { assign_layers(inlined, input.layer_pattern); });
  PreparedMethod method;
  method.depends_on_autocast = depends_on_autocast(inlined->block());
  method.graph = inlined->copy();
  method.assumptions = fold_call(method.graph, input.self, input.inputs, input.changing_numbers);
  auto may_record_path = input.may_record_path;
  // The passes that could make such a method straight take longer than to record it. A path sets
  // attributes when everything else has run, so that a call which raises can be made again.
  if (may_record_path &&
      (!is_straight_line(*method.graph) || (input.may_repeat && changes_objects(*method.graph)))) {
    if (auto recorded = prepare_path(inlined, input, method.seems_to_raise))
      return std::move(*recorded);
    may_record_path = false;
    method.assumptions.gradients_are_disabled = may_have_path_with_gradients(*inlined);
  }
  prepare(method.graph, input.self, method.assumptions);
  if (input.may_repeat)
    note_writes(method);
  const bool reads_lists = reads_own_lists(*method.graph);
  run_pass(Pass::kFormRegions, method.graph, [&] { method.regions = form_regions(method.graph); });
  const bool is_whole =
      method.regions.nodes.size() <= 1 && method.regions.breaks.empty() && !reads_lists &&
      std::none_of(method.regions.nodes.begin(), method.regions.nodes.end(), is_in_a_loop);
  if (is_whole || !may_record_path)
    return method;
  if (auto recorded = prepare_path(inlined, input, method.seems_to_raise))
    return std::move(*recorded);
  method.assumptions.gradients_are_disabled = may_have_path_with_gradients(*inlined);
  return method;
}

std::shared_ptr<Graph> inline_method(Graph& given) {
  auto graph = given.copy();
  run_pass(Pass::kInlineModules, graph, [&] { inline_modules(graph); });
  run_pass(Pass::kProfilerRanges, graph, [&] { remove_profiler_ranges(*graph); });
  run_pass(Pass::kNumberConstants, graph, [&] { number_constants(*graph); });
  run_pass(Pass::kAutocastBlocks, graph, [&] { autocast_blocks(*graph); });
  run_pass(Pass::kRestoreConvolutions, graph, [&] { restore_convolutions(*graph); });
  return graph;
}

void check_layer_pattern(Graph& method, const std::string& pattern) {
  assign_layers(inline_method(method), pattern);
}

}  // namespace aten_recompute
