#include "passes/frontend/rewrites/context_objects.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

namespace aten_recompute {

void remove_if_only_set(torch::jit::Node* object) {
  const auto uses = object->output()->uses();
  if (!std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
        return use.user->kind() == c10::prim::SetAttr && use.offset == 0;
      }))
    return;
  for (const auto& use : uses)
    use.user->destroy();
  object->destroy();
}

}  // namespace aten_recompute
