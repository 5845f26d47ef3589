#include "passes/profile/profile.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/jit_log.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "common/log.h"
#include "common/progress.h"
#include "ir/data_dependence.h"
#include "ir/memory_reuse.h"
#include "ir/node_names.h"
#include "ir/node_place.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/profile/estimated_gradients.h"
#include "passes/profile/joint_program.h"
#include "passes/profile/known_masks.h"
#include "passes/profile/node_classes.h"
#include "passes/profile/observed_forward.h"
#include "passes/profile/run_on_meta.h"
#include "runtime/arena/scratch_memory.h"
#include "runtime/arena/system_memory.h"
#include "runtime/autograd_modes.h"
#include "runtime/in_place.h"
#include "runtime/out_of_memory.h"
#include "runtime/path_check.h"
#include "runtime/random_state.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;
using Clock = std::chrono::steady_clock;

// Traced modules compute with sizes in tensors of one number, which later sizes depend on. Such
// tensors keep their content, and the operators on them run for real.
bool computes_with_numbers(const Node* node, const std::vector<IValue>& operands) {
  if (!has_fact(node, Fact::kComputesWithSizes))
    return false;
  return std::all_of(operands.begin(), operands.end(), [](const IValue& operand) {
    if (!operand.isTensor())
      return !operand.isList() && !operand.isTuple();
    const auto& tensor = operand.toTensor();
    return tensor.defined() && tensor.dim() == 0 && tensor.is_cpu() && !tensor.requires_grad() &&
           at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  });
}

// Returns whether the node runs on described values as they are, at no cost: it computes with
// numbers, reads metadata only, or makes views.
bool runs_without_memory(const Node* node, const std::vector<IValue>& operands) {
  if (has_fact(node, Fact::kKnownFromMetadata) || computes_with_numbers(node, operands))
    return true;
  if (is_pure_view(node) && std::none_of(operands.begin(), operands.end(), is_opaque))
    return true;
  const auto outputs = node->outputs();
  return std::none_of(operands.begin(), operands.end(), has_tensor) &&
         std::none_of(outputs.begin(), outputs.end(),
                      [](const Value* output) { return contains_tensor(*output->type()); });
}

// Meta tensors cannot be timed.
CostModel effective(CostModel cost_model, const std::vector<IValue>& inputs) {
  for (const auto& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.is_meta())
        cost_model = CostModel::kFlops;
    });
  }
  return cost_model;
}

// Returns for each input the first that is the same tensor.
std::vector<size_t> first_of_same_tensor(const std::vector<IValue>& inputs) {
  std::unordered_map<const void*, size_t> first_of;
  std::vector<size_t> first;
  for (size_t i = 0; i < inputs.size(); ++i) {
    first.push_back(i);
    if (inputs[i].isTensor() && inputs[i].toTensor().defined())
      first.back() = first_of.emplace(inputs[i].toTensor().unsafeGetTensorImpl(), i).first->second;
  }
  return first;
}

// Returns the operands whose layouts allow that the node's result takes their memory.
std::vector<size_t> overwritable(const Node* node, const std::vector<IValue>& operands,
                                 DescribedStorages& storages) {
  const auto* form = overwriting_form(node);
  std::vector<OperandLayout> layouts;
  for (const auto& operand : operands) {
    const bool is_tensor = operand.isTensor() && operand.toTensor().defined();
    layouts.push_back(is_tensor
                          ? layout_of(operand.toTensor(), storages.device_of(operand.toTensor()))
                          : layout_of(operand));
  }
  std::vector<size_t> allowed;
  for (const auto operand : overwritable_operands(node)) {
    if (layouts_allow_overwriting(form->condition, layouts, operand))
      allowed.push_back(operand);
  }
  return allowed;
}

// Returns whether the node is an `if` as one operator, by itself or on a tape. Its first operand is
// the condition.
bool is_branch(const Node* node) {
  if (node->kind() == symbols::kTapeForward)
    node = *node->g(c10::attr::Subgraph)->nodes().begin();
  return node->kind() == symbols::kBranch;
}

