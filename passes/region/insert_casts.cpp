#include "passes/region/insert_casts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "ir/functionalize.h"
#include "ir/node_names.h"
#include "ir/node_place.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/expand_gradients.h"
#include "passes/autodiff/not_differentiable.h"
#include "passes/profile/run_on_meta.h"
#include "passes/region/autocast_inputs.h"
#include "passes/region/cross_entropy_parts.h"
#include "rules/autocast_probe.h"
#include "rules/meta_mode.h"
#include "runtime/autograd_modes.h"
#include "runtime/inner_gradient.h"
#include "runtime/map_tensors.h"
#include "runtime/program.h"
#include "runtime/random_state.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

// On a node whose casts have been made, or that needs none.
const auto kHasItsCasts = c10::Symbol::attr("has_its_casts");

[[noreturn]] void refuse(const Node* node, const std::string& why) {
  throw NotDifferentiable("under autocast, " + qualified_operator_name(node) + " " + why);
}

// Operators take a number on any device, and its value may matter.
at::Tensor constant_on_meta(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() > 0 ? on_meta(tensor) : tensor;
}

// Data decide results, so that they are not known from meta tensors.
struct NeedsData : NotDifferentiable {
  using NotDifferentiable::NotDifferentiable;
};

at::Tensor copy_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.clone() : tensor;
}

// Walks the graph with meta tensors, or runs it without its effects, and inserts casts before the
// nodes that need them.
class CastInserter {
 public:
  // `checks_gradients`: refuses nodes that need casts, but those with kHasItsCasts.
  CastInserter(std::shared_ptr<Graph> graph, const std::vector<IValue>& inputs,
               const AutocastState& autocast, std::optional<c10::Device> device, bool has_data,
               bool checks_gradients)
      : graph_(std::move(graph)),
        program_(graph_->copy(), /*is_planned=*/false),
        autocast_(autocast),
        device_(device ? device->type() : device_of(inputs)),
        has_data_(has_data),
        checks_gradients_(checks_gradients),
        cached_(values_cached_by_autocast(*graph_, inputs)) {
    registers_ = program_.start(has_data_ ? inputs : on_meta(inputs));
  }

