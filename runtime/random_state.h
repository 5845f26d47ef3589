// Runs a random operator again with the numbers that it drew the first time.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace aten_recompute {

// Registers two operators. aten_recompute::random_state(inputs...) -> state records the state of
// the generators that an operator on these inputs draws from. aten_recompute::replay_random(state,
// inputs...) runs the operator in attr::Subgraph from that state and then restores the generators.
void register_random_operators();

// Returns the size in bytes of what random_state() records for an operator on these inputs. It is 0
// if they are on an accelerator, because states are in main memory and plans count the memory of
// the accelerator.
int64_t random_state_bytes(c10::ArrayRef<c10::IValue> inputs);

// The state of the generators that operators on `inputs` draw from, for running such operators
// again. It is not stored in tensors, because plans would count those.
class RandomStates {
 public:
  RandomStates() = default;
  explicit RandomStates(c10::ArrayRef<c10::IValue> inputs);
  // Sets the generators to this state.
  void set() const;

 private:
  std::vector<at::Generator> generators_;
  std::vector<std::vector<uint8_t>> states_;
};

// Restores the generators that operators on `inputs` draw from when it goes out of scope. What
// another thread draws meanwhile is undone, too, so where nothing is drawn, it does nothing.
class RestoreGenerators {
 public:
  explicit RestoreGenerators(c10::ArrayRef<c10::IValue> inputs, bool draws_numbers = true);
  ~RestoreGenerators();
  RestoreGenerators(const RestoreGenerators&) = delete;
  RestoreGenerators& operator=(const RestoreGenerators&) = delete;

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

}  // namespace aten_recompute
