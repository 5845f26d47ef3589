// Runs an `if` that data decide as one operator of a path.
#pragma once

namespace aten_recompute {

// Registers aten_recompute::branch. The node's attr::Subgraph takes the operands and gives the
// results; it contains the `if` with both of its blocks and has no effects
// (passes/frontend/path/keep_branch.h). A result that shares memory with an operand or with another
// result is copied, because plans assume that each result is a tensor of its own. A tensor that the
// block which ran does not set (it leaves a loop, and the code after that is not to run) is
// undefined; the path then checks another result before it reads this one. Throws what the
// subgraph's operators throw.
void register_branch_operator();

}  // namespace aten_recompute
