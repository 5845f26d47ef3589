#include "passes/region/channels_last.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "ir/functionalize.h"
#include "ir/node_place.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"
#include "rules/kernels/layouts.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool is_tensor(const Value* value) {
  return value->type()->isSubtypeOf(*c10::TensorType::get());
}

// Returns whether the tensor is known to have another number of dimensions than images do.
bool is_no_image(const Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  const auto rank = type == nullptr ? std::nullopt : type->dim();
  return rank && *rank != 4 && *rank != 5;
}

bool convolves(const Node* node) {
  const auto flops = operator_facts(node).flops;
  return flops == FlopFormula::kConvolution || flops == FlopFormula::kTransposedConvolution;
}

bool keeps_channels_last(const Node* node) {
  return node->blocks().empty() && !is_random(node) &&
         (has_fact(node, Fact::kKeepsChannelsLast) || is_pointwise(node));
}

// Returns whether the dimensions of the tensor lie in memory in their order, so that eager PyTorch
// would not take it for an image with its channels last, nor give an elementwise result another
// layout than the default.
bool is_in_order(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.dim() < 2)
    return true;
  if (tensor.layout() != at::kStrided || is_channels_last(tensor.sizes(), tensor.strides()))
    return false;
  std::optional<int64_t> outer;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    // The stride of a broadcast dimension, or of one element, says nothing.
    if (tensor.size(dim) == 1 || tensor.stride(dim) == 0)
      continue;
    if (outer && *outer < tensor.stride(dim))
      return false;
    outer = tensor.stride(dim);
  }
  return true;
}

// The memory format that the node's argument asks for; nullopt if it asks for that of its operand,
// or has no such argument.
std::optional<c10::IValue> memory_format(const Node* node) {
  const auto* schema = node->maybeSchema();
  const auto argument =
      schema == nullptr ? std::nullopt : schema->argumentIndexWithName("memory_format");
  if (!argument || node->input(*argument)->mustBeNone())
    return std::nullopt;
  const auto constant = torch::jit::toIValue(node->input(*argument));
  const bool preserves =
      constant && constant->isInt() && constant->toMemoryFormat() == at::MemoryFormat::Preserve;
  return preserves ? std::nullopt : std::optional(constant.value_or(c10::IValue()));
}

// Returns whether the strides of tensors matter to what the node computes or returns.
bool depends_on_layout(Node* node) {
  if (!node->blocks().empty()) {
    bool depends = false;
    for (auto* block : node->blocks())
      for_each_node(block, [&](Node* inner) { depends = depends || depends_on_layout(inner); });
    return depends;
  }
  const auto outputs = node->outputs();
  return has_fact(node, Fact::kReadsStrides) ||
         std::any_of(outputs.begin(), outputs.end(),
                     [](const Value* output) { return contains_tensor(*output->type()); });
}

// Changes a graph node by node. Layouts are only guessed: a value that is not marked may have its
// channels last, and the operators that change layouts return it as it is.
class LayoutChange {
 public:
  explicit LayoutChange(Graph& graph) : graph_(graph) {}

