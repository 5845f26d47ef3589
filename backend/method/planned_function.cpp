#include "backend/method/planned_function.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/autocast.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::CompilationUnit;
using torch::jit::Graph;
using torch::jit::GraphExecutor;
using torch::jit::GraphFunction;
using torch::jit::Node;
using Object = c10::intrusive_ptr<c10::ivalue::Object>;

const c10::Symbol kPlannedCall = c10::Symbol::fromQualString("aten_recompute::planned_call");
const c10::Symbol kFunction = c10::Symbol::attr("function");
constexpr const char* kHandle = "handle";

// Sets whether autocast is on for the CPU (bit 0) and for CUDA (bit 1). A GraphFunction has an
// executor and an optimized graph for each of the four settings.
class AutocastSetting {
 public:
  explicit AutocastSetting(size_t setting)
      : cpu_(at::autocast::is_autocast_enabled(at::kCPU)),
        cuda_(at::autocast::is_autocast_enabled(at::kCUDA)) {
    at::autocast::set_autocast_enabled(at::kCPU, (setting & 1) != 0);
    at::autocast::set_autocast_enabled(at::kCUDA, (setting & 2) != 0);
  }
  ~AutocastSetting() {
    at::autocast::set_autocast_enabled(at::kCPU, cpu_);
    at::autocast::set_autocast_enabled(at::kCUDA, cuda_);
  }
  AutocastSetting(const AutocastSetting&) = delete;
  AutocastSetting& operator=(const AutocastSetting&) = delete;

  static size_t current() {
    return (at::autocast::is_autocast_enabled(at::kCPU) ? 1 : 0) |
           (at::autocast::is_autocast_enabled(at::kCUDA) ? 2 : 0);
  }

 private:
  bool cpu_;
  bool cuda_;
};

// Every PlannedFunction. The key is the function's own graph, which the PlannedFunction keeps
// alive.
struct Registry {
  std::mutex mutex;
  std::unordered_map<const Graph*, c10::weak_intrusive_ptr<PlannedFunction>> functions;
};

// Never destroyed, because modules that are static objects may outlive it.
Registry& registry() {
  static auto* instance = new Registry();
  return *instance;
}

// Returns the function that the node calls, which may be gone: functions of Python's unit live for
// ever, and so do the types in their graphs, which name functions and classes of other units.
// Returns nullptr where the node calls none, or it is known to be gone.
torch::jit::Function* callee_of(const Node* node) {
  if (node->kind() == c10::prim::CallFunction) {
    const auto type = node->input(0)->type()->cast<c10::FunctionType>();
    return type == nullptr ? nullptr : type->function();
  }
  if (node->kind() != c10::prim::CallMethod)
    return nullptr;
  // A class lists methods that belong to its compilation unit.
  const auto type = node->input(0)->type()->cast<c10::ClassType>();
  const bool is_alive = type != nullptr && type->compilation_unit() != nullptr;
  return is_alive ? type->findMethod(node->s(c10::attr::name)) : nullptr;
}

// Returns the functions of the unit that this one is inlined into: its callers and, where these are
// not planned themselves, their callers.
std::vector<GraphFunction*> callers_of(GraphFunction& function, CompilationUnit& unit) {
  std::unordered_map<const torch::jit::Function*, std::vector<GraphFunction*>> callers;
  for (auto* each : unit.get_functions()) {
    // There is none where TorchScript has removed a method.
    auto* caller = each == nullptr ? nullptr : torch::jit::tryToGraphFunction(*each);
    if (caller == nullptr)
      continue;
    for_each_node(caller->graph()->block(), [&](Node* node) {
      if (const auto* callee = callee_of(node); callee != nullptr)
        callers[callee].push_back(caller);
    });
  }
  std::vector<GraphFunction*> found;
  std::unordered_set<GraphFunction*> seen{&function};
  std::vector<GraphFunction*> open{&function};
  while (!open.empty()) {
    auto* callee = open.back();
    open.pop_back();
    for (auto* caller : callers[callee]) {
      if (!seen.insert(caller).second)
        continue;
      found.push_back(caller);
      if (PlannedFunction::find(*caller) == nullptr)
        open.push_back(caller);
    }
  }
  return found;
}

// Leaves out TorchScript's pass for autocast, which crashes on some graphs.
class WithoutAutocastPass {
 public:
  WithoutAutocastPass() : before_(torch::jit::setAutocastMode(false)) {}
  ~WithoutAutocastPass() { torch::jit::setAutocastMode(before_); }
  WithoutAutocastPass(const WithoutAutocastPass&) = delete;
  WithoutAutocastPass& operator=(const WithoutAutocastPass&) = delete;

