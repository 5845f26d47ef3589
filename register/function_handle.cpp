#include "register/function_handle.h"

namespace aten_recompute {

torch::jit::Function* function_in(const torch::jit::Module& module) {
  if (module.type()->numAttributes() != 1 ||
      module.type()->getAttributeName(0) != "aten_recompute_function") {
    return nullptr;
  }
  const auto type = module.type()->getAttribute(0)->castRaw<c10::OptionalType>();
  const auto* function =
      type == nullptr ? nullptr : type->getElementType()->castRaw<c10::FunctionType>();
  return function == nullptr ? nullptr : function->function();
}

}  // namespace aten_recompute
