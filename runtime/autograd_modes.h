// Guards that switch autograd off and on around operators.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace aten_recompute {

// Used inside a region: operators record nothing, and views are not tracked.
//
// Autograd's kernels are still called, with gradients off, because they decompose composite
// operators. Below them, PyTorch's fallback for lazily conjugated and negated tensors would come
// first: it would materialize the operand of a matrix product where eager does not, and the result
// would differ from eager's by a rounding.
class WithoutAutograd {
 public:
  WithoutAutograd() : grad_mode_(false), keys_(c10::inplace_or_view_ks) {}

 private:
  at::AutoGradMode grad_mode_;
  c10::impl::ExcludeDispatchKeyGuard keys_;
};

// Used inside a tape, which is inside a region: switches ordinary autograd on again.
class OrdinaryAutograd {
 public:
  OrdinaryAutograd() : keys_(with_autograd()), grad_mode_(true) {}

 private:
  static c10::impl::LocalDispatchKeySet with_autograd() {
    auto keys = c10::impl::tls_local_dispatch_key_set();
    keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    return keys;
  }

  c10::impl::ForceDispatchKeyGuard keys_;
  at::AutoGradMode grad_mode_;
};

}  // namespace aten_recompute
