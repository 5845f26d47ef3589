#include "tests/cpp/support/operator_node.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <stdexcept>
#include <vector>

#include "ir/node_names.h"
#include "ir/node_traits.h"

namespace aten_recompute::test {

using torch::jit::Graph;
using torch::jit::Value;

namespace {

// Returns the type with Tensor for each type variable, as T in List[T].
c10::TypePtr with_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::VarType)
    return c10::TensorType::get();
  if (!type->hasFreeVariables())
    return type;
  std::vector<c10::TypePtr> contained;
  for (const auto& inner : type->containedTypes())
    contained.push_back(with_tensors(inner));
  return type->withContained(contained);
}

}  // namespace

OperatorNode::OperatorNode(const std::string& name) : graph_(std::make_shared<Graph>()) {
  const auto dot = name.find('.');
  const auto kind = c10::Symbol::fromQualString(name.substr(0, dot));
  const auto overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  for (const auto& candidate : torch::jit::getAllOperatorsFor(kind)) {
    const auto& schema = candidate->schema();
    if (schema.overload_name() != overload)
      continue;
    std::vector<Value*> inputs;
    for (const auto& argument : schema.arguments())
      inputs.push_back(graph_->addInput()->setType(with_tensors(argument.type())));
    node_ = graph_->insertNode(graph_->create(kind, inputs, schema.returns().size()));
    for (size_t i = 0; i < schema.returns().size(); ++i)
      node_->output(i)->setType(with_tensors(schema.returns()[i].type()));
    if (qualified_operator_name(node_) == name)
      return;
  }
  throw std::out_of_range("no operator " + name + ", or another overload takes its arguments");
}

}  // namespace aten_recompute::test
