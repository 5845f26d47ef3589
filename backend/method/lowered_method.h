// One method of a lowered module, with its specializations.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/custom_class.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/method/leaner_budget.h"
#include "backend/method/specialization.h"
#include "common/options.h"
#include "passes/prepared_method.h"

namespace torch::jit {
struct Code;
}

namespace aten_recompute {

class Artifacts;

// Name of a module's attribute that gives Options::layer_pattern where the spec has none.
inline constexpr const char* kLayerPatternAttribute = "aten_recompute_layer_pattern";

// Throws std::invalid_argument, in one line, where the first call of the method would because its
// layer pattern matches no module that runs in it, or its plan is none.
void check_options(const torch::jit::Module& module, const std::string& method,
                   const Options& options);

// Compiles a specialization of the method at the first call that no earlier one fits.
class LoweredMethod : public torch::CustomClassHolder {
 public:
  // `module` has the code, and the attributes that the second run() reads. `spec` is JSON.
  // `layer_pattern` stands for Options::layer_pattern where the spec has none.
  // Throws std::invalid_argument for an invalid spec or a method that does not exist.
  LoweredMethod(torch::jit::Module module, std::string method, const std::string& spec,
                const std::string& layer_pattern = "");
  ~LoweredMethod() override;

  // Runs the method on `self`, which has the attributes of the module, or on the module itself.
  // Returns what the method returns. Throws UserError where a budget or an option cannot be met,
  // and otherwise what the method's operators throw. Thread-safe.
  c10::IValue run(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                  std::vector<c10::IValue> inputs);
  c10::IValue run(std::vector<c10::IValue> inputs) {
    return run(module_._ivalue(), std::move(inputs));
  }

  const std::string& name() const { return method_; }
  const Options& options() const { return options_; }

  // Returns one JSON object with the options, specializations and regions (docs/report.md).
  std::string report() const;
  // Returns the planning problem of each compiled region that was profiled, as to_json() writes it.
  std::vector<std::string> problems() const;
  // Returns the plans of these regions, as plan_to_json() writes them.
  std::vector<std::string> plans() const;
  // Returns the places of the branches that are kept as one operator, for a plan file.
  std::set<int64_t> kept_branches() const;
  // Returns what the last call that was compiled with gradients runs; no runs if there was none.
  // Of plans for several sizes, that is the newest.
  CompiledCall latest_call() const;
  // Returns the name of the class of the module.
  std::string class_name() const;

 private:
  // Writes the files of what was compiled since the last time (Options::save_ir).
  void write_artifacts();

  using SpecializationPtr = std::shared_ptr<Specialization>;
  // A path that a call followed up to one of its checks, which failed.
  struct LeftPath {
    SpecializationPtr path;
    size_t place;  // of the check, in PreparedMethod::checks
  };

  // Returns what Specialization::left_places notes.
  static std::vector<std::pair<size_t, size_t>> places_of(const std::vector<LeftPath>& left);
  // Returns whether a call that left `left` may take the path with these checks: it is the same up
  // to the check that failed, and expects the other answer there.
  static bool may_follow(const std::vector<PathCheck>& checks, const LeftPath& left);
  // Returns why a call under autocast cannot be planned; nullptr where it can, or autocast is off.
  static const char* why_unplanned_under_autocast(const Specialization& specialization);
  // Runs the method under a plan, on the path that the call takes. Throws as run() does.
  c10::IValue run_planned(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                          std::vector<c10::IValue> inputs);
  // The same, and once more under a leaner plan where memory runs out.
  c10::IValue run_or_retry(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                           std::vector<c10::IValue> inputs);
  // Lets plans be made again under a smaller budget, because `what` ran out of memory. Returns
  // false where no plan is leaner.
  bool go_leaner(const char* what);
  // Returns whether a region that calls run now has run out of memory.
  bool ran_out_of_memory() const;
  // Returns the specialization for these inputs; compiles it if there is none. `left` are those
  // whose path this call has turned out not to take.
  SpecializationPtr find(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                         const std::vector<c10::IValue>& inputs, const std::vector<LeftPath>& left);
  // Returns a new specialization. Throws UserError if Options::fullgraph forbids several regions.
  SpecializationPtr compile(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                            const std::vector<c10::IValue>& inputs) const;
  // Logs what differs from the specialization that ran last. `left`: find().
  void say_why_compiled(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                        const std::vector<c10::IValue>& inputs,
                        const std::vector<LeftPath>& left) const;
  // Compiles no paths any more, and drops those that calls may leave.
  void stop_recording_paths();
  // From now on records the `if` that was decided where the path was left as one operator, and
  // drops the paths in which it is decided. Returns false if that was tried before, or it is none.
  bool keep_branch_of(const LeftPath& left);
  // From now on reads the numbers in each call that have had several values, and drops what was
  // compiled for these. Needs `mutex_`.
  void read_changing_numbers(const c10::intrusive_ptr<c10::ivalue::Object>& self);
  // Drops the specializations that meet the condition. Calls that follow one go on. Needs `mutex_`.
  void forget_if(const std::function<bool(const Specialization&)>& condition);
  // Runs the specialization's code. Sets `has_run` once that is done and only planning is left,
  // which may raise an error as well.
  c10::IValue run(Specialization& specialization,
                  const c10::intrusive_ptr<c10::ivalue::Object>& self,
                  std::vector<c10::IValue> inputs, bool& has_run);
  // Warns once of words in the options that match nothing in any region compiled so far.
  void warn_of_unmatched_words(const Specialization& specialization);
  // Calls `function` for each compiled region that has a profile.
  void for_each_profiled(const std::function<void(const RegionPlan&)>& function) const;
  // Runs the method as plain TorchScript, and counts the call under `reason` for the report.
  c10::IValue run_unplanned(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                            std::vector<c10::IValue> inputs, const std::string& reason);
  // Returns the code of the method as it was scripted, for modules of this type. Needs `mutex_`.
  std::shared_ptr<torch::jit::Code> unplanned_code(const c10::TypePtr& type);

  torch::jit::Module module_;
  std::string method_;
  Options options_;
  std::shared_ptr<PinnedPlan> pinned_plan_ = std::make_shared<PinnedPlan>();
  mutable std::mutex mutex_;  // guards the next members; held while compiling
  std::vector<SpecializationPtr> specializations_;
  SpecializationPtr recent_;         // of the last call
  bool records_paths_ = true;        // for new specializations
  std::set<int64_t> kept_branches_;  // MethodInput::kept_branches
  AttributePaths changing_numbers_;  // MethodInput::changing_numbers
  size_t num_compiled_ = 0;          // specializations so far
  size_t num_paths_ = 0;             // that were recorded
  size_t num_paths_left_ = 0;        // of these, because a call left another one
  LeanerBudget leaner_budget_;
  std::vector<std::pair<c10::TypePtr, std::shared_ptr<torch::jit::Code>>> unplanned_;
  std::map<std::string, int64_t> unplanned_calls_;  // how many, by the reason
  std::atomic<bool> checked_words_{false};
  std::unique_ptr<Artifacts> artifacts_;  // with Options::save_ir
};

// Registers the operator that runs a region inside a method's graph.
void register_region_operator();

}  // namespace aten_recompute
