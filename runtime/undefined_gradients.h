// What a backward leaves out where only some of the results have a gradient, as eager PyTorch does.
#pragma once

#include <ATen/core/symbol.h>

#include <cstddef>
#include <vector>

namespace aten_recompute {

class Program;

// The operands of an aten_recompute::sliced that are gradients of results of a stretch.
inline const c10::Symbol kGradientOperands = c10::Symbol::attr("gradient_operands");

// How a backward changes where some of the gradients that come in are undefined.
struct UndefinedGradients {
  std::vector<bool> skip;       // per instruction: it serves or reads undefined gradients only
  std::vector<bool> undefined;  // per output: no defined gradient reaches it
  std::vector<bool> zeros;      // per gradient: it is undefined, but an operator needs it as zeros
};

// `gradients` has the inputs of the program by which gradients come in, `defined` says of each
// whether it is defined. An aten_recompute::sliced takes None for an undefined gradient
// (runtime/sliced.h).
UndefinedGradients find_undefined_gradients(const Program& backward,
                                            const std::vector<size_t>& gradients,
                                            const std::vector<bool>& defined);

}  // namespace aten_recompute
