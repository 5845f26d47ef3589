// One method of a lowered module: its specialisations, compiled at first use.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/custom_class.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/region.h"
#include "common/options.h"
#include "passes/pipeline.h"

namespace torch::jit {
struct Code;
}

namespace aten_recompute {

// Attribute of a module: Options::layer_pattern, where the spec has none.
inline constexpr const char* kLayerPatternAttribute = "aten_recompute_layer_pattern";

class LoweredMethod : public torch::CustomClassHolder {
 public:
  // `module` gives the code, and the attributes where run() is not told otherwise. `spec` is JSON.
  // Throws std::invalid_argument for an invalid spec or a method that does not exist.
  LoweredMethod(torch::jit::Module module, std::string method, const std::string& spec);

  // Runs the method on `self`, which has the attributes of the module. Thread-safe.
  c10::IValue run(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                  std::vector<c10::IValue> inputs);
  c10::IValue run(std::vector<c10::IValue> inputs) {
    return run(module_._ivalue(), std::move(inputs));
  }

  const std::string& name() const { return method_; }
  const Options& options() const { return options_; }

  // One JSON object: options, specialisations, regions.
  std::string report() const;
  // Problem::to_json of each region compiled region that was profiled.
  std::vector<std::string> problems() const;
  // plan_to_json of the same.
  std::vector<std::string> plans() const;

 private:
  struct Specialisation;
  using SpecialisationPtr = std::shared_ptr<Specialisation>;

  SpecialisationPtr find(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                         const std::vector<c10::IValue>& inputs);
  SpecialisationPtr compile(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                            const std::vector<c10::IValue>& inputs) const;
  // Says once which words of the options match nothing in any region that has been compiled.
  void warn_of_unmatched_words(const Specialisation& specialisation);
  // Of the region compiled regions that were compiled with a profile.
  void for_each_profiled(const std::function<void(const RegionGraphs&)>& function) const;
  c10::IValue run_unplanned(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                            std::vector<c10::IValue> inputs);
  // The method as it was scripted, for modules of this type.
  std::shared_ptr<torch::jit::Code> unplanned_code(const c10::TypePtr& type);

  torch::jit::Module module_;
  std::string method_;
  Options options_;
  std::shared_ptr<PinnedPlan> pinned_plan_ = std::make_shared<PinnedPlan>();
  mutable std::mutex mutex_;  // guards what follows; held while compiling
  std::vector<SpecialisationPtr> specialisations_;
  std::vector<std::pair<c10::TypePtr, std::shared_ptr<torch::jit::Code>>> unplanned_;
  std::atomic<bool> checked_words_{false};
};

// The operator that runs a region inside of a method's graph.
void register_region_operator();

}  // namespace aten_recompute
