#include "runtime/program.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <unordered_map>
#include <unordered_set>

#include "ir/memory_reuse.h"
#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "runtime/arena/step_arena.h"
#include "runtime/faster_operator.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;
namespace prim = c10::prim;

// Returns a graph that contains a copy of `node` only. Its inputs are the node's free values.
std::shared_ptr<Graph> outline(Node* node, const std::vector<Value*>& inputs) {
  auto graph = std::make_shared<Graph>();
  std::unordered_map<Value*, Value*> inner;
  for (auto* value : inputs)
    inner[value] = graph->addInput()->setType(value->type());
  auto* copy = graph->insertNode(graph->createClone(node, [&](Value* v) { return inner.at(v); }));
  for (auto* output : copy->outputs())
    graph->registerOutput(output);
  return graph;
}

void construct_list(Stack& stack, const c10::TypePtr& element_type, size_t count) {
  c10::impl::GenericList list(element_type);
  list.reserve(count);
  for (size_t i = stack.size() - count; i < stack.size(); ++i)
    list.push_back(std::move(stack[i]));
  torch::jit::drop(stack, count);
  stack.emplace_back(std::move(list));
}

void unpack_list(Stack& stack, size_t count) {
  auto list = torch::jit::pop(stack).toList();
  TORCH_CHECK(list.size() == count, "Expected ", count, " elements in a list but found ",
              list.size());
  for (size_t i = 0; i < count; ++i)
    stack.emplace_back(list.get(i));
}

// Returns a function that runs the node, or nullptr if LibTorch's interpreter has to run it.
std::function<void(Stack&)> operation_of(Node* node) {
  if (node->kind() == prim::ListConstruct) {
    auto element_type = node->output()->type()->expect<c10::ListType>()->getElementType();
    return [element_type, count = node->inputs().size()](Stack& stack) {
      construct_list(stack, element_type, count);
    };
  }
  if (node->kind() == prim::ListUnpack)
    return [count = node->outputs().size()](Stack& stack) { unpack_list(stack, count); };
  // These operators are only placeholders; the interpreter implements warnings and exceptions.
  if (!node->blocks().empty() || node->maybeOperator() == nullptr ||
      node->kind() == c10::aten::warn || node->kind() == prim::RaiseException) {
    return nullptr;
  }
  auto operation = node->getOperation();
  // What writes to an argument has to count that in the argument's version, as ATen's operator
  // does.
  if (!mutates_an_argument(node)) {
    if (auto faster = faster_operation(qualified_operator_name(node), operation))
      return faster;
  }
  // Operators that are created for a node know its inputs. Other operators with variable arguments
  // take the number of arguments from the stack.
  if (node->getOperator().schema().is_vararg() && node->getOperator().hasOperation()) {
    return [operation, count = static_cast<int64_t>(node->inputs().size())](Stack& stack) mutable {
      torch::jit::push(stack, count);
      operation(stack);
    };
  }
  return [operation](Stack& stack) mutable { operation(stack); };
}

// Returns a function that runs the outlined node on LibTorch's interpreter.
std::function<void(Stack&)> interpreted(Node* node, const std::vector<Value*>& inputs) {
  auto code = std::make_shared<torch::jit::Code>(outline(node, inputs), "aten_recompute");
  return [code, count = inputs.size()](Stack& stack) {
    Stack inner(std::make_move_iterator(stack.end() - static_cast<std::ptrdiff_t>(count)),
                std::make_move_iterator(stack.end()));
    torch::jit::drop(stack, count);
    torch::jit::InterpreterState(*code).run(inner);
    for (auto& value : inner)
      stack.push_back(std::move(value));
  };
}

// Appends sizes in the same order as a profile records them (passes/profile/observed_forward.h).
void append_sizes(const c10::IValue& value, Program::DataSizes& sizes) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    sizes.push_back(tensor.defined() ? tensor.sizes().vec() : std::vector<int64_t>{});
  } else if (value.isInt()) {
    sizes.push_back({value.toInt()});
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const auto& element : value.toListRef())
      append_sizes(element, sizes);
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements())
      append_sizes(element, sizes);
  }
}

// While views are not tracked, in-place operators do not bump version counters either. This guard
// lets them, so that ordinary autograd around the region notices the change.
class AllowVersionCounting {
 public:
  AllowVersionCounting()
      : excluded_(c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView)) {
    c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView, false);
  }
  ~AllowVersionCounting() {
    c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView, excluded_);
  }
  AllowVersionCounting(const AllowVersionCounting&) = delete;
  AllowVersionCounting& operator=(const AllowVersionCounting&) = delete;

 private:
  bool excluded_;
};

