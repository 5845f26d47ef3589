// Runs the nodes of a method that put containers together and take them apart.
#pragma once

#include "passes/frontend/path/path_builder.h"
#include "passes/frontend/path/path_values.h"

namespace aten_recompute {

// Runs a node that makes a list, tuple, dict or object of its inputs, or that reads elements of a
// list or tuple, and sets its outputs. The graph gets an operator only for elements that need to be
// read from what the method was given, or an operator returned. Returns false, and does nothing,
// for other nodes. Throws NotRecordable for a dict with keys of another type than int, float, bool
// or str, and for a container whose content is not known or has another length than the node asks
// for.
bool run_container_node(torch::jit::Node* node, PathValues& values, PathBuilder& builder);

}  // namespace aten_recompute
