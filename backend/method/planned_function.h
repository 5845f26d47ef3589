// Methods and functions that run planned where they are, without being lowered into another module.
//
// TorchScript runs a function by an executor of its optimized graph, and inlines that graph into
// the functions that call it. Saving, printing, cloning and freezing read the function's own graph.
// So the own graph stays, and the optimized one becomes a single call:
//
//   graph(self, x):
//     inputs = [x]
//     result = aten_recompute::planned_call(self, inputs)   // has the PlannedFunction in it
//     return unchecked_cast(T, result)
//
// Objects of one class share its methods. The call looks up the object that it is for, and runs the
// function's earlier executor where that object is not enabled.
//
// TorchScript's own passes cannot do this (docs/decisions/0047-planned-functions.md).
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/custom_class.h>

#include <array>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "backend/method/lowered_method.h"

namespace torch::jit {
struct CompilationUnit;
struct GraphFunction;
}  // namespace torch::jit

namespace aten_recompute {

// One method of a class, or one function, with the plans of the objects that are enabled.
class PlannedFunction : public torch::CustomClassHolder {
 public:
  using Handle = c10::intrusive_ptr<PlannedFunction>;

  // For enable(), which gives the function what it runs.
  PlannedFunction(const torch::jit::GraphFunction& function, bool is_method);

  // Returns what runs in place of the function; nullptr where nothing does. Thread-safe.
  static Handle find(torch::jit::GraphFunction& function);

  // Makes the calls of `self` by the function run `method`; calls of a function without a module
  // have no `self`. `unit` has the functions that may have inlined this one already; nullptr where
  // it is not known: those that have run then go on with what they have inlined. Calls on other
  // threads must wait until this is over.
  static void enable(torch::jit::GraphFunction& function, torch::jit::CompilationUnit* unit,
                     const c10::intrusive_ptr<c10::ivalue::Object>& self,
                     c10::intrusive_ptr<LoweredMethod> method);

  // Undoes enable(): with the last object, the function gets its earlier executor back. Returns
  // whether the object was enabled.
  static bool disable(torch::jit::GraphFunction& function, torch::jit::CompilationUnit* unit,
                      const c10::intrusive_ptr<c10::ivalue::Object>& self);

  // Has functions that inline planned ones from now on get calls, as usual, or what these compute:
  // for freezing, whose result is to run where this library is not.
  static void inline_plans(bool planned);

  // Forgets the plans of objects that exist no more.
  static void forget_dead_objects() noexcept;

  // Returns what runs for the object; nullptr if that is not enabled.
  c10::intrusive_ptr<LoweredMethod> method_of(
      const c10::intrusive_ptr<c10::ivalue::Object>& self) const;

  // Takes what planned_call has on the stack, and leaves the result there.
  void run(torch::jit::Stack& stack);

 private:
  // A GraphFunction has an executor and an optimized graph for each of so many settings of
  // autocast.
  static constexpr size_t kNumSettings = 4;

  struct Entry {
    c10::weak_intrusive_ptr<c10::ivalue::Object> object;  // none for a function without a module
    bool has_object;
    c10::intrusive_ptr<LoweredMethod> method;
  };

  static std::vector<Handle> all();
  static void install(const Handle& planned, torch::jit::GraphFunction& function);
  void uninstall(torch::jit::GraphFunction& function);
  torch::jit::GraphExecutor unplanned();
  // Has each function that may have inlined this one inline it again, as it is now. Executors for
  // autocast stay, which run without plans anyway.
  static void inline_again(torch::jit::GraphFunction& function, torch::jit::CompilationUnit* unit);
  // Need mutex_.
  std::vector<Entry>::const_iterator entry_of(
      const c10::intrusive_ptr<c10::ivalue::Object>& self) const;
  void erase_dead_entries();

  std::string name_;
  std::shared_ptr<torch::jit::Graph> graph_;  // the function's own
  c10::TypePtr result_type_;
  bool is_method_;
  // The function's optimized graphs, which own this object.
  std::array<std::weak_ptr<torch::jit::Graph>, kNumSettings> inlined_;
  mutable std::shared_mutex mutex_;  // guards what follows
  // What TorchScript would run under this setting; made when it is first needed.
  std::array<std::optional<torch::jit::GraphExecutor>, kNumSettings> unplanned_;
  std::vector<Entry> entries_;
};

// Registers the operator aten_recompute::planned_call.
void register_planned_call_operator();

}  // namespace aten_recompute
