// Runs operators on meta tensors without Python, and counts the memory that they would take.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "runtime/meta_memory.h"

namespace aten_recompute {

// While an instance exists, every operator that this thread runs, be it inside of others, goes
// through this mode. In a Python process PyTorch has kernels for meta tensors that are written in
// Python. They take seconds and 70 MiB for imports when one first runs, and make tensors that no
// other device's kernel makes. The mode runs, in their place, the shape function of this library
// (rules/shapes.h), the C++ code that an operator is composed of, or that which finds the sizes of
// its results; and a MemoryWatch counts, of an operator that is not composed of others, nothing but
// its results. Calls that autograd records are left alone.
class MetaMode {
 public:
  MetaMode();

 private:
  CountMetaMemory count_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace aten_recompute
