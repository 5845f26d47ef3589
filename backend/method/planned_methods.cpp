#include "backend/method/planned_methods.h"

#include <aten_recompute/errors.h>
#include <torch/csrc/jit/api/function_impl.h>

#include <utility>

#include "backend/method/planned_function.h"
#include "backend/method/share_tensors.h"

namespace aten_recompute {

PlannedMethods methods_of_backend(const torch::jit::Module& lowered) {
  PlannedMethods methods;
  for (const auto& handle : lowered.attr("__handles").toGenericDict())
    methods.push_back(handle.value().toCustomClass<LoweredMethod>());
  return methods;
}

namespace {

// Returns what enable() made of the function for the object; nullptr where it did not.
c10::intrusive_ptr<LoweredMethod> enabled_method(
    torch::jit::Function& function, const c10::intrusive_ptr<c10::ivalue::Object>& self) {
  auto* of_graph = torch::jit::tryToGraphFunction(function);
  const auto planned = of_graph == nullptr ? nullptr : PlannedFunction::find(*of_graph);
  return planned == nullptr ? nullptr : planned->method_of(self);
}

}  // namespace

PlannedMethods enabled_methods_of(const torch::jit::Module& module) {
  PlannedMethods methods;
  for (auto* function : module.type()->methods()) {
    if (auto method = enabled_method(*function, module._ivalue()))
      methods.push_back(std::move(method));
  }
  return methods;
}

PlannedMethods enabled_methods_of(torch::jit::Function& function) {
  auto method = enabled_method(function, nullptr);
  return method == nullptr ? PlannedMethods{} : PlannedMethods{std::move(method)};
}

PlannedMethods planned_methods_of(const torch::jit::Module& module, const char* who) {
  if (is_lowered(module))
    return methods_of_backend(module.attr(kLoweredModule).toModule());
  auto methods = enabled_methods_of(module);
  if (methods.empty()) {
    NotLoweredError(std::string(who) +
                    ": not a lowered module (aten_recompute.lower or to_backend makes one; "
                    "aten_recompute.enable plans a module where it is)")
        .raise_as_invalid_argument();
  }
  return methods;
}

PlannedMethods planned_methods_of(torch::jit::Function& function, const char* who) {
  auto methods = enabled_methods_of(function);
  if (methods.empty()) {
    NotEnabledError(std::string(who) + ": the function " + function.name() +
                    " is not enabled (aten_recompute.enable does that)")
        .raise_as_invalid_argument();
  }
  return methods;
}

}  // namespace aten_recompute
