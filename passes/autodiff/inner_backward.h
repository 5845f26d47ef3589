// Gradients that the method asks for, as a backward within the region's forward.
#pragma once

#include "ir/joint_graph.h"

namespace aten_recompute {

// A potential in evaluation computes an energy, and forces as its gradient; nothing is trained. The
// forces are then the backward for which values are kept or computed again, though they run in the
// region's forward:
//
//   energy = ...                         energy = ...
//   forces = ...            ==>          aten_recompute::backward_start()
//   aten_recompute::backward_start()     forces = ...
//
// Moves backward_start, if nothing of the region has a gradient beyond that. In training there is a
// loss after the forces, and backward_start stays where it is: JointGraph::inner_backward is set
// instead. So it is with `may_serve_forward` where a method asks for another gradient later, of
// something that it computes after the first, as a sum of several potentials does: behind
// backward_start, that would be no forward, whose values may be dropped. end_inner_backward() moves
// backward_start back, before the graph is taken apart.
void begin_inner_backward(JointGraph& joint, bool may_serve_forward);
void end_inner_backward(JointGraph& joint);

}  // namespace aten_recompute
