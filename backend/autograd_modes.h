// Switching autograd off and on around operators.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace aten_recompute {

// Inside of a region: operators run below autograd.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

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
