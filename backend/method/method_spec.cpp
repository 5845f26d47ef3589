#include "backend/method/method_spec.h"

#include <aten_recompute/errors.h>

#include <vector>

#include "common/did_you_mean.h"
#include "common/options.h"
#include "common/parse_options.h"
#include "common/strategy_traits.h"

namespace aten_recompute {
namespace {

// Returns the end of the message for a method that the module lacks. TorchScript compiles a method
// with overloads, such as nn.LSTM's forward, under other names.
std::string hint_at_methods(const torch::jit::Module& module, const std::string& method,
                            const std::string& verb) {
  std::string overloads;
  std::vector<std::string> names;
  for (const auto& each : module.get_methods()) {
    if (each.name().rfind(method + "__", 0) == 0)
      overloads += (overloads.empty() ? "\"" : ", \"") + each.name() + "\"";
    names.push_back(each.name());
  }
  return overloads.empty() ? did_you_mean(method, names)
                           : ", but overloads of it: " + verb + " " + overloads +
                                 " by name, or a module that calls this one";
}

}  // namespace

void require_method(const torch::jit::Module& module, const std::string& method,
                    const std::string& verb) {
  if (!module.find_method(method)) {
    NoSuchMethodError error("the module has no method \"" + method + "\" to " + verb +
                            hint_at_methods(module, method, verb));
    error.method = method;
    error.raise_as_invalid_argument();
  }
}

std::string self_contained(const std::string& spec) {
  const auto options = parse_options(spec);
  return traits_of(options).follows_plan_file ? to_json(options) : spec;
}

}  // namespace aten_recompute
