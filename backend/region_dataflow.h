// How the region runs of one call of a method hang together: who made whose inputs, and where
// gradients will go.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backend/compiled_region.h"
#include "common/torch_compat.h"
#include "planner/model/joint_problem.h"

namespace aten_recompute {

// Written while the call runs: begin_run() before a region's forward, end_run() after it.
// Memory is known by its StorageImpl, which a weak reference keeps from being used for another
// tensor; gradients by the autograd graph as it stands.
class RegionDataflowRecorder {
 public:
  // `inputs` of the method: the caller's memory.
  explicit RegionDataflowRecorder(const std::vector<c10::IValue>& inputs);

  // `edges[k]`: where gradient k of the compiled region goes. `is_kept[i]`: input i stays for
  // running the region again (note_replay_input).
  void begin_run(std::shared_ptr<const CompiledRegion> compiled_region,
                 const std::vector<bool>& is_attribute, const std::vector<c10::IValue>& inputs,
                 const std::vector<bool>& is_kept, const std::vector<torch::autograd::Edge>& edges);
  void end_run(const std::vector<c10::IValue>& outputs, NodePtr<torch::autograd::Node> node);

  // For join(). `result` is what the method returned.
  std::vector<RegionRun> runs(const c10::IValue& result, const Options& options) const;

 private:
  using Target = std::pair<int32_t, size_t>;  // a run, and which of its vjps
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  struct Gradient {
    std::vector<Target> targets;  // earlier runs that it reaches
    bool passthrough = true;  // it, or a view of it, is the vjp; nothing is made of it on the way
    const torch::autograd::Node* goes_to = nullptr;
  };

  struct Record {
    std::shared_ptr<const CompiledRegion> compiled_region;
    std::vector<RegionRun::Given> given;
    std::vector<WeakStorage> given_storages;  // per `given`
    std::vector<Gradient> gradients;
    std::vector<WeakStorage> outputs;
    NodePtr<torch::autograd::Node> node;
  };

  Gradient follow(const torch::autograd::Edge& edge) const;
  // The first value of an earlier run that lies in this memory: one that the run made, or one that
  // it was given and that was made between the regions.
  RegionRun::OtherValue first_in(const c10::StorageImpl* storage) const;
  std::vector<RegionRun::Incoming> incoming_of(size_t run,
                                               const std::vector<Target>& from_loss) const;
  std::vector<int32_t> stays_of(size_t run, const std::unordered_set<const void*>& returned,
                                bool accumulate) const;
  static bool is_alive(const Record& record, size_t vjp);  // the output that it belongs to
  bool is_read_later(size_t run, int32_t value) const;

  std::unordered_set<const void*> callers_;                   // storages
  std::unordered_set<const torch::autograd::Node*> outside_;  // where the caller's own graph begins
  std::unordered_map<const torch::autograd::Node*, int32_t> run_of_;
  std::vector<Record> records_;
};

}  // namespace aten_recompute
