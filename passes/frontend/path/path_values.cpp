#include "passes/frontend/path/path_values.h"

#include <utility>

#include "passes/frontend/rewrites/not_recordable.h"

namespace aten_recompute {

void PathValues::set(const torch::jit::Value* value, Item item) {
  items_[value] = std::move(item);
}

Item& PathValues::get(const torch::jit::Value* value) {
  const auto found = items_.find(value);
  if (found == items_.end())
    throw NotRecordable("a value is read that the path did not set");
  return found->second;
}

void PathValues::forget(const torch::jit::Value* value) {
  items_.erase(value);
}

}  // namespace aten_recompute
