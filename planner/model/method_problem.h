// One planning problem for the regions that run in one call of a method.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/model/problem.h"
#include "planner/model/retention_plan.h"

namespace aten_recompute {

// One run of a region, and how its values are connected to those of other runs of the call. A value
// of another run is named by the index of that run and by its index in that run's problem.
struct RegionRun {
  struct OtherValue {
    int32_t run = 0;
    int32_t value = 0;
  };
  // A given value that is not the caller's. It lies in the memory of a value of an earlier run;
  // with run -1, operators between the regions made it, and no earlier run was given it.
  struct Given {
    int32_t value = 0;
    OtherValue from{-1, -1};
    bool kept = false;  // until the run's backward begins, whether the backward reads it or not
    // The bytes of its memory in this call; -1: as in the problem. The problem may have been made
    // when the value was, for example, a slice of an input of the caller's.
    int64_t bytes = -1;
    // It may be dropped and made again for the backward, from the inputs of run `from.run`. Needs
    // to be an output of that run which nobody else holds, and which this run alone is given.
    bool may_be_made_again = false;
  };
  // Where an incoming gradient comes from: the loss, gradients that later runs make, or both. As in
  // autograd, they are added in the order in which they come, in the memory of the first. With
  // neither there is no gradient, and it takes no memory.
  struct Incoming {
    bool from_loss = false;
    std::vector<OtherValue> gradients;  // those of later runs first
    bool passthrough = true;  // they arrive themselves or as views; otherwise as new tensors
  };

  const Problem* problem = nullptr;
  std::vector<Given> given{};
  std::vector<Incoming> incoming{};    // per element of Problem::incoming
  std::vector<int32_t> live_to_end{};  // the Problem::results that stay to the end of the step
  std::vector<int32_t> freed_before_backward{};  // those of them that are freed before the backward

  // Memory in bytes that the problem does not contain. If it is set, the joint problem has nodes
  // for it (see MethodProblem), even if it is 0.
  std::optional<int64_t> kept_before{};  // what operators between the previous run and this one
                                         // save for their own backward
  std::optional<int64_t> beyond_in_backward{};  // during the backward of this run
  int64_t beyond_after_backward = 0;  // from then on, until the backward of the previous run
  // The bytes that the loss of the outputs needs beyond those of their gradients, if they were
  // measured (Problem::loss_bytes); may be negative. Then Problem::held_by_caller, in bytes.
  std::optional<int64_t> beyond_in_loss{};
  int64_t held_by_caller = 0;
};

// The joint problem of runs a and b, where b reads the output y of a, and the loss reads that of b:
//
//   forward    [nodes of a]  y' = handed(y)  k = between()  [nodes of b]
//   backward   m = begin()  [nodes of b]  end(m)  between(k)  dy = handed(dy')  [nodes of a]
//
// After the nodes of b there is a node `sum` for each further gradient that b makes of a value that
// other runs read. k has RegionRun::kept_before bytes, m has beyond_in_backward bytes, and the
// second `between` has a workspace of beyond_after_backward bytes.
//
// Where nodes of the forward are served, there may be no other run.
//
// The backward of a region contains copies of its own forward only. So y' is not recomputable and
// stays as long as something reads it, unless RegionRun::Given::may_be_made_again: the backward may
// then run a node `again` in place of `handed` (Problem::again), which reads what a was given and
// stands for a run of those nodes of a that y needs.
struct MethodProblem {
  Problem problem;
  // Per run: the indices in `problem` of the run's own nodes and values.
  std::vector<std::vector<int32_t>> nodes;
  std::vector<std::vector<int32_t>> values;
  // Per run: the forward node that stands for the operators before it, the node where its backward
  // begins, and the backward node that stands for the operators before it; -1: none.
  std::vector<int32_t> between;
  std::vector<int32_t> begin;
  std::vector<int32_t> between_again;
};

// Returns whether a node of the joint problem with this name stands between the runs and is no
// operator of one of them. Names of operators have a namespace.
bool is_border(const std::string& node_name);

// Returns, per run, the given values of it that are made again under `plan`, as values of its own
// problem.
std::vector<std::vector<int32_t>> made_again(const MethodProblem& joint,
                                             const std::vector<RegionRun>& runs,
                                             const RetentionPlan& plan);

// Returns the results of a run that are handed to others, which may make them again, as values of
// its own problem: the run need not keep them for its own backward either.
std::vector<int32_t> handed_results(const std::vector<RegionRun>& runs, size_t run);

// Returns the joint problem of `runs`, which are in the order of the forward. Their problems are
// read during the call only. `kept_after`: as RegionRun::kept_before, after the last run.
MethodProblem join(const std::vector<RegionRun>& runs, int64_t kept_after = 0);

// Returns the plan for the joint problem that decides in each run what the run's own plan decides.
RetentionPlan join_retentions(const MethodProblem& joint, const std::vector<RegionRun>& runs,
                              const std::vector<const RetentionPlan*>& plans);
// Returns the part of a joint plan that concerns one run, as a plan for its `problem`.
RetentionPlan retention_of_run(const MethodProblem& joint, size_t run, const Problem& problem,
                               const RetentionPlan& plan);

}  // namespace aten_recompute
