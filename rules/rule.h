// Gradient rules, written as derivatives.yaml writes them: one formula per argument, in
// TorchScript.
//
//   {.op = "aten::mul.Tensor",
//    .gradients = {{"self",  "recompute.reduce_grad(grad * other, self.size(), self.dtype)"},
//                  {"other", "recompute.reduce_grad(grad * self, other.size(), other.dtype)"}}}
//
// Names in a formula are bound by name:
//   arguments of the operator   as its schema calls them (self, weight, dim, ...)
//   grad                        gradient of the (first) output
//   grads                       where the output is Tensor[]: List[Optional[Tensor]], None =
//                               undefined
//   grad1, grad2, ...           Optional[Tensor], gradients of further outputs
//   result, result1, ...        outputs of the operator
//   extras                      further values that `forward` returns, by their names in `extras`
//   needs_<argument>            bool, known when the graph is built: is this gradient asked for (in
//                               `forward`, too)
// `torch.` is the aten namespace, `recompute.` this project's operators
// (rules/kernels/operators.cpp).
//
// A formula is an expression, or the body of a function (then it contains "return"). One formula
// may give several gradients, separated by commas in `inputs`: it then returns that many tensors,
// None not among them (what `needs_` says is not asked for may be anything).
//
// Formulas stand in the order in which they run: gradients of weights before those of data, so that
// what only the former need is free earlier.
//
// Only metadata of a value (size, dtype, dim) may be used freely: differentiate() moves such reads
// into the forward, so that they capture an int list and not the tensor. Where an operator wants a
// tensor of which it reads only metadata, layout_of("self") gives it one.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// A formula as a graph; `parameters[i]` names what the graph's i-th input is bound to.
struct CompiledFormula {
  std::vector<std::string> parameters;
  std::shared_ptr<torch::jit::Graph> graph;
  // It fills lists or tensors that it made itself: its nodes stay together, as one operator.
  bool is_one_operator = false;
};

struct GradientFormula {
  std::string inputs;  // "self" or "input, weight, bias"
  std::string body;
  std::shared_ptr<const CompiledFormula> compiled = nullptr;  // of a user's rule, which has no body
};

struct Rule {
  std::string op;       // schema name with overload: "aten::mul.Tensor"
  std::string forward;  // returns the outputs, then the extras; empty: the operator itself
  std::vector<std::string> extras;  // what `forward` returns beyond the operator's own outputs
  std::vector<GradientFormula> gradients;
  // Of a user's rule (rules/user_rules.h): `forward`, and whether nothing is known of what
  // the formulas return, so that it has to be looked at when they run.
  std::shared_ptr<const CompiledFormula> given_forward = nullptr;
  bool is_users = false;

  bool has_forward() const { return !forward.empty() || given_forward != nullptr; }
};

// The rule for the node's operator, or nullptr. A user's comes before ours.
const Rule* find_rule(const torch::jit::Node* node);

// The operator has a rule or a replay of ours.
bool has_rule_of_ours(const std::string& op);

// Formulas of `rule` for `node`'s schema, compiled at their first use. Thread-safe. Throws
// std::logic_error naming the rule where TorchScript does not accept it.
const CompiledFormula& compiled_gradient(const Rule& rule, size_t index,
                                         const torch::jit::Node* node);
const CompiledFormula& compiled_forward(const Rule& rule, const torch::jit::Node* node);

// TorchScript for a tensor laid out as `argument` is, without its elements and without its memory
// (rules/kernels/stand_in.h). Only for operators that read no element of it.
std::string layout_of(const std::string& argument);

// How to compute the node again where that must differ from computing it first (batch norm must not
// update its running statistics twice), as a formula over the node's arguments; nullptr: the same
// way.
const CompiledFormula* compiled_replay(const torch::jit::Node* node);

// A cheaper way to compute outputs of a node again, from others that were kept.
struct Replay {
  // Over the node's arguments and, as result, result1, ..., its kept outputs.
  CompiledFormula formula;
  std::vector<size_t> reads_outputs;  // indices of the outputs that it reads, ascending
  std::vector<size_t> gives_outputs;  // of those that it returns, in this order
};

// The replay for `node`, bits equal to the first run; nullptr where there is none, or where an
// argument on which it depends (is this training?) is not a constant. Thread-safe.
const Replay* find_replay(const torch::jit::Node* node);

// Splits "input, weight, bias" into names.
std::vector<std::string> split_names(const std::string& names);

// Every rule, for tests and reports.
const std::vector<Rule>& all_rules();

// One function per operator family, each in the file of that name.
std::vector<Rule> elementwise_rules();
std::vector<Rule> matrix_rules();
std::vector<Rule> convolution_rules();
std::vector<Rule> normalization_rules();
std::vector<Rule> activation_rules();
std::vector<Rule> softmax_rules();
std::vector<Rule> dropout_rules();
std::vector<Rule> embedding_rules();
std::vector<Rule> pooling_rules();
std::vector<Rule> reduction_rules();
std::vector<Rule> shape_rules();
std::vector<Rule> indexing_rules();
std::vector<Rule> loss_rules();
std::vector<Rule> attention_rules();

}  // namespace aten_recompute
