// Runs a region's forward on the inputs of the call and observes it: for what zeros do not tell.
#pragma once

#include <ATen/core/ivalue.h>

#include <map>
#include <utility>
#include <vector>

#include "passes/profile/joint_program.h"
#include "passes/profile/node_classes.h"
#include "passes/profile/region_profile.h"
#include "runtime/random_state.h"

namespace aten_recompute {

// The forward runs as far as it is asked about, and goes on from there when it is asked about more:
// a whole forward may need more memory than a budget allows. It starts from the random state of the
// time at which this was constructed, works on copies of what it writes to, and releases each value
// after its last read. What later instructions read is held until then, or as long as this lives.
class ObservedForward {
 public:
  // All references must outlive this.
  ObservedForward(const JointProgram& program, const std::vector<c10::IValue>& inputs,
                  NodeClasses& classes)
      : program_(program), inputs_(inputs), classes_(classes), random_states_(inputs) {}

  // Returns what an instruction of the forward cost and returned. Throws NotProfiled where the
  // forward raises.
  const NodeClass& at(size_t instruction);

  // Returns how many elements of a result are true. The result must be a tensor of booleans. Throws
  // as at() does.
  int64_t true_elements(size_t instruction, size_t result);

 private:
  // Runs the forward up to and with this instruction, unless that has run.
  void run_up_to(size_t instruction);
  void run(size_t end);

  const JointProgram& program_;
  const std::vector<c10::IValue>& inputs_;
  NodeClasses& classes_;
  RandomStates random_states_;  // when the last instruction had run
  std::vector<c10::IValue> registers_;
  std::vector<size_t> last_readers_;                            // per register
  std::vector<NodeClass> observed_;                             // of the instructions that have run
  std::map<std::pair<size_t, size_t>, int64_t> true_elements_;  // by instruction and result
};

// Gives the node's results the sizes that an earlier call has shown, and appends them to `sizes`.
// The place of a size in `seen` is the one that it gets in `sizes`.
void note_data_sizes(NodeClass& node_class, DataSizes& sizes, const DataSizes& seen);

}  // namespace aten_recompute
