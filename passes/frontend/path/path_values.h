// What the values of a method are while its path is recorded.
#pragma once

#include <unordered_map>

#include "passes/frontend/path/path_item.h"

namespace aten_recompute {

class PathValues {
 public:
  // Sets what the value is from now on; it may have been something else in an earlier iteration.
  void set(const torch::jit::Value* value, Item item);
  // Returns what the value is; the reference holds until it is set again or forgotten. Throws
  // NotRecordable if it is not set.
  Item& get(const torch::jit::Value* value);
  // Drops a value that nothing reads any more, so that its memory is free.
  void forget(const torch::jit::Value* value);

 private:
  std::unordered_map<const torch::jit::Value*, Item> items_;
};

}  // namespace aten_recompute