// Shows a profiler to which layer operators belong, and which of them are recomputed.
class ProfilerRange {
 public:
  ProfilerRange() : is_on_(at::hasCallbacks()) {}

  void enter(const Node* node) {
    if (!is_on_)
      return;
    std::string name = "aten_recompute";
    if (node->hasAttribute(symbols::kRecomputed))
      name += ": recompute";
    else if (node->hasAttribute(symbols::kBackwardOf))
      name += ": backward";
    else
      name += ": forward";
    if (node->hasAttribute(symbols::kModulePath))
      name += " of " + node->s(symbols::kModulePath);
    if (name == name_)
      return;
    range_.reset();
    name_ = std::move(name);
    range_ = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
    if (range_->isActive())
      range_->before(name_);
  }

 private:
  bool is_on_;
  std::string name_;
  std::unique_ptr<at::RecordFunction> range_;
};

// Returns the instruction for a node, without its outputs. `place` has the operands of the values
// made so far, `own_memory` the values among them that lie in memory of the program.
Program::Instruction make_instruction(Node* node,
                                      const std::unordered_map<Value*, Program::Operand>& place,
                                      const OwnMemory& own_memory) {
  Program::Instruction instruction;
  instruction.node = node;
  std::vector<Value*> inputs(node->inputs().begin(), node->inputs().end());
  instruction.run = operation_of(node);
  if (!instruction.run) {
    inputs = free_values(node);
    instruction.run = interpreted(node, inputs);
  }
  instruction.mutates = mutates_an_argument(node);
  if (node->hasAttribute(symbols::kSkipIfUndefined))
    instruction.skip_if_undefined = node->i(symbols::kSkipIfUndefined);
  if (node->hasAttribute(symbols::kDataSizes))
    instruction.data_sizes = node->i(symbols::kDataSizes);
  for (auto& form : in_place_forms(node)) {
    if (own_memory.contains(node->input(form.operand)))
      instruction.in_place.push_back(std::move(form));
  }
  for (auto* input : inputs)
    instruction.operands.push_back(place.at(input));
  return instruction;
}

// Sets `last_use` on the last read of each register, so that it moves the value. Returns for each
// register whether anything reads it.
std::vector<bool> mark_last_uses(size_t num_registers,
                                 std::vector<Program::Instruction>& instructions,
                                 std::vector<Program::Operand>& outputs) {
  std::vector<bool> read_later(num_registers, false);
  const auto read = [&](Program::Operand& operand) {
    if (operand.is_constant)
      return;
    operand.last_use = !read_later[operand.index];
    read_later[operand.index] = true;
  };
  // Backwards, and the outputs are read after all instructions.
  for (auto it = outputs.rbegin(); it != outputs.rend(); ++it)
    read(*it);
  for (auto it = instructions.rbegin(); it != instructions.rend(); ++it) {
    for (auto op = it->operands.rbegin(); op != it->operands.rend(); ++op)
      read(*op);
  }
  return read_later;
}

void release_dying_operands(const Program::Instruction& instruction,
                            Program::Registers& registers) {
  for (const auto& operand : instruction.operands) {
    if (operand.last_use)
      registers[operand.index] = c10::IValue();
  }
}

// In programs that are not planned, tensors with fewer elements are not overwritten.
constexpr int64_t kLeastOverwritten = int64_t{16} * 1024;

bool has_fewer_elements(const c10::IValue& value, int64_t count) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().numel() < count;
}

// Returns the form that overwrites an operand on top of the stack, or nullptr where none may. An
// operand with fewer elements than `least_elements` is not overwritten.
const InPlaceForm* choose_in_place_form(const Program::Instruction& instruction, const Stack& stack,
                                        int64_t least_elements) {
  const auto operands =
      c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - instruction.operands.size());
  for (const auto& form : instruction.in_place) {
    if (instruction.operands[form.operand].last_use &&
        !has_fewer_elements(operands[form.operand], least_elements) &&
        may_overwrite(form, operands))
      return &form;
  }
  return nullptr;
}

// Runs the instruction, or `in_place` instead where that is given.
void execute(const Program::Instruction& instruction, const InPlaceForm* in_place, Stack& stack) {
  try {
    if (in_place != nullptr) {
      in_place->run(stack);
    } else if (instruction.mutates) {
      AllowVersionCounting guard;
      instruction.run(stack);
    } else {
      instruction.run(stack);
    }
  } catch (c10::Error& error) {
    error.add_context("in " + description_of(instruction.node));
    throw;
  }
}

}  // namespace