 private:
  bool before_;
};

// A node keeps `planned` alive as a constant of a class: graphs with a capsule cannot be printed.
c10::TypePtr as_type(const PlannedFunction::Handle& planned) {
  auto type =
      c10::ClassType::create(c10::QualifiedName("__torch__.aten_recompute.PlannedFunction"), {});
  type->addConstant(kHandle, c10::IValue::make_capsule(planned));
  return type;
}

PlannedFunction::Handle from_type(const c10::TypePtr& type) {
  return c10::static_intrusive_pointer_cast<PlannedFunction>(
      type->expectRef<c10::ClassType>().getConstant(kHandle).toCapsule());
}

void clear(Graph& graph) {
  graph.block()->removeAllOutputs();
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); it = graph.nodes().rbegin())
    it->destroy();
}

// Replaces what the graph computes by a call of `planned`.
void become_a_call(Graph& graph, const PlannedFunction::Handle& planned, bool is_method,
                   const c10::TypePtr& result_type) {
  clear(graph);
  auto inputs = graph.inputs().vec();
  auto* self = is_method ? inputs.front() : graph.insertConstant(c10::IValue());
  if (is_method)
    inputs.erase(inputs.begin());
  auto* list = graph.insertNode(graph.createList(c10::AnyType::get(), inputs))->output();
  auto* call = graph.insertNode(graph.create(kPlannedCall, {self, list}, 1));
  call->ty_(kFunction, as_type(planned));
  call->output()->setType(c10::AnyType::get());
  graph.registerOutput(graph.insertUncheckedCast(call->output(), result_type));
}

// Replaces what the graph computes by what `other` does.
void become(Graph& graph, Graph& other) {
  clear(graph);
  for (auto* output : torch::jit::insertGraph(graph, other, graph.inputs()))
    graph.registerOutput(output);
}

}  // namespace

PlannedFunction::PlannedFunction(const GraphFunction& function, bool is_method)
    : name_(function.name()),
      graph_(function.graph()),
      result_type_(function.getSchema().returns()[0].type()),
      is_method_(is_method) {}

PlannedFunction::Handle PlannedFunction::find(GraphFunction& function) {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.functions.find(function.graph().get());
  return found == all.functions.end() ? Handle() : found->second.lock();
}

void PlannedFunction::install(const Handle& planned, GraphFunction& function) {
  const WithoutAutocastPass without_pass;
  for (size_t setting = 0; setting < kNumSettings; ++setting) {
    const AutocastSetting as_in_call(setting);
    auto& executor = function.get_executor();
    if (setting == 0)
      planned->unplanned_[setting] = executor;
    const auto optimized = function.optimized_graph();
    become_a_call(*optimized, planned, planned->is_method_, planned->result_type_);
    planned->inlined_[setting] = optimized;
    executor = GraphExecutor(optimized, function.name());
  }
}

// Under autocast the call stays, and runs what unplanned() returns.
void PlannedFunction::uninstall(GraphFunction& function) {
  const AutocastSetting off(0);
  function.clear_optimized_graphs();
  function.get_executor() = unplanned();
}

void PlannedFunction::inline_again(GraphFunction& function, CompilationUnit* unit) {
  if (unit == nullptr)
    return;
  const AutocastSetting off(0);
  for (auto* caller : callers_of(function, *unit)) {
    if (const auto planned = find(*caller)) {
      const std::unique_lock<std::shared_mutex> lock(planned->mutex_);
      planned->unplanned_.fill(std::nullopt);
    } else {
      caller->clear_optimized_graphs();
      caller->get_executor() = GraphExecutor(caller->optimized_graph(), caller->name());
    }
  }
}

GraphExecutor PlannedFunction::unplanned() {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  auto& executor = unplanned_[AutocastSetting::current()];
  if (!executor) {
    auto graph = graph_->copy();
    torch::jit::preoptimizeGraph(graph);
    executor = GraphExecutor(graph, name_);
  }
  return *executor;
}

