// Gradient rules for operators of your own.
//
//   TORCH_LIBRARY(mylib, m) { m.def("scaled_tanh(Tensor x, float scale) -> Tensor", ...); }
//
//   aten_recompute::register_rule("mylib::scaled_tanh", {
//       .backward = {{"x", "def backward(grad, result, scale: float):\n"
//                          "    return grad * (scale - result * result / scale)\n"}},
//   });
//
// None is needed for an operator that autograd can differentiate (an autograd kernel,
// torch::autograd::Function, a composition of other operators): it runs under ordinary autograd
// inside of a region. A rule lets a plan look inside: the backward captures what the rule reads
// instead of all that autograd would save, and is planned like everything else.
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
/// may write to what it made itself (it is then planned as one operator), never to what it is
/// given.
class RuleFunction {
 public:
  RuleFunction() = default;
  /// Source of a function "def name(...):"; where there are several, the last one, which may call
  /// the others. Operators are torch.relu(x), torch.ops.mylib.f(x).
  RuleFunction(std::string source) : source_(std::move(source)) {}
  RuleFunction(const char* source) : source_(source) {}
  /// What torch::jit::compile makes, or a method that reads nothing of its module. The graph is
  /// copied. `parameters`: names in place of those that it has.
  RuleFunction(torch::jit::Function& function, std::vector<std::string> parameters = {});

  bool empty() const { return source_.empty() && graph_ == nullptr; }
  const std::string& source() const { return source_; }
  const std::shared_ptr<torch::jit::Graph>& graph() const { return graph_; }
  const std::vector<std::string>& parameters() const { return parameters_; }

 private:
  std::string source_;
  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<std::string> parameters_;  // of the graph
};

/// What is given holds for the operator; what is not is as if there were no rule.
struct OperatorRule {
  struct Backward {
    /// Names of the arguments whose gradients `function` returns, in this order: "x" or "x,
    /// weight". Empty: all that are Tensor, Tensor? or Tensor[], in the schema's order.
    std::string arguments;
    RuleFunction function;
  };

  /// Gradients. A function runs where one of its gradients is asked for, in the order given here:
  /// those of weights first let go of activations earlier. Arguments that none of them names get no
  /// gradient. Empty: autograd differentiates the operator.
  ///
  /// Parameters are any of
  ///   the operator's arguments   by the schema's names and types
  ///   grad, grad1, ...           gradients of the outputs, shaped as these. Annotated
  ///                              Optional[Tensor], an undefined one is None; else zeros
  ///   grads                      List[Optional[Tensor]]: that of an output Tensor[]
  ///   result, result1, ...       the outputs
  ///   the names in `extras`
  ///   needs_<argument>           bool: is this gradient asked for. Known when a region is
  ///                              compiled: an `if` on it costs nothing
  /// Each returned gradient is treated as eager's engine would: None is zero, sizes to which the
  /// argument's can be broadcast are summed, the type becomes the argument's; other sizes raise
  /// when it runs. None for an argument that never has a gradient (indices).
  std::vector<Backward> backward;

  /// What runs in the operator's place where a gradient is asked for. Parameters are the operator's
  /// arguments and needs_<argument>; it returns the operator's outputs, then the extras. Empty: the
  /// operator itself.
  RuleFunction forward;
  std::vector<std::string> extras;  ///< names for what `forward` returns beyond the outputs

  /// How to compute the outputs again, bit for bit, where that must differ from the first run (no
  /// second update of statistics). Parameters are the operator's arguments.
  RuleFunction replay;

  /// Floating-point operations of one run, an int or a float; a multiply-add counts as two.
  /// Parameters are the operator's arguments and result, result1, ...; only sizes and types may be
  /// read of tensors. Plans use it under "cost_model": "flops". Empty: one per element of the
  /// results.
  RuleFunction flops;

  /// The operator draws random numbers: the generator's state is noted, and is the same when it
  /// runs again. Not given: as its tag nondeterministic_seeded says; without that the state is
  /// noted to be on the safe side.
  std::optional<bool> random;

  /// false: the operator runs once, its results are kept if the backward needs them. Strategies
  /// that measure (budget, segments, min_cut) still run it on zeros when they profile a region.
  bool recomputable = true;

  /// Takes the place of a rule that was registered before, or of one of this library's. With
  /// nothing else given, what was registered before is removed.
  bool replace = false;
};

/// Registers a rule for `op`, "ns::name" or "ns::name.overload". An operator has one rule, all of
/// it from one call.
///
/// It holds for what is compiled from now on: methods that have run before keep to what they were
/// compiled with. Saved modules hold no rules: register them in each process, or the operator runs
/// under autograd there. What runs outside of regions (report() says what, and why) and calls under
/// autocast are left to autograd, too. Thread-safe.
///
/// Throws std::invalid_argument with one line that names the operator and what is wrong: no such
/// operator, one that writes to its arguments or returns views of them, a function that does not
/// compile, whose parameters are none of the above or whose results do not fit; a rule that is
/// there already.
void register_rule(const std::string& op, const OperatorRule& rule);

}  // namespace aten_recompute