std::string description_of(const Node* node) {
  std::string text = node->hasAttribute(symbols::kBackwardOf)
                         ? "the backward of " + node->s(symbols::kBackwardOf)
                         : qualified_operator_name(node);
  if (node->hasAttribute(symbols::kRecomputed))
    text += ", computed again for the backward";
  std::string where;
  if (node->hasAttribute(symbols::kModulePath))
    where = node->s(symbols::kModulePath);
  if (const auto line = location_of(node); !line.empty())
    where += (where.empty() ? "" : ", ") + line;
  return where.empty() ? text : text + " (" + where + ")";
}

Program::Program(std::shared_ptr<Graph> graph, bool is_planned)
    : graph_(std::move(graph)), least_overwritten_elements_(is_planned ? 0 : kLeastOverwritten) {
  std::unordered_map<Value*, Operand> place;
  std::unordered_map<Value*, size_t> ready;
  OwnMemory own_memory;
  auto new_register = [&](Value* value, size_t ready_after) {
    Operand operand{static_cast<int32_t>(num_registers_++), false, false};
    place[value] = operand;
    ready[value] = ready_after;
    return operand.index;
  };
  for (auto* input : graph_->inputs())
    new_register(input, 0);

  for (auto* node : graph_->nodes()) {
    if (node->kind() == prim::Constant) {
      place[node->output()] = {static_cast<int32_t>(constants_.size()), true, false};
      constants_.push_back(torch::jit::toIValue(node->output()).value());
      continue;
    }
    auto instruction = make_instruction(node, place, own_memory);
    own_memory.add_outputs_of(node);
    for (auto* output : node->outputs()) {
      const auto index = new_register(output, instructions_.size() + 1);
      instruction.outputs.push_back(output->hasUses() ? index : -1);
    }
    instructions_.push_back(std::move(instruction));
  }
  for (auto* output : graph_->outputs()) {
    outputs_.push_back(place.at(output));
    output_ready_.push_back(outputs_.back().is_constant ? 0 : ready.at(output));
  }

  const auto is_read = mark_last_uses(num_registers_, instructions_, outputs_);
  for (size_t i = 0; i < graph_->inputs().size(); ++i) {
    if (!is_read[i])
      unused_inputs_.push_back(static_cast<int32_t>(i));
  }
}

Program::Registers Program::start(std::vector<c10::IValue> inputs) const {
  TORCH_INTERNAL_ASSERT(inputs.size() == graph_->inputs().size());
  inputs.resize(num_registers_);
  for (auto index : unused_inputs_)
    inputs[index] = c10::IValue();
  return inputs;
}

bool Program::is_undefined(const Instruction& instruction, const Registers& registers) {
  if (instruction.skip_if_undefined < 0)
    return false;
  const auto& operand = instruction.operands[static_cast<size_t>(instruction.skip_if_undefined)];
  return !operand.is_constant && registers[operand.index].isNone();
}

void Program::run(Registers& registers, size_t begin, size_t end, const std::vector<bool>* skip,
                  const Observer* observer, DataSizes* data_sizes) const {
  Stack stack;
  ProfilerRange range;
  auto* const scope = AllocationScope::of(this);
  for (size_t i = begin; i < end; ++i) {
    const auto& instruction = instructions_[i];
    range.enter(instruction.node);
    if (scope != nullptr)
      scope->enter(i);
    if ((skip != nullptr && (*skip)[i]) || is_undefined(instruction, registers)) {
      // Outputs of a skipped instruction are None, because their registers are still empty.
      release_dying_operands(instruction, registers);
      continue;
    }
    for (const auto& operand : instruction.operands) {
      if (operand.is_constant)
        stack.push_back(constants_[operand.index]);
      else if (operand.last_use && observer == nullptr)
        stack.push_back(std::move(registers[operand.index]));
      else
        stack.push_back(registers[operand.index]);
    }
    execute(instruction,
            observer == nullptr
                ? choose_in_place_form(instruction, stack, least_overwritten_elements_)
                : nullptr,
            stack);
    const size_t count = instruction.outputs.size();
    if (data_sizes != nullptr && instruction.data_sizes >= 0) {
      data_sizes->resize(static_cast<size_t>(instruction.data_sizes));
      for (size_t k = 0; k < count; ++k)
        append_sizes(stack[stack.size() - count + k], *data_sizes);
    }
    for (size_t k = 0; k < count; ++k) {
      const auto index = instruction.outputs[k];
      if (index >= 0)
        registers[index] = std::move(stack[stack.size() - count + k]);
    }
    torch::jit::drop(stack, count);
    if (observer != nullptr) {
      (*observer)(i, registers);
      release_dying_operands(instruction, registers);
    }
  }
}

c10::IValue Program::take_output(Registers& registers, size_t i) const {
  const auto& output = outputs_[i];
  if (output.is_constant)
    return constants_[output.index];
  if (output.last_use)
    return std::move(registers[output.index]);
  return registers[output.index];
}

}  // namespace aten_recompute
