#include "rules/user_shapes.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <mutex>
#include <unordered_map>
#include <utility>

#include "ir/node_names.h"
#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Stack;

class Functions {
 public:
  bool add(const std::string& op, std::shared_ptr<const UserFunction> function, bool replace) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& place = functions_[op];
    if (place != nullptr && !replace)
      return false;
    place = std::move(function);
    return true;
  }

  std::shared_ptr<const UserFunction> find(const Node* node) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (functions_.empty() || node->maybeSchema() == nullptr)
      return nullptr;
    const auto found = functions_.find(qualified_operator_name(node));
    return found == functions_.end() ? nullptr : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const UserFunction>> functions_;
};

Functions& shapes_of_users() {
  static Functions instance;
  return instance;
}

Functions& flops_of_users() {
  static Functions instance;
  return instance;
}

// Replaces the operands by the results that the function gives.
void run_function(const UserFunction& function, const c10::FunctionSchema& schema, Stack& stack) {
  Stack arguments;
  for (const auto& name : function.formula->parameters)
    arguments.push_back(stack.at(static_cast<size_t>(*schema.argumentIndexWithName(name))));
  torch::jit::InterpreterState(*function.code).run(arguments);
  stack = std::move(arguments);
}

}  // namespace

bool add_user_shape(const std::string& op, std::shared_ptr<const UserFunction> shape,
                    bool replace) {
  return shapes_of_users().add(op, std::move(shape), replace);
}

bool add_user_flops(const std::string& op, std::shared_ptr<const UserFunction> function,
                    bool replace) {
  return flops_of_users().add(op, std::move(function), replace);
}

ShapeFunction user_shape_function(const Node* node) {
  const auto function = shapes_of_users().find(node);
  if (function == nullptr)
    return nullptr;
  return [function, &schema = node->schema()](Stack& stack) {
    run_function(*function, schema, stack);
    return true;
  };
}

std::shared_ptr<const UserFunction> registered_flops(const Node* node) {
  return flops_of_users().find(node);
}

}  // namespace aten_recompute