// Returns the bytes of the storages of the operands that are not the caller's.
int64_t bytes_besides_callers(const std::vector<IValue>& operands, DescribedStorages& storages) {
  std::set<int32_t> counted;
  int64_t bytes = 0;
  for (const auto& operand : operands) {
    for_each_tensor(operand, [&](const at::Tensor& tensor) {
      const auto storage = storages.index_of(tensor);
      if (!storages.is_callers(storage) && counted.insert(storage).second)
        bytes += static_cast<int64_t>(tensor.storage().nbytes());
    });
  }
  return bytes;
}

// Where the cost and the results of an instruction come from.
class CostSource {
 public:
  CostSource(const JointProgram& program, const std::vector<IValue>& inputs,
             const Program::Registers& registers, CostModel cost_model, bool has_little_memory,
             const DataSizes& seen_sizes, std::optional<at::Device> described, ProfileLimit limit,
             DescribedStorages& storages)
      : program_(program),
        has_little_memory_(has_little_memory),
        limit_(limit),
        seen_sizes_(seen_sizes),
        is_described_(described.has_value()),
        storages_(storages),
        classes_(program, inputs, cost_model, storages, described),
        forward_(program, inputs, registers, classes_),
        masks_(program, storages, forward_) {}

  // Takes the first of these that works: a run on zeros, with masks that select as many elements as
  // those of the call; in the forward, a run on the inputs, which comes first where data decide
  // sizes; in the backward, an estimate. Throws NotProfiled. Where
  // memory runs out, it throws the operator's error, or with `has_little_memory` estimates the
  // operator.
  NodeClasses::Outcome outcome(size_t index, const std::vector<IValue>& operands) {
    if (is_described_)
      return described(index, operands);
    if (!program_.is_of_program(index))
      return run(index, operands);
    auto outcome = depends_on_data(program_.nodes[index], operands)
                       ? decided_by_data(index, operands)
                       : run(index, operands);
    masks_.note(index, operands, outcome.results);
    return outcome;
  }

  // To be called when all has run that needs nothing but the inputs: what follows it runs on zeros,
  // or is estimated.
  void end_forward() { forward_.release_values(); }

  size_t num_classes() const { return classes_.size(); }
  size_t num_too_large() const { return num_too_large_; }
  DataSizes& data_sizes() { return data_sizes_; }

 private:
  NodeClasses::Outcome run(size_t index, const std::vector<IValue>& operands) {
    const bool is_forward = program_.is_of_program(index);
    try {
      if (!is_forward && depends_on_data(program_.nodes[index], operands)) {
        if (const auto with_masks = masks_.with_real_masks(operands))
          return run_with_masks(index, *with_masks);
      }
      if (const auto too_large = estimate_if_too_large(index, operands)) {
        ++num_too_large_;
        return classes_.run_as(*too_large, index, operands);
      }
      return run_on_zeros(
          index, is_branch(program_.nodes[index]) ? with_larger_block(index, operands) : operands);
    } catch (const ScratchMemory::LimitReached&) {
      throw;
    } catch (const std::exception& error) {
      GRAPH_DEBUG("not profiled on zeros: ", *program_.nodes[index], error.what());
      if (is_out_of_memory(error)) {
        if (!has_little_memory_)
          throw;
        classes_.release_memory();
        return without_memory(index, operands);
      }
      // A gradient that the method asks for is a part of its forward, too.
      if (const auto with_masks = masks_.with_real_masks(operands))
        return run_with_masks(index, *with_masks);
      if (is_forward)
        return observed(index, operands, error.what());
      return classes_.run_as(estimate(index, operands, error.what()), index, operands);
    }
  }

  NodeClasses::Outcome run_with_masks(size_t index, const std::vector<IValue>& with_masks) {
    if (limit_.is_set())
      classes_.release_memory();  // indices that a kernel makes of a mask need much memory
    return classes_.run_apart(index, with_masks);
  }

