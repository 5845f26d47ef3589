// What a call that may turn out to follow the wrong path changes until then, and how it was before.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/random_state.h"

namespace aten_recompute {

// Copies the attributes that a call writes and the states of its random generators. Attributes are
// copied by themselves, not with their storage as TensorSnapshots does: other threads may write to
// the rest of it meanwhile.
class BeforeCall {
 public:
  // `written`: paths from `self` to the tensors that the call writes, as PreparedMethod::written.
  // `inputs`: those of the call, which tell the devices whose generators it may draw from.
  BeforeCall(const std::vector<std::vector<std::string>>& written,
             const c10::intrusive_ptr<c10::ivalue::Object>& self,
             const std::vector<c10::IValue>& inputs);

  // Writes everything back. Versions are restored, too, so that what an earlier call has saved for
  // its backward counts as unchanged.
  void restore();

 private:
  struct Written {
    at::Tensor data;  // has a version counter of its own
    at::Tensor before;
    c10::VariableVersion counter;
    uint32_t version;
  };

  RandomStates random_states_;
  std::vector<Written> tensors_;
};

}  // namespace aten_recompute