void PlannedFunction::enable(GraphFunction& function, CompilationUnit* unit, const Object& self,
                             c10::intrusive_ptr<LoweredMethod> method) {
  function.ensure_defined();
  auto planned = find(function);
  const bool is_new = planned == nullptr;
  if (is_new)
    planned = c10::make_intrusive<PlannedFunction>(function, self != nullptr);
  {
    const std::unique_lock<std::shared_mutex> lock(planned->mutex_);
    planned->erase_dead_entries();
    if (const auto entry = planned->entry_of(self); entry != planned->entries_.end())
      planned->entries_.erase(entry);
    planned->entries_.push_back(
        {c10::weak_intrusive_ptr<c10::ivalue::Object>(self), self != nullptr, std::move(method)});
  }
  if (!is_new)
    return;
  install(planned, function);
  {
    auto& all = registry();
    const std::lock_guard<std::mutex> lock(all.mutex);
    std::erase_if(all.functions, [](const auto& each) { return each.second.expired(); });
    all.functions.insert_or_assign(function.graph().get(),
                                   c10::weak_intrusive_ptr<PlannedFunction>(planned));
  }
  inline_again(function, unit);
}

bool PlannedFunction::disable(GraphFunction& function, CompilationUnit* unit, const Object& self) {
  const auto planned = find(function);
  if (planned == nullptr)
    return false;
  {
    const std::unique_lock<std::shared_mutex> lock(planned->mutex_);
    planned->erase_dead_entries();
    const auto entry = planned->entry_of(self);
    if (entry == planned->entries_.end())
      return false;
    planned->entries_.erase(entry);
    if (!planned->entries_.empty())
      return true;
  }
  planned->uninstall(function);
  {
    auto& all = registry();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.functions.erase(function.graph().get());
  }
  inline_again(function, unit);
  return true;
}

std::vector<PlannedFunction::Handle> PlannedFunction::all() {
  std::vector<Handle> found;
  const std::lock_guard<std::mutex> lock(registry().mutex);
  for (const auto& [graph, function] : registry().functions) {
    if (auto planned = function.lock())
      found.push_back(std::move(planned));
  }
  return found;
}

void PlannedFunction::forget_dead_objects() noexcept try {
  for (const auto& each : all()) {
    const std::unique_lock<std::shared_mutex> lock(each->mutex_);
    each->erase_dead_entries();
  }
} catch (const std::exception&) {
  // There is no memory for it. They are forgotten when another object dies.
}

void PlannedFunction::inline_plans(bool planned) {
  for (const auto& each : all()) {
    for (size_t setting = 0; setting < kNumSettings; ++setting) {
      const auto graph = each->inlined_[setting].lock();
      if (graph == nullptr)
        continue;
      if (planned) {
        become_a_call(*graph, each, each->is_method_, each->result_type_);
      } else {
        const AutocastSetting as_in_call(setting);
        auto plain = each->graph_->copy();
        torch::jit::preoptimizeGraph(plain, /*disable_autocast=*/true);
        become(*graph, *plain);
      }
    }
  }
}

std::vector<PlannedFunction::Entry>::const_iterator PlannedFunction::entry_of(
    const Object& self) const {
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.object._unsafe_get_target() == self.get();
  });
}

void PlannedFunction::erase_dead_entries() {
  std::erase_if(entries_,
                [](const Entry& entry) { return entry.has_object && entry.object.expired(); });
}

c10::intrusive_ptr<LoweredMethod> PlannedFunction::method_of(const Object& self) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto entry = entry_of(self);
  if (entry == entries_.end() || (entry->has_object && entry->object.expired()))
    return nullptr;
  return entry->method;
}

void PlannedFunction::run(torch::jit::Stack& stack) {
  auto inputs = torch::jit::pop(stack).toListRef().vec();
  auto self = torch::jit::pop(stack);
  const auto object = self.isNone() ? Object() : self.toObject();
  if (const auto method = method_of(object)) {
    stack.push_back(object == nullptr ? method->run(std::move(inputs))
                                      : method->run(object, std::move(inputs)));
    return;
  }
  torch::jit::Stack arguments;
  arguments.reserve(inputs.size() + 1);
  if (object != nullptr)
    arguments.push_back(std::move(self));
  for (auto& input : inputs)
    arguments.push_back(std::move(input));
  unplanned().run(arguments);
  stack.push_back(std::move(arguments.front()));
}

void register_planned_call_operator() {
  using torch::jit::Operation;
  static const torch::jit::RegisterOperators registered({torch::jit::Operator(
      "aten_recompute::planned_call(Any self, Any[] inputs) -> Any",
      [](const Node* node) -> Operation {
        return [function = from_type(node->ty(kFunction))](torch::jit::Stack& stack) {
          function->run(stack);
        };
      },
      c10::AliasAnalysisKind::CONSERVATIVE)});
}

}  // namespace aten_recompute
