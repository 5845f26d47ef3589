// What the call that runs on a thread tells code that it cannot pass arguments to.
//
// LibTorch's interpreter, its dispatcher and the autograd engine call operators, hooks and
// allocators with arguments of their own choice, so what such code has to know of the call around
// it stands here. Everything else is passed as an argument. Two more such contexts exist:
// runtime/arena/thread_memory.h for what is allocated, and that of a method's plans in
// backend/planning/method_call.cpp.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace c10 {
struct TensorImpl;
}
namespace torch::autograd {
struct Node;
}

namespace aten_recompute {

class TapeReach;

struct CallContext {
  // Autocast's settings before a block was entered, which its end restores.
  struct AutocastBlock {
    c10::DeviceType device;
    bool enabled;
    c10::ScalarType dtype;
    bool cache_enabled;
  };
  // A stage of a region's backward that had no gradient to pass on, and its backward.
  struct StageWithoutGradient {
    int graph_task = -1;
    const torch::autograd::Node* node = nullptr;
  };

  // The place of the check that has failed last and was not asked for yet (runtime/path_check.h).
  std::optional<int64_t> path_left;
  const char* why_all_paths_left = "";
  std::vector<AutocastBlock> autocast_blocks;  // those that are open
  // What calls in one block of autocast share (backend/autograd/shared_casts.h). This folder does
  // not know the type.
  std::shared_ptr<void> shared_casts;
  bool counts_meta_memory = false;  // runtime/meta_memory.h
  // The UserRules that the innermost UseRules guard selects; nullptr without one. This folder does
  // not know the type.
  const void* user_rules = nullptr;
  // The sizes of a structured operator's results are known, and its out variant comes next
  // (rules/meta_mode.h).
  bool expects_out_variant = false;
  // Who looks at what autocast's kernels call, and at the operators that run under MetaMode;
  // nullptr: nobody (rules/autocast_probe.h).
  void* autocast_observer = nullptr;
  void* cast_watch = nullptr;
  // Whom operators on the tape tell what requires grad (runtime/tape_reach.h); nullptr: nobody.
  TapeReach* tape_reach = nullptr;
  // The allocator in use is asked whether it is that of StepMemoryWatch, and whether it leads to
  // that of PeakWatch (backend/memory).
  bool asks_for_allocator = false;
  bool reached_peak_watch = false;
  // What PeakWatch saw begin and not end, and who looks at the operators of a function that is
  // traced (backend/method/trace_and_lower.cpp). This folder does not know the types.
  std::shared_ptr<void> running_operators;
  void* operator_watch = nullptr;
  StageWithoutGradient last_stage;
  // The parameter that is accumulated next if its gradient is missing; nullptr otherwise.
  const c10::TensorImpl* missing_for = nullptr;

  // Returns the context of this thread.
  static CallContext& current();
};

}  // namespace aten_recompute