  // What the forward shows of an operator when it runs on the inputs.
  const NodeClass& observe(size_t index) {
    if (limit_.is_set())
      classes_.release_memory();  // the values of the forward need memory, too
    return forward_.at(index);
  }

  // Its results get the sizes that other calls have shown, if they have.
  NodeClasses::Outcome decided_by_data(size_t index, const std::vector<IValue>& operands) {
    auto node_class = observe(index);
    const auto first = data_sizes_.size();
    DataSizes of_call;
    note_data_sizes(node_class, of_call, /*seen=*/{});
    note_data_sizes(node_class, data_sizes_, seen_sizes_);
    if (!std::equal(of_call.begin(), of_call.end(),
                    data_sizes_.begin() + static_cast<std::ptrdiff_t>(first)))
      forward_.compute_numbers();
    if (data_sizes_.size() > first)
      program_.nodes[index]->i_(symbols::kDataSizes, static_cast<int64_t>(first));
    return classes_.run_as(node_class, index, operands);
  }

  // For an operator of the forward that does not run on zeros. Where sizes of other calls have been
  // assumed, they may be why: then what the inputs show has other sizes than its operands.
  NodeClasses::Outcome observed(size_t index, const std::vector<IValue>& operands,
                                const char* why) {
    if (!seen_sizes_.empty() && !data_sizes_.empty())
      throw NotProfiled(why, /*inputs_are_to_blame=*/false);
    return classes_.run_as(observe(index), index, operands);
  }

  // Without a run on memory: on meta tensors only.
  NodeClasses::Outcome described(size_t index, const std::vector<IValue>& operands) {
    const auto* node = program_.nodes[index];
    try {
      if (node->kind() == symbols::kTapeBackward &&
          has_shape_function(program_.nodes[opaque(operands.at(0)).instruction]))
        return classes_.run_as(estimate(index, operands, ""), index, operands);
      if (program_.is_of_program(index) && !has_shape_function(node) &&
          depends_on_data(node, operands))
        throw NotProfiled("data decide the sizes of its results", true);
      return classes_.run(index, is_branch(node) ? with_larger_block(index, operands) : operands);
    } catch (const std::exception& error) {
      if (node->kind() == symbols::kTapeBackward)
        return classes_.run_as(estimate(index, operands, error.what()), index, operands);
      throw NotProfiled(why_not_described(node, error), /*inputs_are_to_blame=*/true);
    }
  }

  // Returns the operands of a branch with the condition for which it takes more memory: the plan
  // holds for both.
  std::vector<IValue> with_larger_block(size_t index, std::vector<IValue> operands) {
    if (!operands[0].isBool())
      return operands;
    operands[0] = false;
    const auto bytes = classes_.bytes(index, operands);
    operands[0] = true;
    if (classes_.bytes(index, operands) < bytes)
      operands[0] = false;
    return operands;
  }

  // Returns the estimate of an operator that needs more memory than it may have.
  std::optional<NodeClass> estimate_if_too_large(size_t index,
                                                 const std::vector<IValue>& operands) {
    if (!limit_.is_set() || classes_.has(index, operands))
      return std::nullopt;
    try {
      auto estimated = classes_.estimate(index, operands);
      const auto bytes = bytes_needed(estimated, operands) + forward_.held_bytes();
      if (bytes > limit_.most_bytes)
        return estimated;
      // What is kept of an earlier operator stays while this one runs.
      if (bytes > limit_.most_bytes / 2 || classes_.kept_bytes() + bytes > limit_.most_bytes)
        classes_.release_memory();
    } catch (const std::exception& error) {
      GRAPH_DEBUG("not estimated: ", *program_.nodes[index], error.what());
    }
    return std::nullopt;
  }

