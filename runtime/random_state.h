// Running a random operator again with the numbers it drew the first time.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace aten_recompute {

// Registers aten_recompute::random_state(inputs...) -> state, which notes the state of the
// generators that an operator on these inputs draws from, and aten_recompute::replay_random(state,
// inputs...), which runs the operator in attr::Subgraph from that state and then puts the
// generators back.
void register_random_operators();

// Bytes of what random_state() notes for an operator on these inputs. States lie in main memory: on
// an accelerator they take nothing of what is planned there.
int64_t random_state_bytes(c10::ArrayRef<c10::IValue> inputs);

// The state of the generators that operators on `inputs` draw from, to run such operators again.
// Outside of LibTorch's allocators: states are no tensors that a plan counts.
class RandomStates {
 public:
  RandomStates() = default;
  explicit RandomStates(c10::ArrayRef<c10::IValue> inputs);
  // The generators go on from here.
  void set() const;

 private:
  std::vector<at::Generator> generators_;
  std::vector<std::vector<uint8_t>> states_;
};

// Puts the generators that operators on `inputs` draw from back when it goes out of scope.
class RestoreGenerators {
 public:
  explicit RestoreGenerators(c10::ArrayRef<c10::IValue> inputs);
  ~RestoreGenerators();
  RestoreGenerators(const RestoreGenerators&) = delete;
  RestoreGenerators& operator=(const RestoreGenerators&) = delete;

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

}  // namespace aten_recompute
