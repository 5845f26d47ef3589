// A method, before and after it is compiled up to its regions.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "passes/frontend/path/path_guard.h"
#include "passes/frontend/prepare.h"
#include "passes/frontend/regions/form_regions.h"

namespace aten_recompute {

struct MethodInput {
  std::shared_ptr<torch::jit::Graph> graph;  // the method as scripted or traced; not changed
  c10::intrusive_ptr<c10::ivalue::Object> self;
  std::vector<c10::IValue> inputs;    // of the first call, self not counted
  std::string layer_pattern;          // Options::layer_pattern
  bool may_record_path = true;        // where this saves borders between regions
  std::set<int64_t> kept_branches{};  // record_path()'s `kept`
  // The forward may need more than these bytes: its path is recorded without memory, if that is
  // possible.
  std::optional<int64_t> memory_bytes = std::nullopt;
  AttributePaths changing_numbers{};  // attributes that are read in each call
  bool may_repeat = false;            // a call that raises may be made again, if that is possible
};

// A method compiled up to its regions, which are compiled when they first run.
struct PreparedMethod {
  std::shared_ptr<torch::jit::Graph> graph;  // its first input is the module
  Assumptions assumptions;
  Regions regions;
  // The method has blocks of autocast, or asks for its settings: so those around the call count,
  // even if autocast is off there.
  bool depends_on_autocast = false;
  // The graph checks during the call whether it takes the path that it was compiled for. Where it
  // does not, path_left() returns true, and the call has to be made again with another graph, after
  // `written` are restored.
  bool may_leave_path() const { return !checks.empty(); }
  std::vector<PathCheck> checks;  // by their place
  // The graph sets attributes, or changes containers of the caller, later than the method does. A
  // call that raises has to be made again as the method was scripted.
  bool has_late_changes = false;
  // The graph asks for gradients. Where one is undefined, path_left() returns kRunAsScripted.
  bool may_lack_gradients = false;
  std::vector<std::vector<std::string>> written;  // paths of attributes that the graph writes to
  // With MethodInput::may_repeat: until a call has returned, `written` is all that it changes. One
  // that raises can be made again after they are restored.
  bool can_repeat = false;
  // No path was recorded, because the call that this was compiled for raises an error.
  bool seems_to_raise = false;
};

}  // namespace aten_recompute
