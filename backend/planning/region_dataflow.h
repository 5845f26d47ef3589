// How values and gradients flow between the region runs in one call of a method.
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

#include "backend/autograd/compiled_region.h"
#include "common/torch_compat.h"
#include "planner/model/method_problem.h"

namespace aten_recompute {

// Records which run made which inputs, and where gradients will go, while the call runs. Memory is
// identified by its StorageImpl; a weak reference keeps the address from being used again.
// Gradients are followed through the autograd graph as it is at the time.
class RegionDataflowRecorder {
 public:
  // `inputs` are those of the method. Their memory is the caller's.
  explicit RegionDataflowRecorder(const std::vector<c10::IValue>& inputs);

  // Needs to be called before a region's forward. `edges[k]` is where gradient k of the compiled
  // region goes. `is_kept[i]` says whether input i is kept for a replay (note_replay_input()).
  void begin_run(std::shared_ptr<const CompiledRegion> compiled_region,
                 const std::vector<bool>& is_attribute, const std::vector<c10::IValue>& inputs,
                 const std::vector<bool>& is_kept, const std::vector<torch::autograd::Edge>& edges);
  // Needs to be called after the region's forward. `node` is the first stage of its backward.
  void end_run(const std::vector<c10::IValue>& outputs, NodePtr<torch::autograd::Node> node);

  // Returns the recorded runs for join(). `result` is what the method returned.
  std::vector<RegionRun> runs(const c10::IValue& result, const Options& options) const;

 private:
  using Target = std::pair<int32_t, size_t>;  // a run, and which of its vjps
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  struct Gradient {
    std::vector<Target> targets;  // earlier runs that it reaches
    bool passthrough = true;      // the vjps are the gradient itself or views of it
    const torch::autograd::Node* goes_to = nullptr;
  };

  struct Record {
    std::shared_ptr<const CompiledRegion> compiled_region;
    std::vector<RegionRun::Given> given;
    std::vector<WeakStorage> given_storages;  // per `given`
    std::vector<Gradient> gradients;
    std::vector<WeakStorage> outputs;
    NodePtr<torch::autograd::Node> node;
    // Of what the run was given, after its forward.
    std::vector<std::pair<c10::VariableVersion, uint32_t>> versions;
  };

  // Returns the earlier runs that a gradient reaches through this edge.
  Gradient follow(const torch::autograd::Edge& edge) const;
  // Returns the first value of an earlier run in this memory: one that the run made, or one that it
  // read and that was made between the regions. Returns {-1, -1} if there is none.
  RegionRun::OtherValue first_in(const c10::StorageImpl* storage) const;
  // Returns whether the run that made `tensor`, which is given to this region as `input`, may make
  // it again, as far as is known when this run begins.
  bool may_be_made_again(const CompiledRegion& compiled_region, const RegionRun::Given& given,
                         const at::Tensor& tensor, size_t input) const;
  // Leaves only those given values to be made again that nobody else holds, and of which the method
  // has not changed what they are made from.
  void find_made_again(std::vector<RegionRun>& runs) const;
  // Returns whether something was written to what the run was given, since its forward.
  bool has_changed(int32_t run) const;
  // Returns where each incoming gradient of the run comes from. `from_loss` are the vjps that
  // gradients of the method's results reach.
  std::vector<RegionRun::Incoming> incoming_of(size_t run,
                                               const std::vector<Target>& from_loss) const;
  // Returns the results of the run that live to the end of the step (RegionRun::live_to_end).
  // `returned` are the storages of the method's results.
  std::vector<int32_t> stays_of(size_t run, const std::unordered_set<const void*>& returned,
                                bool accumulate) const;
  // Returns whether the output that this vjp belongs to is still in memory.
  static bool is_alive(const Record& record, size_t vjp);
  // Returns whether a later run reads this value of the run.
  bool is_read_later(size_t run, int32_t value) const;

  std::unordered_set<const void*> callers_;                   // storages of the caller
  std::unordered_set<const torch::autograd::Node*> outside_;  // where the caller's graph begins
  std::unordered_map<const torch::autograd::Node*, int32_t> run_of_;  // by first stage
  std::vector<Record> records_;
};

}  // namespace aten_recompute
