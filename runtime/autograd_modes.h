// Switching autograd off and on around operators.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace aten_recompute {

// Inside of a region: operators record nothing, and views are not tracked.
//
// Autograd's kernels stay in the way, with gradients off: they are where an operator that consists
// of others is taken apart. Below them PyTorch's fallback for lazily conjugated and negated tensors
// would come first: a matrix product of one would make it real in eager's place and differ from
// eager's by a rounding.
class WithoutAutograd {
 public:
  WithoutAutograd() : grad_mode_(false), keys_(c10::inplace_or_view_ks) {}

 private:
  at::AutoGradMode grad_mode_;
  c10::impl::ExcludeDispatchKeyGuard keys_;
};

// Inside of a tape, itself inside of a region: ordinary autograd again.
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
