#include "passes/profile/observed_forward.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/count_nonzero.h>
#include <c10/util/strides.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <exception>
#include <unordered_set>
#include <utility>

#include "ir/data_dependence.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "rules/recomputability.h"
#include "runtime/arena/scratch_memory.h"
#include "runtime/out_of_memory.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Stack;

// Returns per register of the forward: whether it has no tensors, and no elements of tensors decide
// what it has. Such numbers follow from sizes and types, which a profile knows without a run.
std::vector<bool> numbers_without_data(const JointProgram& program) {
  std::vector<bool> result(program.program.num_registers(), false);
  std::unordered_set<const torch::jit::Value*> of_data;
  for (size_t i = 0; i < program.num_before_loss; ++i) {
    const auto* node = program.nodes[i];
    const bool reads_elements =
        !has_fact(node, Fact::kKnownFromMetadata) && !has_fact(node, Fact::kKnownFromRealTensor);
    const auto operands = node->inputs();
    const bool has_data =
        !node->blocks().empty() ||
        std::any_of(operands.begin(), operands.end(), [&](const auto* operand) {
          return contains_tensor(*operand->type()) ? reads_elements : of_data.count(operand) != 0;
        });
    const auto& registers = program.program.instructions()[i].outputs;
    for (size_t k = 0; k < registers.size(); ++k) {
      const auto* output = node->output(k);
      if (contains_tensor(*output->type()))
        continue;
      if (has_data)
        of_data.insert(output);
      else if (registers[k] >= 0)
        result[registers[k]] = true;
    }
  }
  return result;
}

// Returns which instructions decide sizes by data, those whose results they need, and before them
// those that check that the call is on the path of the forward or, where one of these draws random
// numbers, those that draw others. What is in the registers `known` need not be computed or
// checked.
std::vector<bool> needed_for_data(const JointProgram& program, const std::vector<bool>& known) {
  std::vector<bool> is_needed(program.num_before_loss, false);
  std::vector<bool> is_read(program.program.num_registers(), false);
  bool has_data = false;
  bool has_random_numbers = false;
  for (size_t i = program.num_before_loss; i-- > 0;) {
    const auto& instruction = program.program.instructions()[i];
    const auto* node = program.nodes[i];
    const bool decides = program.is_of_program(i) && has_sizes_of_data(node);
    has_data = has_data || decides;
    const auto is_known = [&](const Program::Operand& operand) {
      return operand.is_constant || known[operand.index];
    };
    const bool draws = draws_random_numbers(node);
    const bool checks = node->kind() == symbols::kCheckPath && !is_known(instruction.operands[0]);
    is_needed[i] = decides || (has_data && checks) || (has_random_numbers && draws) ||
                   std::any_of(instruction.outputs.begin(), instruction.outputs.end(),
                               [&](int32_t output) { return output >= 0 && is_read[output]; });
    if (!is_needed[i])
      continue;
    has_random_numbers = has_random_numbers || draws;
    for (const auto& operand : instruction.operands) {
      if (!is_known(operand))
        is_read[operand.index] = true;
    }
  }
  return is_needed;
}

// Returns for each register the last of the needed instructions that reads it, or their number
// where none does.
std::vector<size_t> last_readers(const Program& program, const std::vector<bool>& is_needed) {
  std::vector<size_t> last(program.num_registers(), is_needed.size());
  for (size_t i = 0; i < is_needed.size(); ++i) {
    for (const auto& operand : program.instructions()[i].operands) {
      if (is_needed[i] && !operand.is_constant)
        last[operand.index] = i;
    }
  }
  return last;
}

// Returns the bytes of the storages of `values` that are not among those of `inputs`.
int64_t bytes_besides(const std::vector<IValue>& inputs, const std::vector<IValue>& values) {
  std::unordered_set<const void*> counted;
  for (const auto& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.has_storage())
        counted.insert(tensor.storage().unsafeGetStorageImpl());
    });
  }
  int64_t bytes = 0;
  for (const auto& value : values) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.has_storage() && counted.insert(tensor.storage().unsafeGetStorageImpl()).second)
        bytes += static_cast<int64_t>(tensor.storage().nbytes());
    });
  }
  return bytes;
}

IValue copy_tensor(const IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? IValue(value.toTensor().clone()) : value;
}

// Returns what `bytes` for a tensor of sizes `before` become for sizes `after`.
int64_t scaled(int64_t bytes, at::IntArrayRef before, at::IntArrayRef after) {
  const auto elements = std::max<int64_t>(1, c10::multiply_integers(before));
  return (bytes + elements - 1) / elements * c10::multiply_integers(after);
}

bool is_contiguous(const ResultTensor& tensor) {
  int64_t expected = 1;
  for (size_t dim = tensor.sizes.size(); dim-- > 0;) {
    if (tensor.sizes[dim] != 1 && tensor.strides[dim] != expected)
      return false;
    expected *= tensor.sizes[dim];
  }
  return true;
}

