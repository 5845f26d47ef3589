#include "passes/frontend/path/path_guard.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "ir/data_dependence.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Finds what can be computed before a call: numbers from sizes and types of inputs and attributes.
class KnownBeforeCall {
 public:
  bool operator()(Value* value) {
    const auto found = known_.find(value);
    if (found != known_.end())
      return found->second;
    return known_[value] = is_known(value);
  }

 private:
  bool is_known(Value* value) {
    auto* node = value->node();
    if (node->kind() == prim::Param || node->kind() == prim::Constant ||
        node->kind() == prim::GetAttr)
      return node->kind() != prim::GetAttr || (*this)(node->input(0));
    if (!node->blocks().empty() || node->hasSideEffects() || mutates_an_argument(node) ||
        node->isNondeterministic() || (node->maybeOperator() == nullptr && !moves_values(node)))
      return false;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      auto* input = node->input(i);
      const bool is_read = contains_tensor(*input->type()) && !moves_values(node) &&
                           node->kind() != c10::aten::len && !reads_metadata_only(node, i) &&
                           !has_fact(node, Fact::kFollowsFromType);
      if (is_read || !(*this)(input))
        return false;
    }
    return moves_values(node) || !contains_tensor(*value->type());
  }

  static bool moves_values(const Node* node) { return has_fact(node, Fact::kMovesValues); }

  std::unordered_map<Value*, bool> known_;
};

// Finds what the elements of tensors decide.
class FollowsFromData {
 public:
  bool operator()(const Value* value) {
    const auto found = known_.find(value);
    if (found != known_.end())
      return found->second;
    const auto* node = value->node();
    const auto inputs = node->inputs();
    const bool follows =
        has_sizes_of_data(node) || std::any_of(inputs.begin(), inputs.end(), std::ref(*this));
    return known_[value] = follows;
  }

 private:
  std::unordered_map<const Value*, bool> known_;
};

// Copies to `to` what is needed to compute a value. `copies` has what was copied before.
Value* copy_value(Value* value, Graph& to, std::unordered_map<Value*, Value*>& copies) {
  if (const auto found = copies.find(value); found != copies.end())
    return found->second;
  auto* node = value->node();
  for (auto* input : node->inputs())
    copy_value(input, to, copies);
  auto* copy = to.appendNode(to.createClone(node, [&](Value* v) { return copies.at(v); }));
  for (size_t i = 0; i < node->outputs().size(); ++i)
    copies[node->output(i)] = copy->output(i);
  return copies.at(value);
}

// Returns the constant that the condition compares something with; None if there is none.
c10::IValue bound_of(const Value* condition) {
  const auto* node = condition->node();
  if (node->inputs().size() != 2)
    return {};
  for (const auto* operand : node->inputs()) {
    const auto constant = torch::jit::toIValue(operand);
    if (constant && (constant->isInt() || constant->isDouble() || constant->isString()))
      return *constant;
  }
  return {};
}

std::vector<Node*> checks_in(Graph& graph) {
  std::vector<Node*> checks;
  for (auto* node : graph.nodes()) {
    if (node->kind() == symbols::kCheckPath)
      checks.push_back(node);
  }
  return checks;
}

}  // namespace

PathGuard::PathGuard(const RecordedPath& path)
    : inputs_(path.inputs),
      default_dtype_(path.default_dtype),
      grad_mode_(path.grad_mode),
      changes_containers_(path.changes_containers),
      apart_(path.apart) {
  auto before = std::make_shared<Graph>();
  std::unordered_map<Value*, Value*> copies;
  for (auto* input : path.graph->inputs())
    copies[input] = before->addInput()->setType(input->type());
  KnownBeforeCall is_known;
  for (auto* check : checks_in(*path.graph)) {
    if (!is_known(check->input(0)))
      continue;
    before->registerOutput(copy_value(check->input(0), *before, copies));
    expected_.push_back(torch::jit::constant_as<bool>(check->input(1)).value());
    check->destroy();
  }
  if (!expected_.empty())
    code_ = std::make_shared<torch::jit::Code>(before, "path_guard");
}

bool PathGuard::holds(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                      const std::vector<c10::IValue>& inputs) const {
  if (c10::typeMetaToScalarType(at::get_default_dtype()) != default_dtype_)
    return false;
  if (grad_mode_ && *grad_mode_ != at::GradMode::is_enabled())
    return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs_[i].matches(inputs[i]))
      return false;
  }
  if (changes_containers_ && share_containers(inputs))
    return false;
  if (!are_apart(apart_, self, inputs))
    return false;
  if (code_ == nullptr)
    return true;
  torch::jit::Stack stack;
  stack.reserve(inputs.size() + 1);
  stack.emplace_back(self);
  stack.insert(stack.end(), inputs.begin(), inputs.end());
  torch::jit::InterpreterState(*code_).run(stack);
  return std::equal(stack.begin(), stack.end(), expected_.begin(), expected_.end(),
                    [](const auto& value, bool expected) { return value.toBool() == expected; });
}

std::string PathGuard::difference(const std::vector<c10::IValue>& inputs,
                                  const std::vector<std::string>& names) const {
  if (c10::typeMetaToScalarType(at::get_default_dtype()) != default_dtype_)
    return "the default dtype is another one";
  if (grad_mode_ && *grad_mode_ != at::GradMode::is_enabled())
    return *grad_mode_ ? "gradients are disabled" : "gradients are enabled";
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs_[i].matches(inputs[i]))
      return "input " + names.at(i) + ' ' + inputs_[i].difference(inputs[i]);
  }
  if (changes_containers_ && share_containers(inputs))
    return "two inputs share a container that the method changes";
  return "sizes, numbers or attributes answer an if or a loop differently";
}

bool ask_the_same(const PathCheck& a, const PathCheck& b) {
  return a.expected == b.expected && a.bound.tagKind() == b.bound.tagKind() && a.bound == b.bound;
}

std::vector<PathCheck> number_checks(Graph& graph) {
  std::vector<PathCheck> checks;
  FollowsFromData follows_from_data;
  for (auto* check : checks_in(graph)) {
    const auto condition = torch::jit::constant_as<bool>(check->input(0));
    const auto expected = torch::jit::constant_as<bool>(check->input(1));
    if (condition && condition == expected) {
      check->destroy();
      continue;
    }
    const torch::jit::WithInsertPoint guard(check);
    check->replaceInput(2, graph.insertConstant(static_cast<int64_t>(checks.size())));
    const bool is_of_data = follows_from_data(check->input(0));
    checks.push_back({.expected = expected.value(),
                      .bound = bound_of(check->input(0)),
                      .decision = is_of_data ? check->i(symbols::kDecides) : -1});
  }
  return checks;
}

}  // namespace aten_recompute
