// How nodes are named in messages and tables.
#pragma once

#include <string>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Returns the operator's name with its overload, e.g. "aten::mul.Tensor" or "aten::relu", or the
// name of the node's kind if it has no schema.
std::string qualified_operator_name(const torch::jit::Node* node);

// Returns the line that the node was scripted from, e.g. "model.py:12", or "" if it is not known.
std::string location_of(const torch::jit::Node* node);

}  // namespace aten_recompute
