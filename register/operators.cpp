// Registers the operators and classes that TorchScript and Python see.
#include <aten_recompute/aten_recompute.h>
#include <aten_recompute/timeline.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <torch/csrc/jit/runtime/operator.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "backend/memory/peak_watch.h"
#include "backend/method/lowered_method.h"
#include "backend/method/planned_function.h"
#include "backend/method/share_tensors.h"
#include "backend/pictures/memory_snapshot.h"
#include "backend/pictures/perfetto_trace.h"
#include "backend/pictures/step_chart.h"
#include "common/options.h"
#include "common/parse_options.h"
// Operators are registered under its names while the library is loaded. Because it is included
// here, the names are made before: the order in which sources are linked says nothing about that.
#include "ir/symbols.h"
#include "planner/model/problem_json.h"
#include "planner/search/search.h"
#include "register/function_handle.h"
#include "register/invalid_arguments.h"
#include "rules/kernels/operators.h"
#include "runtime/arena/arena_allocator.h"
#include "runtime/autocast.h"
#include "runtime/branch.h"
#include "runtime/inner_gradient.h"
#include "runtime/path_check.h"
#include "runtime/random_state.h"
#include "runtime/returned_leaf.h"
#include "runtime/sliced.h"
#include "runtime/tape.h"
#include "runtime/write_back.h"

