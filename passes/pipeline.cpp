#include "passes/pipeline.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/jit_log.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "backend/log.h"
#include "passes/assign_layers.h"
#include "passes/differentiate.h"
#include "passes/inline_modules.h"
#include "passes/name_values.h"
#include "passes/plan/strategies.h"
#include "passes/profile.h"
#include "passes/schedule.h"
#include "passes/splice.h"
#include "passes/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;

// Graph::lint() after every pass: in debug builds, and where ATEN_RECOMPUTE_LINT=1 asks for it.
bool lint_enabled() {
#ifdef ATEN_RECOMPUTE_LINT
  return true;
#else
  static const bool enabled = [] {
    const char* value = std::getenv("ATEN_RECOMPUTE_LINT");
    return value != nullptr && std::string(value) == "1";
  }();
  return enabled;
#endif
}

// Every pass runs through here: timed, dumped, checked.
void run_pass(const char* name, const std::function<std::shared_ptr<Graph>()>& pass) {
  const auto start = std::chrono::steady_clock::now();
  const auto graph = pass();
  if (log_enabled(LogLevel::kDebug)) {
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    log_debug(std::string(name) + ": " + std::to_string(elapsed.count()) + " ms");
  }
  if (graph == nullptr)
    return;
  GRAPH_DUMP(std::string("after ") + name, graph);
  if (lint_enabled())
    graph->lint();
}

}  // namespace

PreparedMethod prepare_method(const MethodInput& input) {
  PreparedMethod method;
  method.graph = input.graph->copy();
  run_pass("inline_modules", [&] {
    inline_modules(method.graph);
    return method.graph;
  });
  run_pass("assign_layers", [&] {
    assign_layers(method.graph, input.layer_pattern);
    return method.graph;
  });
  run_pass("prepare", [&] {
    method.assumptions = prepare(method.graph, input.self, input.inputs);
    return method.graph;
  });
  run_pass("form_regions", [&] {
    method.regions = form_regions(method.graph);
    return method.graph;
  });
  return method;
}

RegionGraphs compile_region(const RegionInput& input) {
  RegionGraphs graphs;
  JointGraph joint;
  ValueBytes bytes;
  SavePlan plan;
  run_pass("differentiate", [&] {
    const std::vector<bool> all(input.graph->outputs().size(), true);
    joint = differentiate(input.graph, input.requires_grad, all, &graphs.on_tape);
    return joint.graph;
  });
  run_pass("name_values", [&] {
    name_values(joint);
    return joint.graph;
  });
  if (needs_value_bytes(input.options)) {
    run_pass("profile", [&]() -> std::shared_ptr<Graph> {
      bytes = profile_bytes(joint, input.inputs, input.requires_grad);
      return nullptr;
    });
  }
  run_pass("plan", [&]() -> std::shared_ptr<Graph> {
    plan = make_plan({joint, input.options, input.is_attribute, bytes});
    return nullptr;
  });
  run_pass("splice", [&] {
    splice(joint, plan);
    return joint.graph;
  });
  run_pass("schedule", [&] {
    schedule(joint);
    return joint.graph;
  });
  run_pass("extract", [&] {
    graphs.gradient = extract(joint);
    return graphs.gradient.df;
  });
  for (auto* value : captured_values(joint))
    graphs.saved.push_back(value->debugName());
  for (auto* node : graphs.gradient.df->nodes()) {
    if (!node->hasAttribute(symbols::kRecomputed))
      continue;
    for (auto* output : node->outputs())
      graphs.recomputed.push_back(output->debugName());
  }
  return graphs;
}

}  // namespace aten_recompute
