#include "passes/profile/profile.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/jit_log.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_set>

#include "ir/data_dependence.h"
#include "ir/memory_reuse.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/profile/flops.h"
#include "passes/profile/node_classes.h"
#include "passes/profile/observed_forward.h"
#include "runtime/autograd_modes.h"
#include "runtime/in_place.h"
#include "runtime/program.h"
#include "runtime/random_state.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;
using Clock = std::chrono::steady_clock;

// Traced modules compute with sizes in tensors of one number, which later sizes depend on. Such
// tensors are kept with what they hold, and the operators on them run for real.
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

class Profiler {
 public:
  Profiler(const JointGraph& joint, const std::vector<IValue>& inputs, CostModel cost_model,
           const SeenInCalls& seen)
      : joint_(joint), inputs_(inputs), cost_model_(cost_model), seen_(seen) {
    for (const auto& input : inputs) {
      for_each_tensor(input, [&](const at::Tensor& tensor) {
        if (tensor.is_meta())
          cost_model_ = CostModel::kFlops;
      });
    }
    build_program();
  }

  Profile run() {
    const auto start = Clock::now();
    const RestoreGenerators restore(inputs_);
    const WithoutAutograd guard;
    NodeClasses classes(*program_, nodes_, inputs_, cost_model_, storages_);
    classes_ = &classes;
    ObservedForward forward(*program_, nodes_, num_forward_, inputs_, classes);
    forward_ = &forward;
    registers_.resize(program_->num_registers());
    for (size_t i = 0; i < joint_.num_inputs; ++i) {
      registers_[i] = inputs_[i];
      for_each_tensor(inputs_[i], [&](const at::Tensor& tensor) {
        check_is_plain_tensor(tensor, joint_.graph->param_node());
        storages_.index_of(tensor, /*callers=*/true);
      });
      note(joint_.graph->inputs()[i], registers_[i]);
      size_t first = 0;
      while (first < i && !(inputs_[i].isTensor() && inputs_[first].isTensor() &&
                            inputs_[i].toTensor().is_same(inputs_[first].toTensor()))) {
        ++first;
      }
      profile_.same_as.push_back(first);
    }
    const auto& instructions = program_->instructions();
    for (size_t i = 0; i < instructions.size(); ++i) {
      if (i == num_forward_)
        make_incoming_gradients();
      run_instruction(i);
    }
    if (instructions.size() == num_forward_)
      make_incoming_gradients();
    profile_.num_classes = classes.size();
    profile_.storage_bytes = std::move(storages_.bytes());
    profile_.storage_is_callers = std::move(storages_.are_callers());
    profile_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(profile_);
  }

 private:
  // A Program of the joint graph, without the marker between its halves.
  void build_program() {
    auto graph = std::make_shared<Graph>();
    std::unordered_map<Value*, Value*> copies;
    for (auto* input : joint_.graph->inputs())
      copies[input] = graph->addInput()->setType(input->type());
    bool backward = false;
    for (auto* node : joint_.graph->nodes()) {
      if (node == joint_.backward_start) {
        backward = true;
        continue;
      }
      auto* copy =
          graph->insertNode(graph->createClone(node, [&](Value* v) { return copies.at(v); }));
      for (size_t i = 0; i < node->outputs().size(); ++i)
        copies[node->output(i)] = copy->output(i);
      if (node->kind() == c10::prim::Constant)
        continue;
      nodes_.push_back(node);
      num_forward_ += backward ? 0 : 1;
    }
    for (auto* output : joint_.graph->outputs())
      graph->registerOutput(copies.at(output));
    // An output that nobody reads has no register; here every output is looked at.
    for (auto* node : graph->nodes()) {
      if (node->kind() == c10::prim::Constant)
        continue;
      for (auto* output : node->outputs()) {
        if (!output->hasUses())
          graph->registerOutput(output);
      }
    }
    program_ = std::make_unique<Program>(graph);
  }

  void make_incoming_gradients() {
    for (size_t k = 0; k < joint_.vjp_outputs.size(); ++k) {
      auto* output = joint_.graph->outputs()[joint_.vjp_outputs[k]];
      const auto& value = value_of_.at(output);
      TORCH_CHECK_NOT_IMPLEMENTED(value.isTensor() && value.toTensor().defined(),
                                  "aten_recompute: an output that requires grad is no tensor");
      const auto& tensor = value.toTensor();
      const auto layout = layout_of_gradient(tensor, k);
      auto gradient =
          tensor_on(tensor.options().device(storages_.device_of(tensor)),
                    storage_without_memory(layout.bytes), tensor.sizes(), layout.strides, 0);
      storages_.index_of(gradient, false, storages_.device_of(tensor));
      const auto index = joint_.num_inputs + k;
      registers_[index] = gradient;
      note(joint_.graph->inputs()[index], registers_[index]);
    }
  }