  // Returns the bytes of operands, results and workspace, without what is the caller's.
  int64_t bytes_needed(const NodeClass& estimated, const std::vector<IValue>& operands) {
    auto bytes = bytes_besides_callers(operands, storages_) + estimated.cost.workspace_bytes;
    for (const auto own : estimated.own_bytes)
      bytes += own;
    return bytes;
  }

  // Returns nothing where the limit stops the operator; nothing is kept of earlier ones then.
  std::optional<NodeClasses::Outcome> run_within_limit(size_t index,
                                                       const std::vector<IValue>& operands) {
    const ScratchMemory::Limit limit(limit_.most_bytes);
    try {
      return classes_.run(index, operands);
    } catch (const ScratchMemory::LimitReached&) {
      if (!limit.is_binding())
        throw;
    }
    classes_.release_memory();
    return std::nullopt;
  }

  // Runs an operator on zeros. Where the limit stops it, it is estimated with a workspace that
  // exceeds the limit. Where that fails, it runs without a limit; but slices are only tried, and
  // LimitReached is thrown.
  NodeClasses::Outcome run_on_zeros(size_t index, const std::vector<IValue>& operands) {
    if (!limit_.stops_operators || classes_.has(index, operands))
      return classes_.run(index, operands);
    const bool are_others_kept = classes_.kept_bytes() > 0;
    auto outcome = run_within_limit(index, operands);
    if (!outcome && are_others_kept)  // what is kept of earlier operators may be why
      outcome = run_within_limit(index, operands);
    if (outcome)
      return std::move(*outcome);
    std::optional<NodeClass> estimated;
    try {
      estimated = classes_.estimate(index, operands);
    } catch (const std::exception& error) {
      GRAPH_DEBUG("not estimated: ", *program_.nodes[index], error.what());
      if (program_.nodes[index]->kind() == symbols::kSliced)
        throw ScratchMemory::LimitReached();
      return classes_.run(index, operands);
    }
    const auto missing = limit_.most_bytes + 1 - bytes_needed(*estimated, operands);
    estimated->cost.workspace_bytes += std::max<int64_t>(0, missing);
    ++num_too_large_;
    return classes_.run_as(*estimated, index, operands);
  }

  // For an operator that has no memory to run in now. The step itself may have it: there the
  // operator may overwrite an operand.
  NodeClasses::Outcome without_memory(size_t index, const std::vector<IValue>& operands) {
    const auto error = std::current_exception();
    try {
      return classes_.run_as(classes_.estimate(index, operands), index, operands);
    } catch (const std::exception&) {
      std::rethrow_exception(error);
    }
  }

  // `why`: why the operator did not run on zeros.
  NodeClass estimate(size_t index, const std::vector<IValue>& operands, const std::string& why) {
    try {
      if (program_.nodes[index]->kind() != symbols::kTapeBackward)
        return classes_.estimate(index, operands);
      const auto& tape = opaque(operands.at(0));
      return estimate_tape_backward(
          tape, program_.nodes[tape.instruction]->is(symbols::kRequiresGrad), storages_);
    } catch (const std::exception&) {
      throw NotProfiled(why, /*inputs_are_to_blame=*/false);
    }
  }

  const JointProgram& program_;
  const bool has_little_memory_;
  const ProfileLimit limit_;
  const DataSizes& seen_sizes_;
  const bool is_described_;
  DescribedStorages& storages_;
  NodeClasses classes_;
  ObservedForward forward_;
  KnownMasks masks_;
  DataSizes data_sizes_;
  size_t num_too_large_ = 0;
};

// Walks the joint graph and writes down what it comes across.
class Profiler {
 public:
  Profiler(const JointGraph& joint, const JointProgram& program, Program::Registers& registers,
           std::optional<at::Device> described, DescribedStorages& storages, CostSource& costs)
      : joint_(joint),
        program_(program),
        described_(described),
        storages_(storages),
        costs_(costs),
        registers_(registers) {}

