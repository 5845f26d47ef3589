// Gradient rules for your own operators.
//
//   TORCH_LIBRARY(mylib, m) { m.def("scaled_tanh(Tensor x, float scale) -> Tensor", ...); }
//
//   aten_recompute::register_rule("mylib::scaled_tanh", {
//       .backward = {{"x", "def backward(grad, result, scale: float):\n"
//                          "    return grad * (scale - result * result / scale)\n"}},
//   });
//
// An operator that autograd can differentiate (by an autograd kernel, a torch::autograd::Function,
// or as a composition of other operators) needs no rule: it runs under ordinary autograd inside a
// region. With a rule, the backward captures only what the rule reads instead of everything that
// autograd would save, and it is planned like the rest of the region.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch::jit {
struct Function;
struct Graph;
}  // namespace torch::jit

namespace aten_recompute {

/// A function of a rule, as TorchScript source or compiled. Its parameters are bound by name. It
/// may write to tensors that it made itself (it is then planned as one operator), but never to its
/// parameters.
class RuleFunction {
 public:
  RuleFunction() = default;
  /// Takes the source of a function "def name(...):". If there are several, the last one is used,
  /// and it may call the others. Operators are written torch.relu(x) or torch.ops.mylib.f(x).
  RuleFunction(std::string source) : source_(std::move(source)) {}
  RuleFunction(const char* source) : source_(source) {}
  /// Takes a function that torch::jit::compile made, or a method that does not use its module. The
  /// graph is copied. If `parameters` is not empty, it replaces the names of the parameters. Throws
  /// std::invalid_argument if a method uses its module.
  RuleFunction(torch::jit::Function& function, std::vector<std::string> parameters = {});

  bool empty() const { return source_.empty() && graph_ == nullptr; }
  const std::string& source() const { return source_; }
  const std::shared_ptr<torch::jit::Graph>& graph() const { return graph_; }
  const std::vector<std::string>& parameters() const { return parameters_; }

 private:
  std::string source_;
  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<std::string> parameters_;  // one for each input of graph_
};

/// What lowered modules should know about an operator. Each field that is left at its default has
/// no effect.
struct OperatorRule {
  struct Backward {
    /// Names of the arguments whose gradients `function` returns, in this order: "x" or "x,
    /// weight". If empty, these are all arguments of type Tensor, Tensor? or Tensor[], in the order
    /// of the schema.
    std::string arguments{};
    RuleFunction function{};
  };

  /// The functions that compute gradients. A function runs if one of its gradients is needed, in
  /// the order given here; if gradients of weights come first, activations are freed earlier.
  /// Arguments that no function names get no gradient. If empty, autograd differentiates the
  /// operator.
  ///
  /// A function may have any of these parameters:
  ///   the operator's arguments   by the schema's names and types
  ///   grad, grad1, ...           gradients of the outputs, with the outputs' shapes. An undefined
  ///                              gradient is None for a parameter that is annotated
  ///                              Optional[Tensor], otherwise zeros
  ///   grads                      List[Optional[Tensor]]: gradients of an output Tensor[]
  ///   result, result1, ...       the outputs
  ///   the names in `extras`
  ///   needs_<argument>           bool: whether the argument's gradient is needed. This is known
  ///                              when a region is compiled, so an `if` on it costs nothing
  ///
  /// Each returned gradient is treated as eager's engine would treat it: None is zero, a gradient
  /// of a size to which the argument can be broadcast is summed to the argument's size, and the
  /// dtype becomes the argument's. Other sizes raise an error when the function runs. Return None
  /// for an argument that never has a gradient (indices).
  std::vector<Backward> backward{};

  /// The function that runs in place of the operator if a gradient is needed. Its parameters are
  /// the operator's arguments and needs_<argument>; it returns the operator's outputs, then the
  /// extras. If empty, the operator itself runs.
  RuleFunction forward{};
  std::vector<std::string>
      extras{};  ///< names of the values that `forward` returns after the outputs

  /// The function that computes the outputs again, bit for bit, if a second run must differ from
  /// the first (for example, not update statistics again). Its parameters are the operator's
  /// arguments.
  RuleFunction replay{};

  /// The function that returns the number of floating-point operations of one run, as an int or a
  /// float; a multiply-add counts as two. Its parameters are the operator's arguments and result,
  /// result1, ...; it may read only sizes and types of tensors. Plans use it under "cost_model":
  /// "flops". If empty, one operation is counted per element of the results.
  RuleFunction flops{};

  /// Whether the operator draws random numbers. If true, the generator's state is recorded and
  /// restored when the operator runs again. If not given, the tag nondeterministic_seeded decides;
  /// for an operator without that tag the state is recorded to be safe.
  std::optional<bool> random{};

  /// If false, the operator runs only once, and its results are kept if the backward needs them.
  /// Strategies that measure (budget, segments, min_cut) still run it on zeros when they profile a
  /// region.
  bool recomputable = true;

  /// If true, the rule replaces one that was registered before, or a rule of this library. If
  /// nothing else is given, the rule that was registered before is removed.
  bool replace = false;
};

/// Registers a rule for `op`, which is "ns::name" or "ns::name.overload". An operator has one rule,
/// registered by one call.
///
/// The rule applies to everything that is compiled afterward; methods that have run already keep
/// what was compiled for them. Saved modules contain no rules: register the rules in each process,
/// otherwise the operator runs under autograd there. Code outside regions (report() lists it, with
/// reasons) and calls under autocast are also left to autograd. Thread-safe.
///
/// Throws std::invalid_argument with one line that names the operator and the error: the operator
/// does not exist, writes to its arguments or returns views of them; a function does not compile,
/// has a parameter that is not listed above, or returns values that do not fit; or a rule exists
/// already.
void register_rule(const std::string& op, const OperatorRule& rule);

}  // namespace aten_recompute
