// The shapes and operation counts that the program registered
// (include/aten_recompute/register_shape.h).
#pragma once

#include <memory>
#include <string>

#include "rules/rule.h"
#include "rules/shapes.h"

namespace torch::jit {
struct Code;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

struct UserFunction {
  std::shared_ptr<const CompiledFormula> formula;
  std::shared_ptr<const torch::jit::Code> code;
};

// Register a function for an operator, given by its name with overload. Return false if there is
// one already and `replace` is false. Thread-safe.
bool add_user_shape(const std::string& op, std::shared_ptr<const UserFunction> shape, bool replace);
bool add_user_flops(const std::string& op, std::shared_ptr<const UserFunction> flops, bool replace);

// Returns the shape function of the node's operator; empty if none was registered.
ShapeFunction user_shape_function(const torch::jit::Node* node);

// Returns the count of the node's operator; nullptr if none was registered.
std::shared_ptr<const UserFunction> registered_flops(const torch::jit::Node* node);

}  // namespace aten_recompute
