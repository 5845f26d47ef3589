#include "runtime/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Stack;

// Returns the CPU's generator and that of the first accelerator among the inputs.
std::vector<at::Generator> generators_of(c10::ArrayRef<c10::IValue> inputs) {
  std::vector<at::Generator> generators{at::detail::getDefaultCPUGenerator()};
  for (const auto& input : inputs) {
    at::Device device = at::kCPU;
    if (input.isTensor() && input.toTensor().defined())
      device = input.toTensor().device();
    if (input.isDevice())
      device = input.toDevice();
    if (device.is_cpu() || device.is_meta())
      continue;
    generators.push_back(at::globalContext().defaultGenerator(device));
    break;
  }
  return generators;
}

std::vector<at::Tensor> states_of(std::vector<at::Generator>& generators) {
  std::vector<at::Tensor> states;
  for (auto& generator : generators) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    states.push_back(generator.get_state());
  }
  return states;
}

void set_states(std::vector<at::Generator>& generators, const std::vector<at::Tensor>& states) {
  for (size_t i = 0; i < generators.size(); ++i) {
    const std::lock_guard<std::mutex> lock(generators[i].mutex());
    generators[i].set_state(states[i]);
  }
}

void push_random_state(Stack& stack, size_t count) {
  auto generators = generators_of(c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count));
  torch::jit::drop(stack, count);
  stack.emplace_back(c10::List<at::Tensor>(states_of(generators)));
}

void replay(Stack& stack, const torch::jit::Code& code, size_t count) {
  Stack inputs(std::make_move_iterator(stack.end() - static_cast<std::ptrdiff_t>(count)),
               std::make_move_iterator(stack.end()));
  torch::jit::drop(stack, count);
  const auto states = inputs.front().toTensorVector();
  inputs.erase(inputs.begin());
  auto generators = generators_of(inputs);
  const RestoreGenerators restore(inputs);
  set_states(generators, states);
  torch::jit::InterpreterState(code).run(inputs);
  for (auto& output : inputs)
    stack.push_back(std::move(output));
}

}  // namespace

int64_t random_state_bytes(c10::ArrayRef<c10::IValue> inputs) {
  auto generators = generators_of(inputs);
  if (generators.size() > 1)
    return 0;
  return static_cast<int64_t>(states_of(generators).front().nbytes());
}

RandomStates::RandomStates(c10::ArrayRef<c10::IValue> inputs) : generators_(generators_of(inputs)) {
  for (const auto& state : states_of(generators_)) {
    const auto* bytes = state.const_data_ptr<uint8_t>();
    states_.emplace_back(bytes, bytes + state.numel());
  }
}

void RandomStates::set() const {
  std::vector<at::Tensor> states;
  for (const auto& state : states_) {
    states.push_back(at::empty({static_cast<int64_t>(state.size())}, at::kByte));
    std::copy(state.begin(), state.end(), states.back().mutable_data_ptr<uint8_t>());
  }
  auto generators = generators_;
  set_states(generators, states);
}

RestoreGenerators::RestoreGenerators(c10::ArrayRef<c10::IValue> inputs, bool draws_numbers) {
  if (!draws_numbers)
    return;
  generators_ = generators_of(inputs);
  states_ = states_of(generators_);
}

RestoreGenerators::~RestoreGenerators() {
  set_states(generators_, states_);
}

void register_random_operators() {
  using torch::jit::Node;
  using torch::jit::Operation;
  using torch::jit::Operator;
  static const torch::jit::RegisterOperators registered({
      Operator(
          symbols::kRandomState,
          [](const Node* node) -> Operation {
            return
                [count = node->inputs().size()](Stack& stack) { push_random_state(stack, count); };
          },
          c10::AliasAnalysisKind::PURE_FUNCTION),
      Operator(
          symbols::kReplayRandom,
          [](const Node* node) -> Operation {
            auto code = std::make_shared<torch::jit::Code>(node->g(c10::attr::Subgraph), "replay");
            return [code, count = node->inputs().size()](Stack& stack) {
              replay(stack, *code, count);
            };
          },
          c10::AliasAnalysisKind::PURE_FUNCTION),
  });
}

}  // namespace aten_recompute