  void run() {
    std::vector<Node*> nodes;
    for (auto* node : graph_->nodes()) {
      if (node->kind() != c10::prim::Constant)
        nodes.push_back(node);
    }
    const auto& instructions = program_.instructions();
    TORCH_INTERNAL_ASSERT(nodes.size() == instructions.size());
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < nodes.size(); ++i) {
      visit(nodes[i], instructions[i]);
      for (const auto r : last_read_by(i))
        registers_[r] = IValue();
    }
  }

  // Returns WithCasts::shared, after run().
  SharedCasts shared() const {
    SharedCasts shared;
    for (size_t i = 0; i < graph_->inputs().size(); ++i) {
      const auto found = casts_.find(graph_->inputs()[i]);
      if (found != casts_.end() && has_one_block(graph_->inputs()[i], found->second.first->node()))
        shared.emplace(i, found->second.second);
    }
    return shared;
  }

 private:
  // Returns the registers that no later instruction reads.
  const std::vector<int32_t>& last_read_by(size_t instruction) {
    if (last_read_.empty()) {
      last_read_.resize(program_.instructions().size());
      std::set<int32_t> read_later;
      for (size_t i = last_read_.size(); i-- > 0;) {
        for (const auto& operand : program_.instructions()[i].operands) {
          if (!operand.is_constant && read_later.insert(operand.index).second)
            last_read_[i].push_back(operand.index);
        }
      }
    }
    return last_read_[instruction];
  }

  // Returns whether all readers of the value are in the block of the cast. split_sums() can tell
  // its gradient from those of the others then.
  static bool has_one_block(const Value* value, const Node* cast) {
    const auto& uses = value->uses();
    return std::all_of(uses.begin(), uses.end(), [&](const torch::jit::Use& use) {
      if (use.user->kind() == c10::prim::unchecked_cast)
        return has_one_block(use.user->output(), cast);
      return use.user->owningBlock() == cast->owningBlock();
    });
  }

  // Returns false for a node that is no bound of a block.
  bool visit_bound(const Node* node, const Stack& operands) {
    if (node->kind() == symbols::kEnterAutocast) {
      outer_.push_back(autocast_);
      const auto device = c10::Device(operands[0].toStringRef()).type();
      autocast_.enter(device, operands[1].toBool(), operands[2].toScalarType(),
                      operands[3].toOptional<bool>());
      return true;
    }
    if (node->kind() != symbols::kExitAutocast)
      return false;
    TORCH_INTERNAL_ASSERT(!outer_.empty());
    autocast_ = outer_.back();
    outer_.pop_back();
    if (outer_.empty() && !autocast_.is_in_block)
      casts_.clear();
    return true;
  }

  void visit(Node* node, const Program::Instruction& instruction) {
    Stack operands;
    for (const auto& operand : instruction.operands)
      operands.push_back(operand.is_constant ? constant(operand.index) : registers_[operand.index]);
    if (reads_unknown(instruction) && makes_tensors(node))
      throw NeedsData("under autocast, " + qualified_operator_name(node) +
                      " reads what data decide");
    if (reads_unknown(instruction))
      return note_unknown(instruction);
    if (visit_bound(node, operands))
      return node->destroy();
    if (node->kind() == symbols::kGradient)
      return visit_gradient(node, instruction, operands);
    const auto* schema = node->maybeSchema();
    const auto op =
        schema == nullptr
            ? std::nullopt
            : c10::Dispatcher::singleton().findSchema({schema->name(), schema->overload_name()});
    const bool casts = op && may_cast(node) && has_autocast_kernel(*op, device_);
    if (casts)
      cast_operands(node, *op, operands);
    std::optional<WatchForCasts> watch;
    if (may_cast(node) && !casts)
      watch.emplace(device_, autocast_);
    if (watch && casts_between_parts(node, operands))
      return cast_logarithms(node, instruction, operands);
    if (watch && has_data_ && cast_as_described(node, instruction, operands, *watch))
      watch.emplace(device_, autocast_);
    const auto given = operands;
    bool knows = run_watched(node, instruction, operands, watch);
    if (watch && watch->has_seen_casts()) {
      operands = given;
      cast_before(node, operands, *watch);
      watch.emplace(device_, autocast_);
      knows = run(node, instruction, operands);
      if (watch->has_seen_casts())
        refuse(node, "is composed of operators that cast");
    }
    if (!knows)
      return note_unknown(instruction);
    for (size_t i = 0; i < instruction.outputs.size(); ++i) {
      if (instruction.outputs[i] < 0)
        continue;
      registers_[instruction.outputs[i]] = std::move(operands[i]);
      unknown_.erase(instruction.outputs[i]);
    }
  }

  // A gradient has the type, and here the sizes, of its target.
  void visit_gradient(const Node* node, const Program::Instruction& instruction,
                      const Stack& operands) {
    if (autocast_.is_on(device_) && !outer_.empty())
      refuse(node, "is asked for in a block of autocast");
    const auto request = GradientRequest::of(*node);
    const auto num_outputs = static_cast<size_t>(request.num_outputs);
    for (size_t i = 0; i < instruction.outputs.size(); ++i) {
      if (instruction.outputs[i] < 0)
        continue;
      auto& result = registers_[instruction.outputs[i]];
      if (i == instruction.outputs.size() - 1)
        result = true;
      else
        result = at::zeros_like(operands[num_outputs + i].toTensor());
    }
  }

  // Returns whether the dispatcher may cast operands of the node.
  bool may_cast(const Node* node) const {
    return autocast_.is_on(device_) && !node->hasAttribute(kUncastInPlace) &&
           !node->hasAttribute(kHasItsCasts);
  }

  // Returns whether the node is a cross entropy of classes in lower precision. Where autocast has
  // no kernel for it, the logarithms are computed in that precision and then cast.
  static bool casts_between_parts(const Node* node, const Stack& operands) {
    return node->kind() == c10::aten::cross_entropy_loss &&
           at::isReducedFloatingType(operands[0].toTensor().scalar_type()) &&
           !operands[1].toTensor().is_floating_point();
  }

  void cast_logarithms(Node* node, const Program::Instruction& instruction, Stack& operands) {
    auto* loss = take_cross_entropy_apart(node);
    if (loss == nullptr)
      refuse(node, "is composed of operators that cast");
    loss->replaceInput(0, cast_of(loss, loss->input(0), at::kFloat, /*may_be_cached=*/false));
    if (operands[2].isTensor() && may_be_cast(operands[2].toTensor(), at::kFloat))
      loss->replaceInput(2, cast_of(loss, loss->input(2), at::kFloat, /*may_be_cached=*/false));
    if (operands[2].isTensor())
      operands[2] = operands[2].toTensor().to(operands[0].toTensor().scalar_type());
    run(node, instruction, operands);
    registers_[instruction.outputs[0]] = operands[0].toTensor().to(at::kFloat);
    unknown_.erase(instruction.outputs[0]);
    node->destroy();
  }

  // As run(). An operator that casts within may refuse operands that it has not cast.
  bool run_watched(const Node* node, const Program::Instruction& instruction, Stack& operands,
                   const std::optional<WatchForCasts>& watch) const {
    try {
      return run(node, instruction, operands);
    } catch (const std::exception&) {
      if (has_data_ && watch && watch->has_seen_casts())
        refuse(node, "is composed of operators that cast");
      throw;
    }
  }

  bool reads_unknown(const Program::Instruction& instruction) const {
    return std::any_of(instruction.operands.begin(), instruction.operands.end(),
                       [&](const Program::Operand& operand) {
                         return !operand.is_constant && unknown_.count(operand.index) != 0;
                       });
  }

  // Data decide the results, such as the condition of a check. They need no casts.
  void note_unknown(const Program::Instruction& instruction) {
    for (const auto output : instruction.outputs) {
      if (output >= 0)
        unknown_.insert(output);
    }
  }

  // An operator that casts within refuses operands of several types. Where it runs on meta tensors,
  // which it does not refuse, these show the casts, and the operands are cast alike. Returns
  // whether there were any.
  bool cast_as_described(Node* node, const Program::Instruction& instruction, Stack& operands,
                         const WatchForCasts& watch) {
    std::map<const void*, at::Tensor> described;
    Stack on_meta_device;
    for (const auto& operand : operands) {
      on_meta_device.push_back(map_tensors(operand, [&](const at::Tensor& tensor) {
        auto& result = described[tensor.unsafeGetTensorImpl()];
        if (!result.defined())
          result = tensor.dim() > 0 ? on_meta(tensor) : tensor.clone();
        return result;
      }));
    }
    auto results = on_meta_device;
    try {
      run_on_meta(node, instruction, results);
    } catch (const NeedsData&) {
      return false;
    }
    if (!watch.has_seen_casts())
      return false;
    cast_before(node, on_meta_device, watch);
    for (size_t i = 0; i < operands.size(); ++i) {
      std::vector<at::ScalarType> types;
      map_tensors(on_meta_device[i], [&](const at::Tensor& tensor) {
        types.push_back(tensor.defined() ? tensor.scalar_type() : at::kFloat);
        return tensor;
      });
      size_t k = 0;
      operands[i] = map_tensors(operands[i], [&](const at::Tensor& tensor) {
        const auto type = types.at(k++);
        return tensor.defined() ? tensor.to(type) : tensor;
      });
    }
    return true;
  }

  IValue constant(int32_t index) const {
    const auto& value = program_.constant(index);
    return has_data_ ? value : map_tensors(value, constant_on_meta);
  }

  // Replaces the operands by the results. Returns false if these are no tensors, and data decide
  // them.
  bool run(const Node* node, const Program::Instruction& instruction, Stack& operands) const {
    if (!has_data_)
      return run_on_meta(node, instruction, operands);
    const WithoutAutograd no_autograd;
    const WithoutAutocast no_autocast;
    const SeeOperators seen;
    if (instruction.mutates || updates_hidden_state(node)) {
      for (auto& operand : operands)
        operand = map_tensors(operand, copy_of);
    }
    if (node->kind() == c10::aten::warn)
      operands.clear();
    else
      instruction.run(operands);
    return true;
  }

  bool run_on_meta(const Node* node, const Program::Instruction& instruction,
                   Stack& operands) const {
    const WithoutAutograd no_autograd;
    const WithoutAutocast no_autocast;
    const MetaMode meta;
    try {
      // Under a WatchForCasts, the parts of a composed operator have to run.
      if (!run_parts_on_meta(instruction, node, operands))
        aten_recompute::run_on_meta(instruction, node, operands);
    } catch (const std::exception& error) {
      if (!makes_tensors(node))
        return false;
      throw NeedsData("under autocast, " + why_not_described(node, error));
    }
    return true;
  }

  // Casts the operands of an operator that casts them within, after it has only moved them. Refuses
  // the node where that is another number of casts, because their gradients are added elsewhere.
  void cast_before(Node* node, Stack& operands, const WatchForCasts& watch) {
    const auto type = watch.common_type();
    if (!type || node->outputs().size() != 1)
      refuse(node, "is composed of operators that cast");
    size_t num_casts = 0;
    const auto cast = [&](Value* value, at::Tensor& tensor) {
      if (!may_be_cast(tensor, *type))
        return value;
      // The cache has casts of a parameter itself, not of its views.
      const auto of_itself = watch.num_casts_of(tensor);
      num_casts +=
          of_itself > 0 && value != nullptr && comes_from_cache(value, *type) ? of_itself : 1;
      tensor = tensor.to(*type);
      return cast_of(node, value, *type, /*may_be_cached=*/of_itself > 0);
    };
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].isTensor()) {
        auto tensor = operands[i].toTensor();
        replace_operand(node, i, cast(node->input(i), tensor));
        operands[i] = tensor;
      } else if (operands[i].isTensorList()) {
        change_list(node, i, operands[i], cast, watch.begins_with_last());
      }
    }
    if (num_casts != watch.num_casts())
      refuse(node, "is composed of operators that cast");
  }

  static bool may_be_cast(const at::Tensor& tensor, at::ScalarType type) {
    return tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble &&
           tensor.scalar_type() != type;
  }

  void cast_operands(Node* node, const c10::OperatorHandle& op, Stack& operands) {
    const WithAutocast settings(autocast_);
    const auto given = arguments_under_autocast(op, operands, device_);
    if (!given)
      refuse(node, "is refused, or runs as another operator");
    // The order of the casts is that in which gradients of one tensor are added.
    for (const auto i : given->order) {
      const auto& operand = operands[i];
      const auto& wanted = given->values.at(i);
      if (operand.isTensor() && operand.toTensor().defined()) {
        const auto type = wanted.toTensor().scalar_type();
        if (type == operand.toTensor().scalar_type())
          continue;
        replace_operand(node, i, cast_of(node, node->input(i), type));
        operands[i] = operand.toTensor().to(type);
      } else if (operand.isTensorList()) {
        cast_list(node, i, operands[i], wanted.toTensorVector());
      } else if (operand.isNone() && !wanted.isNone()) {
        // Of other values, autocast sets no more than a type that was left out.
        set_argument(node, i, wanted);
        operands[i] = wanted;
      }
    }
  }

  // Returns whether autocast's cache has the cast of this value. It keeps casts to the type of
  // lower precision only, whatever that was when they were made.
  bool comes_from_cache(Value* value, at::ScalarType type) const {
    return autocast_.is_cache_on && cached_.count(tensor_of(value)) != 0 &&
           type == autocast_.type(device_);
  }

  static void replace_operand(Node* node, size_t operand, Value* value) {
    if (value != node->input(operand) && node->hasAttribute(symbols::kHasComputedType))
      node->removeAttribute(symbols::kHasComputedType);  // it was said of the operand as it was
    node->replaceInput(operand, value);
  }

  // Returns the value, cast by a node before `node`. nullptr stands for an element of a list that
  // is no value of the graph.
  Value* cast_of(Node* node, Value* value, at::ScalarType type, bool may_be_cached = true) {
    if (value == nullptr)
      refuse(node, "casts tensors in a list that it does not make itself");
    if (checks_gradients_)
      refuse(node, "is cast in a gradient that the method asks for");
    auto* const key = tensor_of(value);
    const bool is_cached = may_be_cached && comes_from_cache(value, type);
    if (is_cached) {
      if (const auto found = casts_.find(key); found != casts_.end()) {
        if (found->second.second != type)
          refuse(node, "gets a parameter in the type of a block around its own");
        return found->second.first;
      }
    }
    const torch::jit::WithInsertPoint guard(node);
    auto* cast = graph_->insert(c10::aten::to, {value, static_cast<int64_t>(type), false, false});
    cast->node()->copyMetadata(node);
    copy_place(node, cast->node());
    if (is_cached) {
      cast->node()->i_(symbols::kCachedCast, 1);
      casts_.emplace(key, std::pair(cast, type));
    }
    return cast;
  }

  void cast_list(Node* node, size_t operand, IValue& list, const std::vector<at::Tensor>& wanted) {
    size_t i = 0;
    change_list(node, operand, list, [&](Value* value, at::Tensor& tensor) {
      const auto& given = wanted.at(i++);
      if (!tensor.defined() || tensor.scalar_type() == given.scalar_type())
        return value;
      tensor = tensor.to(given.scalar_type());
      return cast_of(node, value, given.scalar_type());
    });
  }

  // Gives the node a list of what `change` returns for the elements, which it may set as well. It
  // is called for the first element first, or for the last.
  void change_list(Node* node, size_t operand, IValue& list,
                   const std::function<Value*(Value*, at::Tensor&)>& change,
                   bool begins_with_last = false) {
    auto tensors = list.toTensorVector();
    auto* maker = node->input(operand)->node();
    std::vector<Value*> elements(tensors.size());
    bool changed = false;
    for (size_t k = 0; k < tensors.size(); ++k) {
      const auto i = begins_with_last ? tensors.size() - 1 - k : k;
      const bool is_made_here = maker->kind() == c10::prim::ListConstruct;
      auto* element = is_made_here ? maker->input(i) : nullptr;
      const auto type = tensors[i].defined() ? tensors[i].scalar_type() : at::kFloat;
      elements[i] = change(element, tensors[i]);
      changed = changed || (tensors[i].defined() && tensors[i].scalar_type() != type);
    }
    if (!changed)
      return;
    const torch::jit::WithInsertPoint guard(node);
    auto* cast = graph_->insertNode(graph_->createList(c10::TensorType::get(), elements));
    node->replaceInput(operand, cast->output());
    list = c10::List<at::Tensor>(tensors);
  }

  void set_argument(Node* node, size_t operand, const IValue& value) {
    const torch::jit::WithInsertPoint guard(node);
    if (checks_gradients_)
      refuse(node, "computes a gradient that the method asks for in another type");
    if (value.isTensor())
      refuse(node, "runs with other tensors");
    node->replaceInput(operand, graph_->insertConstant(value));
  }

  std::shared_ptr<Graph> graph_;
  Program program_;
  AutocastState autocast_;            // at the node that is visited
  std::vector<AutocastState> outer_;  // around the blocks that are open
  c10::DeviceType device_;
  bool has_data_;
  bool checks_gradients_;
  Program::Registers registers_;
  std::vector<std::vector<int32_t>> last_read_;  // registers, by instruction
  std::set<int32_t> unknown_;                    // registers
  std::set<const Value*> cached_;
  std::map<Value*, std::pair<Value*, at::ScalarType>> casts_;  // the cache
};