  // Returns whether there is a convolution, and everything could be changed.
  bool run() {
    for (auto* input : graph_.inputs())
      in_order_.insert(input);
    for (auto* node : graph_.nodes()) {
      if (!mutates_an_argument(node))
        continue;
      for (auto* input : node->inputs())
        note_written(input);
    }
    for (auto* node : graph_.nodes())
      visit(node);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      if (is_last_.contains(graph_.outputs()[i]))
        graph_.block()->replaceOutput(i, first(graph_.outputs()[i], graph_.return_node()));
    }
    return num_convolutions_ > 0 && !writes_to_stretch_;
  }

 private:
  // Notes that the graph writes to the value, and to what it is a view of.
  void note_written(Value* value) {
    written_.insert(value);
    if (!may_alias_an_argument(value->node()))
      return;
    for (auto* viewed : value->node()->inputs())
      note_written(viewed);
  }

  // Returns whether the tensors that the node makes are in order in eager PyTorch, as far as is
  // known. Only those may get another layout in between: a program that puts its channels last
  // itself, by whatever operators, gets from eager what it has asked for.
  bool makes_order(Node* node) const {
    if (node->kind() == c10::prim::Constant) {
      const auto constant = torch::jit::toIValue(node->output());
      return !constant || !constant->isTensor() || is_in_order(constant->toTensor());
    }
    if (!node->blocks().empty())
      return false;
    if (const auto format = memory_format(node))
      return format->isInt() && format->toMemoryFormat() == at::MemoryFormat::Contiguous;
    if (has_fact(node, Fact::kMakesOrder))
      return true;
    if (is_in_place(node))
      return in_order_.contains(node->input(0));
    const auto inputs = node->inputs();
    const bool keeps = convolves(node) || is_pointwise(node) ||
                       has_fact(node, Fact::kKeepsChannelsLast) ||
                       has_fact(node, Fact::kKeepsOrder) || has_fact(node, Fact::kMovesValues);
    return keeps && std::all_of(inputs.begin(), inputs.end(), [&](const Value* input) {
             return !contains_tensor(*input->type()) || in_order_.contains(input);
           });
  }

  void visit(Node* node) {
    const bool in_order = makes_order(node);
    if (in_order)
      in_order_.insert(node->outputs().begin(), node->outputs().end());
    if (in_order && convolves(node)) {
      ++num_convolutions_;
      put_last(node, 0);
      mark_outputs(node);
    } else if (node->kind() == c10::prim::ListConstruct) {
      visit_list(node, in_order);
    } else if (in_order && keeps_channels_last(node) && any_last(node)) {
      // The image is the first operand, except that elementwise operators may take several.
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        if (i == 0 || is_pointwise(node))
          put_last(node, i);
      }
      // The operand is not changed by that, but the gradient is.
      if (has_fact(node, Fact::kSpreadsGradient))
        node->replaceInput(0, converted(node->input(0), symbols::kChannelsLast, node));
      mark_outputs(node);
    } else if (depends_on_layout(node)) {
      for (auto* value : free_values(node)) {
        if (is_last_.contains(value))
          replace_in(node, value, first(value, node));
      }
    }
  }

  // The elements of a list have one layout.
  void visit_list(Node* node, bool in_order) {
    const auto& uses = node->output()->uses();
    const bool keeps = std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
      return use.offset == 0 && keeps_channels_last(use.user);
    });
    const bool is_last = in_order && keeps && any_last(node);
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (is_last)
        put_last(node, i);
      else if (is_last_.contains(node->input(i)))
        node->replaceInput(i, first(node->input(i), node));
    }
    if (is_last)
      is_last_.insert(node->output());
  }

  bool any_last(const Node* node) const {
    const auto inputs = node->inputs();
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const Value* input) { return is_last_.contains(input); });
  }

  void mark_outputs(const Node* node) {
    for (auto* output : node->outputs()) {
      if (is_tensor(output))
        is_last_.insert(output);
    }
  }

  void put_last(Node* node, size_t operand) {
    auto* value = node->input(operand);
    if (is_tensor(value) && !is_last_.contains(value) && !is_no_image(value))
      node->replaceInput(operand, converted(value, symbols::kChannelsLast, node));
  }

  Value* first(Value* value, Node* before) {
    return converted(value, symbols::kChannelsFirst, before);
  }

  Value* converted(Value* value, c10::Symbol to, Node* before) {
    writes_to_stretch_ = writes_to_stretch_ || written_.contains(value);
    auto& result = converted_[{value, to}];
    if (result == nullptr) {
      auto* node = graph_.create(to, {value})->insertBefore(before);
      node->setSourceRange(before->sourceRange());
      copy_place(before, node);
      result = node->output()->setType(c10::TensorType::get());
    }
    return result;
  }

  static void replace_in(Node* node, Value* value, Value* by) {
    node->replaceInputWith(value, by);
    for (auto* block : node->blocks()) {
      for_each_node(block, [&](Node* inner) { inner->replaceInputWith(value, by); });
      for (size_t i = 0; i < block->outputs().size(); ++i) {
        if (block->outputs()[i] == value)
          block->replaceOutput(i, by);
      }
    }
  }

  Graph& graph_;
  std::unordered_set<const Value*> written_;
  std::unordered_set<const Value*> is_last_;
  std::unordered_set<const Value*> in_order_;  // in eager PyTorch, whatever their layout is here
  std::map<std::pair<const Value*, c10::Symbol>, Value*> converted_;
  size_t num_convolutions_ = 0;
  bool writes_to_stretch_ = false;
};

}  // namespace

std::shared_ptr<Graph> with_channels_last(const Graph& graph) {
  auto changed = const_cast<Graph&>(graph).copy();
  return LayoutChange(*changed).run() ? changed : nullptr;
}

bool are_in_order(const std::vector<c10::IValue>& inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [](const c10::IValue& input) {
    return !input.isTensor() || is_in_order(input.toTensor());
  });
}

}  // namespace aten_recompute