namespace aten_recompute {
namespace {

using torch::jit::pop;
using torch::jit::Stack;

// Runs a method of a lowered module. `needs` is not used here (backend/method/lower.cpp says what
// it is for), `lowered` is what to_backend made, and `self` is the module that the caller sees.
void call(Stack& stack) {
  auto values = pop(stack).toListRef().vec();
  const auto self = pop(stack).toObject();
  const auto name = pop(stack);
  const auto handles = pop(stack).toObjectRef().getAttr("__handles").toGenericDict();
  torch::jit::drop(stack, 1);
  stack.push_back(handles.at(name).toCustomClass<LoweredMethod>()->run(self, std::move(values)));
}

// Runs a method, in modules that an earlier version saved.
void execute(Stack& stack) {
  auto values = pop(stack).toListRef().vec();
  const auto self = pop(stack).toObject();
  const auto method = pop(stack).toCustomClass<LoweredMethod>();
  stack.push_back(method->run(self, std::move(values)));
}

c10::IValue lower_any(const c10::IValue& module, const std::string& options,
                      const std::vector<std::string>& methods, const std::string& layer_pattern) {
  return lower(torch::jit::Module(module.toObject()), options, methods, layer_pattern)._ivalue();
}

c10::IValue unlower_any(const c10::IValue& module) {
  return unlower(torch::jit::Module(module.toObject()))._ivalue();
}

bool holds_lowered_any(const c10::IValue& module) {
  return holds_lowered(torch::jit::Module(module.toObject()));
}

// Calls `ask` with the module, or with the function that it stands for.
template <class Ask>
auto ask_any(const c10::IValue& value, const Ask& ask) {
  const torch::jit::Module module(value.toObject());
  auto* function = function_in(module);
  return function == nullptr ? ask(module) : ask(*function);
}

void enable_any(const c10::IValue& target, const std::string& options,
                const std::vector<std::string>& methods, const std::string& layer_pattern) {
  const torch::jit::Module module(target.toObject());
  if (auto* function = function_in(module))
    enable(*function, options, module._ivalue()->compilation_unit().get());
  else
    enable(module, options, methods, layer_pattern);
}

bool is_enabled_any(const c10::IValue& target) {
  const torch::jit::Module module(target.toObject());
  auto* function = function_in(module);
  return function == nullptr ? is_enabled(module) : is_enabled(*function);
}

void check_spec(const std::string& options) {
  parse_options(options);
}

bool disable_any(const c10::IValue& target) {
  const torch::jit::Module module(target.toObject());
  auto* function = function_in(module);
  return function == nullptr ? disable(module)
                             : disable(*function, module._ivalue()->compilation_unit().get());
}

std::string report_any(const c10::IValue& target) {
  return ask_any(target, [](auto& each) { return report(each); });
}

std::string plan_any(const c10::IValue& target) {
  return ask_any(target, [](auto& each) { return plan(each); });
}

std::vector<std::string> problems_any(const c10::IValue& target) {
  return ask_any(target, [](auto& each) { return problems(each); });
}

std::string timeline_any(const c10::IValue& target, bool tradeoff) {
  return ask_any(target, [&](auto& each) { return timeline(each, tradeoff); });
}

// Python keeps the timelines of a report, so that it does not ask the module again.
std::string trace_of(const std::string& timeline, const std::string& viewer) {
  const auto charts = method_charts(nlohmann::json::parse(timeline));
  return (viewer == "perfetto" ? perfetto_trace(charts) : memory_snapshot(charts)).dump();
}

// Has the plans of modules forgotten that are gone (python/aten_recompute/_enable.py).
struct LastAttribute : torch::CustomClassHolder {
  ~LastAttribute() override { PlannedFunction::forget_dead_objects(); }
};

void draw_any(const c10::IValue& target, const std::string& path, const std::string& what,
              const std::string& layer, const std::string& method) {
  const torch::jit::Module module(target.toObject());
  if (auto* function = function_in(module))
    draw(*function, path, what, layer);
  else
    draw(module, path, what, layer, method);
}

// Runs the budget search on a problem that does not come from a module, for comparisons with
// solvers. Throws std::runtime_error if no plan has a peak within limit_bytes.
std::string plan_problem(const std::string& text, int64_t limit_bytes) {
  const auto problem = problem_from_json(text);
  const auto begin = std::chrono::steady_clock::now();
  Simulator simulator(problem);
  const auto unplanned_peak_bytes = simulator.run(keep_what_is_read(problem)).peak_bytes;
  PlanSearch search(problem, keep_what_is_read(problem));
  const auto plan = search.fastest(limit_bytes);
  const std::chrono::duration<double> search_seconds = std::chrono::steady_clock::now() - begin;
  if (!plan) {
    BudgetUnreachableError error("plan_problem: no plan has a peak of " +
                                 std::to_string(limit_bytes) +
                                 " bytes; the smallest that can be reached is " +
                                 std::to_string(search.smallest_peak_bytes()));
    error.smallest_peak_bytes = search.smallest_peak_bytes();
    error.limit_bytes = limit_bytes;
    error.unplanned_peak_bytes = unplanned_peak_bytes;
    error.raise();
  }
  simulator.run(plan->retention);
  auto steps = nlohmann::json::array();
  for (const auto& step : simulator.steps())
    steps.push_back({step.node, step.slot});
  const nlohmann::json json = {
      {"peak_bytes", plan->simulation.peak_bytes},
      {"recompute_seconds", plan->simulation.recompute_seconds},
      {"seconds", problem.base_seconds() + plan->simulation.recompute_seconds},
      {"search_seconds", search_seconds.count()},
      {"unplanned_peak_bytes", unplanned_peak_bytes},
      {"smallest_peak_bytes", search.smallest_peak_bytes()},
      {"steps", steps},
  };
  return json.dump();
}

// Gives a module that to_backend made the tensors of the module from which it was made.
void share_tensors_any(const c10::IValue& module, const c10::IValue& lowered) {
  share_tensors(torch::jit::Module(module.toObject()),
                processed_module(torch::jit::Module(lowered.toObject())));
}

at::Tensor mark_layer(const at::Tensor& x, int64_t /*layer*/) {
  return x.view_as(x);
}

// must_save and similar operators are identities; only a plan uses them (passes/strategy/tags.h).
at::Tensor tag(const at::Tensor& x) {
  return x.view_as(x);
}

const bool kRegistered = [] {
  register_region_operator();
  register_planned_call_operator();
  register_autocast_operators();
  register_branch_operator();
  register_sliced_operator();
  register_path_operators();
  register_returned_leaf_operators();
  register_write_back_operator();
  register_tape_operators();
  register_inner_gradient_operators();
  register_random_operators();
  register_rule_operators();
  static const torch::jit::RegisterOperators operators(
      {torch::jit::Operator("aten_recompute::call(Any needs, Any lowered, str method, Any self, "
                            "Any[] inputs) -> Any",
                            call, c10::AliasAnalysisKind::CONSERVATIVE),
       torch::jit::Operator("aten_recompute::execute(Any handle, Any self, Any[] inputs) -> Any",
                            execute, c10::AliasAnalysisKind::CONSERVATIVE)});
  return true;
}();

// Loaded with the library, so before anything that wraps the allocator to count.
const bool kArenaAllocatorIsInstalled [[maybe_unused]] = [] {
  install_arena_allocator();
  return true;
}();

TORCH_LIBRARY(aten_recompute, m) {
  m.class_<LoweredMethod>("LoweredMethod");
  m.class_<Tape>("Tape");
  m.class_<LastAttribute>("LastAttribute").def(torch::init<>());
  m.def("version() -> str", [] { return std::string(version()); });
  m.def("lower(Any module, str options, str[] methods, str layer_pattern='') -> Any",
        checked<&lower_any>());
  m.def("unlower(Any module) -> Any", checked<&unlower_any>());
  m.def("holds_lowered(Any module) -> bool", checked<&holds_lowered_any>());
  m.def("share_tensors(Any module, Any lowered) -> ()", checked<&share_tensors_any>());
  m.def("enable(Any target, str options, str[] methods, str layer_pattern='') -> ()",
        checked<&enable_any>());
  m.def("is_enabled(Any target) -> bool", checked<&is_enabled_any>());
  m.def("check_options(str options) -> ()", checked<&check_spec>());
  m.def("disable(Any target) -> bool", checked<&disable_any>());
  m.def("inline_plans(bool planned) -> ()", &PlannedFunction::inline_plans);
  m.def("report(Any module) -> str", checked<&report_any>());
  m.def("plan(Any module) -> str", checked<&plan_any>());
  m.def("problems(Any module) -> str[]", checked<&problems_any>());
  m.def("timeline(Any module, bool tradeoff) -> str", checked<&timeline_any>());
  m.def("trace_of(str timeline, str viewer) -> str", checked<&trace_of>());
  m.def("draw(Any module, str path, str what, str layer, str method) -> ()", checked<&draw_any>());
  m.def("start_peak_watch(int limit_bytes) -> bool", checked<&start_peak_watch>());
  m.def("stop_peak_watch() -> str", checked<&stop_peak_watch>());
  m.def("plan_problem(str problem, int limit_bytes) -> str", checked<&plan_problem>());
  m.def("release_memory() -> ()", checked<&release_memory>());
  m.def("mark_layer(Tensor(a) x, int layer) -> Tensor(a)", &mark_layer);
  m.def("must_save(Tensor(a) x) -> Tensor(a)", &tag);
  m.def("must_recompute(Tensor(a) x) -> Tensor(a)", &tag);
  m.def("prefer_save(Tensor(a) x) -> Tensor(a)", &tag);
  m.def("prefer_recompute(Tensor(a) x) -> Tensor(a)", &tag);
}

}  // namespace
}  // namespace aten_recompute