// Calls `walk` with whether it may run the operators: first without, and where data decide sizes
// with the data, if there are any.
void on_meta_or_data(const std::vector<IValue>& inputs, std::optional<c10::Device> device,
                     const std::function<void(bool has_data)>& walk) {
  try {
    return walk(/*has_data=*/false);
  } catch (const NeedsData&) {
    if (device)
      throw;
  }
  const RestoreGenerators restore(inputs);
  try {
    walk(/*has_data=*/true);
  } catch (const NotDifferentiable&) {
    throw;
  } catch (const c10::Error& error) {
    throw NotDifferentiable(std::string("under autocast, the region cannot be run: ") +
                            error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw NotDifferentiable(std::string("under autocast, the region cannot be run: ") +
                            error.what());
  }
}

}  // namespace

WithCasts insert_casts(const Graph& forward, const std::vector<IValue>& inputs,
                       const AutocastState& autocast, std::optional<c10::Device> device) {
  WithCasts casts;
  on_meta_or_data(inputs, device, [&](bool has_data) {
    casts.graph = const_cast<Graph&>(forward).copy();
    CastInserter inserter(casts.graph, inputs, autocast, device, has_data,
                          /*checks_gradients=*/false);
    inserter.run();
    casts.shared = inserter.shared();
  });
  return casts;
}

void require_uncast_gradients(const std::shared_ptr<Graph>& forward,
                              const std::vector<bool>& requires_grad,
                              const std::vector<IValue>& inputs, const AutocastState& autocast,
                              std::optional<c10::Device> device) {
  const auto nodes = forward->nodes();
  if (std::none_of(nodes.begin(), nodes.end(),
                   [](const Node* node) { return node->kind() == symbols::kGradient; }))
    return;
  const auto marked = forward->copy();
  for (auto* node : marked->nodes())
    node->i_(kHasItsCasts, 1);
  const auto expanded = expand_gradients(marked, requires_grad);
  on_meta_or_data(inputs, device, [&](bool has_data) {
    CastInserter(expanded->copy(), inputs, autocast, device, has_data, /*checks_gradients=*/true)
        .run();
  });
}

}  // namespace aten_recompute