// Gives the tensor these sizes, unless it is a view.
void resize_to(NodeClass& node_class, ResultTensor& tensor, const std::vector<int64_t>& sizes) {
  if (tensor.memory.operand_storage >= 0 || tensor.sizes.size() != sizes.size() ||
      tensor.sizes == sizes)
    return;
  auto& bytes = node_class.own_bytes[tensor.memory.own];
  auto& extent = node_class.own_extent[tensor.memory.own];
  const auto item_bytes = static_cast<int64_t>(tensor.options.dtype().itemsize());
  extent = c10::multiply_integers(sizes) * item_bytes;
  bytes = std::max(scaled(bytes, tensor.sizes, sizes), extent);
  // Where a dimension has one element, the strides do not say in which order dimensions are.
  const auto contiguous = c10::contiguous_strides(sizes);
  if (is_contiguous(tensor))
    tensor.strides.assign(contiguous.begin(), contiguous.end());
  else
    tensor.strides = at::infer_dense_strides(sizes, tensor.strides);
  tensor.sizes = sizes;
}

void note(NodeClass& node_class, Result& result, DataSizes& sizes, const DataSizes& seen) {
  const auto place = sizes.size();
  const auto* wanted = place < seen.size() ? &seen[place] : nullptr;
  if (result.kind == Result::Kind::kTensor) {
    if (wanted != nullptr && result.tensor.defined)
      resize_to(node_class, result.tensor, *wanted);
    sizes.push_back(result.tensor.sizes);
  } else if (result.kind == Result::Kind::kPlain && result.plain.isInt()) {
    if (wanted != nullptr && wanted->size() == 1)
      result.plain = wanted->front();
    sizes.push_back({result.plain.toInt()});
  }
  for (auto& element : result.elements)
    note(node_class, element, sizes, seen);
}

}  // namespace

ObservedForward::ObservedForward(const JointProgram& program, const std::vector<IValue>& inputs,
                                 const Program::Registers& profiled, NodeClasses& classes)
    : program_(program),
      inputs_(inputs),
      profiled_(profiled),
      classes_(classes),
      draws_numbers_(draws_random_numbers(program)),
      first_states_(inputs),
      random_states_(first_states_),
      is_profiled_(numbers_without_data(program)),
      is_needed_(needed_for_data(program, is_profiled_)) {}

void ObservedForward::compute_numbers() {
  if (std::find(is_profiled_.begin(), is_profiled_.end(), true) == is_profiled_.end())
    return;
  is_profiled_.assign(is_profiled_.size(), false);
  start_again();
  is_needed_ = needed_for_data(program_, is_profiled_);
}

const NodeClass& ObservedForward::at(size_t instruction) {
  run_up_to(instruction);
  return observed_[instruction];
}

int64_t ObservedForward::true_elements(size_t instruction, size_t result) {
  run_up_to(instruction);
  return true_elements_.at({instruction, result});
}

void ObservedForward::run_up_to(size_t instruction) {
  if (!is_needed_[instruction])
    start_again();
  if (instruction < observed_.size())
    return;
  if (is_released_)
    start_again();
  try {
    run(instruction + 1);
  } catch (const ScratchMemory::LimitReached&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error))
      throw;
    throw NotProfiled(error.what(), /*inputs_are_to_blame=*/true);
  }
}

void ObservedForward::release_values() {
  is_released_ = is_released_ || !registers_.empty();
  registers_.clear();
  held_bytes_ = 0;
}

void ObservedForward::start_again() {
  is_released_ = false;
  is_needed_.assign(program_.num_before_loss, true);
  random_states_ = first_states_;
  registers_.clear();
  held_bytes_ = 0;
  observed_.clear();
}

void ObservedForward::run(size_t end) {
  const RestoreGenerators restore(inputs_, draws_numbers_);
  if (draws_numbers_)
    random_states_.set();
  if (registers_.empty()) {
    last_readers_ = last_readers(program_.program, is_needed_);
    registers_.assign(inputs_.begin(), inputs_.end());
    registers_.resize(program_.program.num_registers());
  }
  while (observed_.size() < end) {
    const auto i = observed_.size();
    const auto& instruction = program_.program.instructions()[i];
    const auto* node = program_.nodes[i];
    if (!is_needed_[i] || node->kind() == c10::aten::warn) {
      observed_.emplace_back();
      continue;
    }
    for (const auto& operand : instruction.operands) {
      if (!operand.is_constant && is_profiled_[operand.index])
        registers_[operand.index] = profiled_[operand.index];
    }
    auto operands = program_.operands(i, registers_);
    if (instruction.mutates || updates_hidden_state(node)) {
      for (auto& operand : operands)
        operand = copy_tensor(operand);
    }
    Stack results;
    observed_.push_back(classes_.observe(i, operands, results));
    for (size_t k = 0; k < results.size(); ++k) {
      if (results[k].isTensor() && results[k].toTensor().defined() &&
          results[k].toTensor().scalar_type() == at::kBool)
        true_elements_[{i, k}] = at::count_nonzero(results[k].toTensor()).item<int64_t>();
      const auto output = instruction.outputs[k];
      if (output >= 0 && last_readers_[output] < is_needed_.size())
        registers_[output] = std::move(results[k]);
    }
    for (const auto& operand : instruction.operands) {
      if (!operand.is_constant && last_readers_[operand.index] == i)
        registers_[operand.index] = IValue();
    }
  }
  if (draws_numbers_)
    random_states_ = RandomStates(inputs_);
  held_bytes_ = bytes_besides(inputs_, registers_);
}

void note_data_sizes(NodeClass& node_class, DataSizes& sizes, const DataSizes& seen) {
  for (auto& result : node_class.results)
    note(node_class, result, sizes, seen);
}

}  // namespace aten_recompute
