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

// A forward without a plan may need more memory than a budget allows. So only those instructions
// run that decide sizes by data, what these read, and checks of the path before them; and they run
// as far as the forward is asked about. Numbers that follow from sizes are those of the profile, so
// that what has these sizes need not run. If it is asked about another instruction, all of them
// run, from the start. It starts from the random state of the time at which this was constructed,
// works on copies of what it writes to, and releases each value after its last read. What later
// instructions read is held until then, or until it is released.
class ObservedForward {
 public:
  // All references must outlive this. `profiled`: the registers of the profile, which has come as
  // far as the forward is asked about.
  ObservedForward(const JointProgram& program, const std::vector<c10::IValue>& inputs,
                  const Program::Registers& profiled, NodeClasses& classes);

  // Has the forward compute all numbers itself, from its start on: from now on, the profile has
  // sizes of other calls.
  void compute_numbers();

  // Returns what an instruction of the forward cost and returned. Throws NotProfiled where the
  // forward raises.
  const NodeClass& at(size_t instruction);

  // Returns how many elements of a result are true. The result must be a tensor of booleans. Throws
  // as at() does.
  int64_t true_elements(size_t instruction, size_t result);

  // Returns the bytes of the values that are held for later instructions, without the inputs.
  int64_t held_bytes() const { return held_bytes_; }

  // Releases these values. An instruction that has not run yet begins at the start of the forward.
  void release_values();

 private:
  // Runs the forward up to and with this instruction, unless that has run.
  void run_up_to(size_t instruction);
  void run(size_t end);
  // Lets the next run begin at the start, with all instructions.
  void start_again();

  const JointProgram& program_;
  const std::vector<c10::IValue>& inputs_;
  const Program::Registers& profiled_;
  NodeClasses& classes_;
  const bool draws_numbers_;
  const RandomStates first_states_;
  RandomStates random_states_;  // when the last instruction had run
  std::vector<c10::IValue> registers_;
  std::vector<bool> is_profiled_;     // per register: whether it is taken from the profile
  std::vector<bool> is_needed_;       // per instruction: whether it runs
  std::vector<size_t> last_readers_;  // per register
  int64_t held_bytes_ = 0;
  bool is_released_ = false;         // the values that later instructions read
  std::vector<NodeClass> observed_;  // of the first instructions; empty where one is not needed
  std::map<std::pair<size_t, size_t>, int64_t> true_elements_;  // by instruction and result
};

// Gives the node's results the sizes that an earlier call has shown, and appends them to `sizes`.
// The place of a size in `seen` is the one that it gets in `sizes`.
void note_data_sizes(NodeClass& node_class, DataSizes& sizes, const DataSizes& seen);

}  // namespace aten_recompute