  struct Layout {
    std::vector<int64_t> strides;
    int64_t bytes = 0;
  };

  // Dense, but for dimensions that are expanded.
  Layout layout_of_gradient(const at::Tensor& output, size_t k) const {
    auto sizes = output.sizes().vec();
    const auto expanded = k < seen_.expanded.size() ? seen_.expanded[k] : std::vector<bool>{};
    for (size_t i = 0; i < std::min(sizes.size(), expanded.size()); ++i)
      sizes[i] = expanded[i] ? 1 : sizes[i];
    Layout layout;
    layout.strides = at::infer_dense_strides(sizes, output.strides());
    for (size_t i = 0; i < std::min(sizes.size(), expanded.size()); ++i)
      layout.strides[i] = expanded[i] ? 0 : layout.strides[i];
    layout.bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(output.element_size());
    return layout;
  }

  void note(Value* value, const IValue& content) {
    value_of_[value] = content;
    if (!contains_tensor(*value->type()))
      return;
    std::vector<int32_t> storages;
    auto& bytes = profile_.tensor_bytes[value->unique()];
    for_each_tensor(content, [&](const at::Tensor& tensor) {
      bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
      const auto storage = storages_.index_of(tensor);
      if (std::find(storages.begin(), storages.end(), storage) == storages.end())
        storages.push_back(storage);
    });
    if (content.isCapsule())
      storages = opaque(content).storages;
    profile_.storages[value->unique()] = std::move(storages);
  }

  void note_overwritable_operands(const Node* node, const std::vector<IValue>& operands) {
    const auto* form = overwriting_form(node);
    if (form == nullptr)
      return;
    std::vector<OperandLayout> layouts;
    for (const auto& operand : operands) {
      const bool is_tensor = operand.isTensor() && operand.toTensor().defined();
      layouts.push_back(is_tensor
                            ? layout_of(operand.toTensor(), storages_.device_of(operand.toTensor()))
                            : layout_of(operand));
    }
    auto& allowed = profile_.overwritable[node];
    for (const auto operand : overwritable_operands(node)) {
      if (layouts_allow_overwriting(form->condition, layouts, operand))
        allowed.push_back(operand);
    }
  }

  // ---- one instruction ----

  void run_instruction(size_t index) {
    const auto& instruction = program_->instructions()[index];
    auto* node = nodes_[index];
    std::vector<IValue> operands;
    bool tensors = false;
    for (const auto& operand : instruction.operands) {
      operands.push_back(operand.is_constant ? program_->constant(operand.index)
                                             : registers_[operand.index]);
      tensors = tensors || has_tensor(operands.back());
    }
    note_overwritable_operands(node, operands);
    bool makes_tensors = false;
    for (auto* output : node->outputs())
      makes_tensors = makes_tensors || contains_tensor(*output->type());

    const bool on_fakes =
        has_fact(node, Fact::kKnownFromMetadata) || (is_pure_view(node) && views_work_on(operands));
    if (on_fakes || (!tensors && !makes_tensors) || computes_with_numbers(node, operands)) {
      Stack stack = operands;
      instruction.run(stack);
      profile_.nodes[node] = {};
      finish(index, std::move(stack));
      return;
    }
    auto outcome = run_somehow(index, operands);
    profile_.nodes[node] = has_fact(node, Fact::kKnownFromRealTensor) ? NodeCost{} : outcome.cost;
    finish(index, std::move(outcome.results));
  }

  NodeClasses::Outcome run_somehow(size_t index, const std::vector<IValue>& operands) {
    const bool is_forward = index < num_forward_;
    if (is_forward && depends_on_data(nodes_[index], operands))
      return run_observed(index, operands);
    try {
      return classes_->run(index, operands);
    } catch (const std::exception& error) {
      GRAPH_DEBUG("not profiled on zeros: ", *nodes_[index], error.what());
      if (is_forward)
        return run_observed(index, operands);
      return classes_->run_as(price(index, operands, error.what()), index, operands);
    }
  }