  void describe_inputs(const std::vector<IValue>& inputs) {
    for (size_t i = 0; i < joint_.num_inputs; ++i) {
      for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
        check_is_plain_tensor(tensor, joint_.graph->param_node());
        storages_.index_of(tensor, /*callers=*/true, described_);
      });
      registers_[i] = inputs[i];
      note(joint_.graph->inputs()[i], inputs[i]);
    }
    profile_.same_as = first_of_same_tensor(inputs);
  }

  void describe_incoming_gradients(const ExpandedDimensions& expanded) {
    for (size_t k = 0; k < joint_.vjp_outputs.size(); ++k) {
      const auto& output = value_of_.at(joint_.graph->outputs()[joint_.vjp_outputs[k]]);
      TORCH_CHECK_NOT_IMPLEMENTED(output.isTensor() && output.toTensor().defined(),
                                  "aten_recompute: an output that requires grad is no tensor");
      const auto device = storages_.device_of(output.toTensor());
      const auto gradient = incoming_gradient(
          output.toTensor(), device, k < expanded.size() ? expanded[k] : std::vector<bool>{});
      storages_.index_of(gradient, false, device);
      const auto index = joint_.num_inputs + k;
      registers_[index] = gradient;
      note(joint_.graph->inputs()[index], gradient);
    }
  }

  void run_instruction(size_t index) {
    auto* node = program_.nodes[index];
    const auto operands = program_.operands(index, registers_);
    if (overwriting_form(node) != nullptr)
      profile_.overwritable[node] = overwritable(node, operands, storages_);
    if (runs_without_memory(node, operands)) {
      Stack results = operands;
      program_.program.instructions()[index].run(results);
      profile_.nodes[node] = {};
      note_results(index, results);
      return;
    }
    const auto outcome = costs_.outcome(index, operands);
    profile_.nodes[node] = has_fact(node, Fact::kKnownFromRealTensor) ? NodeCost{} : outcome.cost;
    note_results(index, outcome.results);
  }

  Profile finish() {
    if (described_) {
      for (size_t i = 0; i < joint_.num_outputs; ++i)
        profile_.outputs.push_back(content_of(joint_.graph->outputs()[i]));
    }
    profile_.num_classes = costs_.num_classes();
    profile_.data_sizes = std::move(costs_.data_sizes());
    profile_.storage_bytes = std::move(storages_.bytes());
    profile_.storage_is_callers = std::move(storages_.are_callers());
    return std::move(profile_);
  }

 private:
  IValue content_of(Value* value) const {
    const auto found = value_of_.find(value);
    return found == value_of_.end() ? torch::jit::toIValue(value).value_or(IValue())
                                    : found->second;
  }

  void note(Value* value, const IValue& content) {
    value_of_[value] = content;
    if (!contains_tensor(*value->type()))
      return;
    std::vector<int32_t> storages;
    auto& bytes = profile_.tensor_bytes[value->unique()];
    auto& tensors = profile_.tensors[value->unique()];
    for_each_tensor(content, [&](const at::Tensor& tensor) {
      tensors.push_back({tensor.sizes().vec(), tensor.scalar_type()});
      bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
      const auto storage = storages_.index_of(tensor);
      if (std::find(storages.begin(), storages.end(), storage) == storages.end())
        storages.push_back(storage);
    });
    if (content.isCapsule())
      storages = opaque(content).storages;
    profile_.storages[value->unique()] = std::move(storages);
  }

  void note_results(size_t index, const Stack& results) {
    const auto& outputs = program_.program.instructions()[index].outputs;
    auto* node = program_.nodes[index];
    for (size_t k = 0; k < outputs.size(); ++k) {
      for_each_tensor(results[k], [&](const at::Tensor& tensor) {
        check_is_plain_tensor(tensor, node);
        // A storage that is new here is real memory, for example a constant made into a tensor.
        storages_.index_of(tensor, false, described_.value_or(tensor.device()));
      });
      if (outputs[k] >= 0)
        registers_[outputs[k]] = results[k];
      note(node->output(k), results[k]);
    }
  }

  const JointGraph& joint_;
  const JointProgram& program_;
  const std::optional<at::Device> described_;
  DescribedStorages& storages_;
  CostSource& costs_;

  Profile profile_;
  Program::Registers& registers_;
  std::unordered_map<Value*, IValue> value_of_;
};

