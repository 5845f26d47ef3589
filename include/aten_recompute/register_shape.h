// Sizes and costs of your own operators, for estimates and profiles (estimate.h) and for plans.
//
//   aten_recompute::register_shape("mylib::scaled_tanh", "def shape(x):\n"
//                                                        "    return torch.empty_like(x)\n");
//   aten_recompute::register_flops("mylib::scaled_tanh", "def flops(x):\n"
//                                                        "    return 20 * x.numel()\n");
#pragma once

#include <aten_recompute/register_rule.h>

#include <string>

namespace aten_recompute {

/// Registers what an operator returns, for estimates and profiles, which do not run it. The
/// function runs on meta tensors. Its parameters are the operator's arguments, by the schema's
/// names and types, and it returns the operator's outputs: torch.empty(sizes, dtype=...),
/// torch.empty_like or any operator that has a kernel for meta tensors.
///
/// `op` is "ns::name" or "ns::name.overload". An operator with a Meta kernel of its own needs no
/// such function. `replace` puts the function in the place of one that was registered before.
/// Thread-safe.
///
/// Throws std::invalid_argument with one line that names the operator and the error, as
/// register_rule() does.
void register_shape(const std::string& op, const RuleFunction& shape, bool replace = false);

/// Registers how many floating-point operations one run of the operator takes, as the field `flops`
/// of OperatorRule does: for operators that need no rule otherwise. The function's parameters are
/// the operator's arguments and result, result1, ...; it returns an int or a float. Throws as
/// register_shape() does.
void register_flops(const std::string& op, const RuleFunction& flops, bool replace = false);

}  // namespace aten_recompute