  // As the call's own inputs have it.
  NodeClasses::Outcome run_observed(size_t index, const std::vector<IValue>& operands) {
    auto node_class = forward_->at(index);
    const auto first = profile_.data_sizes.size();
    note_data_sizes(node_class, profile_.data_sizes, seen_.data_sizes);
    if (profile_.data_sizes.size() > first)
      nodes_[index]->i_(symbols::kDataSizes, static_cast<int64_t>(first));
    return classes_->run_as(node_class, index, operands);
  }

  NodeClass price(size_t index, const std::vector<IValue>& operands, const std::string& why) {
    try {
      return nodes_[index]->kind() == symbols::kTapeBackward ? price_tape(operands)
                                                             : classes_->price(index, operands);
    } catch (const std::exception&) {
      throw NotProfiled(why, /*inputs_are_to_blame=*/false);
    }
  }

  // A tape gives gradients as large as the operands that it was made of.
  NodeClass price_tape(const std::vector<IValue>& operands) {
    const auto& recipe = opaque(operands.at(0));
    const auto& requires_grad = nodes_[recipe.instruction]->is(symbols::kRequiresGrad);
    NodeClass node_class;
    double moved = 0.0;
    for (size_t i = 0; i < requires_grad.size(); ++i) {
      if (requires_grad[i] == 0)
        continue;
      Result result;
      const auto& operand = recipe.operands[i];
      result.kind = operand.isList() ? Result::Kind::kList : Result::Kind::kTensor;
      result.element_type = c10::TensorType::get();
      for_each_tensor(operand, [&](const at::Tensor& tensor) {
        auto gradient = gradient_like(tensor, node_class);
        moved += static_cast<double>(node_class.own_bytes.back());
        if (operand.isList())
          result.elements.push_back(std::move(gradient));
        else
          result.tensor = std::move(gradient.tensor);
      });
      node_class.results.push_back(std::move(result));
    }
    node_class.cost.seconds = model_seconds(0.0, 2 * moved);
    return node_class;
  }

  Result gradient_like(const at::Tensor& tensor, NodeClass& node_class) {
    Result result;
    result.kind = Result::Kind::kTensor;
    result.tensor.defined = true;
    result.tensor.options = tensor.options().device(storages_.device_of(tensor));
    result.tensor.sizes = tensor.sizes().vec();
    result.tensor.strides = at::infer_dense_strides(tensor.sizes(), tensor.strides());
    result.tensor.memory.own = node_class.own_bytes.size();
    node_class.own_bytes.push_back(tensor.numel() * static_cast<int64_t>(tensor.element_size()));
    node_class.own_extent.push_back(node_class.own_bytes.back());
    return result;
  }

  // A view of nothing but meta tensors and the caller's needs no memory. (Quantized and sparse ones
  // have been refused by now.)
  static bool views_work_on(const std::vector<IValue>& operands) {
    return std::none_of(operands.begin(), operands.end(), is_opaque);
  }

  void finish(size_t index, Stack&& results) {
    const auto& instruction = program_->instructions()[index];
    auto* node = nodes_[index];
    for (size_t k = 0; k < instruction.outputs.size(); ++k) {
      // Memory that came into being on the way (a constant made into a tensor) is on its own
      // device.
      for_each_tensor(results[k], [&](const at::Tensor& tensor) {
        check_is_plain_tensor(tensor, node);
        storages_.index_of(tensor, false, tensor.device());
      });
      if (instruction.outputs[k] >= 0)
        registers_[instruction.outputs[k]] = results[k];
      note(node->output(k), results[k]);
    }
  }

  const JointGraph& joint_;
  const std::vector<IValue>& inputs_;
  CostModel cost_model_;
  const SeenInCalls& seen_;
  std::unique_ptr<Program> program_;
  std::vector<Node*> nodes_;  // per instruction, in the joint graph
  size_t num_forward_ = 0;
  NodeClasses* classes_ = nullptr;
  ObservedForward* forward_ = nullptr;
  DescribedStorages storages_;

  Profile profile_;
  std::vector<IValue> registers_;
  std::unordered_map<Value*, IValue> value_of_;
};

}  // namespace

Profile profile(const JointGraph& joint, const std::vector<IValue>& inputs, CostModel cost_model,
                const SeenInCalls& seen) {
  try {
    return Profiler(joint, inputs, cost_model, seen).run();
  } catch (const NotProfiled&) {
    throw;
  } catch (const c10::Error& error) {
    throw NotProfiled(error.what_without_backtrace(), /*inputs_are_to_blame=*/false);
  } catch (const std::exception& error) {
    throw NotProfiled(error.what(), /*inputs_are_to_blame=*/false);
  }
}

}  // namespace aten_recompute