// Throws the exception that is being handled as NotProfiled, unless memory has run out, or what of
// it there is for a profile. `where`:
// what it came from; `is_check`: that is an `if` that raises where the inputs are not as they
// should be.
[[noreturn]] void throw_not_profiled(const std::string& where, bool is_check = false) {
  try {
    throw;
  } catch (const NotProfiled&) {
    throw;
  } catch (const ScratchMemory::LimitReached&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error))
      throw;
  }
  try {
    throw;
  } catch (const c10::Error& error) {
    throw NotProfiled(where + error.what_without_backtrace(), /*inputs_are_to_blame=*/is_check);
  } catch (const std::exception& error) {
    throw NotProfiled(where + error.what(),
                      /*inputs_are_to_blame=*/is_check || path_left().has_value());
  }
}

Profile profile_joint_graph(const JointGraph& joint, const std::vector<IValue>& inputs,
                            CostModel cost_model, bool has_little_memory,
                            const ProfileAssumptions& seen, std::optional<at::Device> described,
                            ProfileLimit limit) {
  const auto program = make_joint_program(joint);
  const auto start = Clock::now();
  const RestoreGenerators restore(inputs, draws_random_numbers(program));
  const WithoutAutograd guard;
  DescribedStorages storages;
  Program::Registers registers(program.program.num_registers());
  CostSource costs(program, inputs, registers, effective(cost_model, inputs), has_little_memory,
                   seen.data_sizes, described, limit, storages);
  Profiler profiler(joint, program, registers, described, storages, costs);
  profiler.describe_inputs(inputs);
  Progress progress("profile");
  const auto run = [&](size_t first, size_t end) {
    for (size_t i = first; i < end; ++i) {
      if (progress.is_on()) {
        const auto layer = module_path_of(program.nodes[i]);
        progress.set(
            static_cast<double>(i) / static_cast<double>(program.nodes.size()),
            qualified_operator_name(program.nodes[i]) + (layer.empty() ? "" : " of " + layer));
      }
      try {
        profiler.run_instruction(i);
      } catch (const std::exception&) {
        const auto* node = program.nodes[i];
        throw_not_profiled(qualified_operator_name(node) + ": ", node->kind() == c10::prim::If);
      }
    }
  };
  run(0, program.num_before_loss);
  costs.end_forward();
  profiler.describe_incoming_gradients(seen.expanded);
  run(program.num_before_loss, program.nodes.size());
  auto profile = profiler.finish();
  profile.num_too_large = costs.num_too_large();
  profile.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return profile;
}

}  // namespace

Profile profile(const JointGraph& joint, const std::vector<IValue>& inputs, CostModel cost_model,
                const ProfileAssumptions& seen, std::optional<at::Device> described,
                ProfileLimit limit) {
  auto known = seen;
  bool has_little_memory = false;
  while (true) {
    try {
      auto costs = profile_joint_graph(joint, inputs, cost_model, has_little_memory, known,
                                       described, limit);
      if (has_little_memory) {
        log_warning(
            LogTopic::kProfile,
            "memory ran out while operators were measured; what they cost was computed from sizes "
            "instead, as with \"cost_model\": \"flops\"");
      }
      return costs;
    } catch (const NotProfiled& error) {
      // Sizes of other calls may not go with what this call's data decide.
      if (error.inputs_are_to_blame() || known.data_sizes.empty())
        throw;
      known.data_sizes.clear();
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error))
        throw_not_profiled("");
      if (has_little_memory)
        throw;
      ScratchMemory::release_free_blocks();
      give_back_free_heap();
      cost_model = CostModel::kFlops;
      has_little_memory = true;
    }
  }
}

}  // namespace aten_recompute
