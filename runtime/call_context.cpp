#include "runtime/call_context.h"

namespace aten_recompute {

CallContext& CallContext::current() {
  // LibTorch gives operators, hooks and allocators no way to find the call that they run in but the
  // thread.
  static thread_local CallContext context;
  return context;
}

}  // namespace aten_recompute
