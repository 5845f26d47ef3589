// Gradient rules. As in PyTorch's derivatives.yaml, a rule has one formula per argument; formulas
// are TorchScript.
//
//   {.op = "aten::mul.Tensor",
//    .gradients = {{"self",  "recompute.reduce_grad(grad * other, self.size(), self.dtype)"},
//                  {"other", "recompute.reduce_grad(grad * self, other.size(), other.dtype)"}}}
//
// A formula may use these names:
//   arguments of the operator   by their names in the schema (self, weight, dim, ...)
//   grad                        gradient of the (first) output
//   grads                       gradients of an output Tensor[]: List[Optional[Tensor]], None if
//                               undefined
//   grad1, grad2, ...           Optional[Tensor]: gradients of further outputs
//   result, result1, ...        outputs of the operator
//   names in `extras`           further values that `forward` returns
//   needs_<argument>            bool, known when the graph is built: whether this gradient is
//                               needed (may be used in `forward`, too)
//   requires_<argument>         bool: whether the argument has requires_grad in eager, where this
//                               gradient may not be needed
//   needs_each_<argument>       List[bool]: the same for each element of a Tensor[]; empty if the
//                               elements are not known, and all of them may need a gradient
//   factors_of_<argument>       List[Tensor]: the elements of a Tensor[] for a formula whose gradient
//                               of each element reads the others only. Where one element alone needs
//                               a gradient, a stand-in takes its place, so that it is not kept
//   is_real                     bool, known when the graph is built: no tensor of the graph can hold
//                               complex numbers. False where that is not known
// `torch.` is the aten namespace, `recompute.` the namespace of this project's operators
// (rules/kernels/operators.cpp).
//
// A formula is an expression, or the body of a function if it contains "return". One formula may
// compute several gradients, whose names are separated by commas in `inputs`. It then returns that
// many tensors, none of which is None; a gradient that is not needed may be any tensor.
//
// Formulas run in the order in which they are listed. Gradients of weights come before those of
// data, so that values that only the former need are freed earlier.
//
// A rule without gradients is that of a composed operator: `forward` takes its place, and each of
// its parts has a rule of its own. An `if` in such a forward must be one that constants, or None
// arguments, decide. Where constants decide how many parts there are, `compose` writes the forward.
//
// Metadata of a value (size, dtype, dim) may be read freely: differentiate() moves such reads into
// the forward, where they capture an int list and not the tensor. For an operator that takes a
// tensor but reads only its metadata, use layout_of("self").
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// A compiled formula. Input i of the graph is bound to the name parameters[i].
struct CompiledFormula {
  std::vector<std::string> parameters;
  std::shared_ptr<torch::jit::Graph> graph;
  // The formula writes to lists or tensors that it made itself, so its nodes have to stay together
  // as one operator.
  bool is_one_operator = false;
};

struct GradientFormula {
  std::string inputs;  // "self" or "input, weight, bias"
  std::string body;
  // What eager runs where the gradient is differentiated again (create_graph=True), if that is
  // another formula.
  std::string again{};
  // `body` computes the same as `again`, and reads the result in place of an operand.
  bool is_by_result = false;
  // What takes the place of `body` where the first two operands are one value, whose gradients
  // eager adds one after the other: the first for the first operand.
  std::string of_square{};
  std::shared_ptr<const CompiledFormula> compiled = nullptr;  // in a user's rule, without a body
};

struct Rule {
  std::string op{};  // schema name with overload: "aten::mul.Tensor"
  // Returns the outputs, then the extras; if empty, the operator itself runs.
  std::string forward{};
  // Names of what `forward` returns after the operator's outputs.
  std::vector<std::string> extras{};
  std::vector<GradientFormula> gradients{};
  // Set in a user's rule (rules/user_rules.h): the compiled `forward`. With `is_users`, what the
  // formulas return is checked when they run, because nothing is known about it before.
  std::shared_ptr<const CompiledFormula> given_forward = nullptr;
  bool is_users = false;
  // Eager PyTorch reads the operands through views of its own, one made after the other. Where the
  // operator reads one tensor twice, their gradients come in reverse: that of the last one first.
  bool gradients_in_reverse = false;
  // Returns the forward of a composed operator for one node of it, which it may write after the
  // node's constants; an empty string if the node cannot be composed.
  std::string (*compose)(const torch::jit::Node* node) = nullptr;
  // The parts of a composed operator are those that ATen takes on the CPU. Elsewhere, and where the
  // types of the graph's inputs do not tell (ir/graph_device.h), it has none.
  bool on_cpu_only = false;

  bool has_forward() const { return !forward.empty() || given_forward != nullptr; }
  bool is_composition() const { return gradients.empty(); }
};

// Returns TorchScript for a tensor that has the layout of `argument` but neither its elements nor
// its memory (rules/kernels/stand_in.h). It is only for operators that read no element of it.
std::string layout_of(const std::string& argument);

// Returns TorchScript that undoes the broadcasting and the type promotion of `argument`.
std::string reduced(const std::string& argument, const std::string& gradient);

// Splits "input, weight, bias" into names.
std::vector<std::string> split_names(const std::string& names);

}  // namespace aten_recompute
