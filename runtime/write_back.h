// Writes to an attribute what a path has computed in its place (decision 53).
#pragma once

#include <ATen/core/interned_strings.h>

namespace aten_recompute {

// aten_recompute::write_back(Tensor(a!) self, Tensor content, int writes) -> Tensor(a!) copies
// `content` to `self`. The version of `self` rises by `writes`, the number of writes of the method.
inline const c10::Symbol kWriteBack = c10::Symbol::fromQualString("aten_recompute::write_back");

void register_write_back_operator();

}  // namespace aten_recompute
