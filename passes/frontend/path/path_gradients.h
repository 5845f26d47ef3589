// Gradients that a method asks for, on a recorded path.
#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "passes/frontend/path/path_builder.h"
#include "passes/frontend/path/path_values.h"

namespace aten_recompute {

// Returns whether the graph's only output has requires_grad in eager PyTorch, where its inputs have
// it as given; std::nullopt where that is not known. The graph may ask for gradients.
using OutputRequiresGrad = std::function<std::optional<bool>(
    const std::shared_ptr<torch::jit::Graph>& graph, const std::vector<bool>& requires_grad)>;

// Returns whether the operator may return its first operand itself, as to() and contiguous() do.
bool may_return_operand(const torch::jit::Node* node);

// Records calls of torch.autograd.grad() and requires_grad_(). A path is recorded without
// gradients, so that what it costs is a forward without its backward. Whether a gradient is None
// follows from the operators between a target and the outputs; what it is nobody knows then, and
// zeros stand for it.
class PathGradients {
 public:
  // `output_requires_grad` tells what is computed from gradients; may be empty.
  PathGradients(PathBuilder& builder, PathValues& values,
                OutputRequiresGrad output_requires_grad = nullptr)
      : builder_(builder),
        values_(values),
        output_requires_grad_(std::move(output_requires_grad)) {}

  // Notes the result of an operator: no gradient passes through a tensor of integers.
  void note_result(const c10::IValue& result, const torch::jit::Value* symbol);

  // Notes that a value stands for the item's tensor. An operator that has nothing to do returns its
  // operand, so that one tensor, which may be a target, has several values.
  void note_name(const Item& item, torch::jit::Value* symbol);
  // Notes that from now on no other value stands for the item's tensor.
  void note_only_name(const Item& item, torch::jit::Value* symbol);

  // Records aten::grad as one aten_recompute::gradient (runtime/inner_gradient.h), and sets its
  // output. The path depends on the flags, and on the grad mode. Throws NotRecordable where eager
  // raises an exception.
  void run_grad(torch::jit::Node* node, bool grad_mode);

  // Returns whether `other` stands for the item's tensor, whose name is `symbol`, too. The path
  // depends on it.
  bool require_same(const Item& item, torch::jit::Value* symbol, torch::jit::Value* other);

  // Notes that requires_grad_() of a tensor that the path made changes nothing. The caller may ask
  // for the gradient of such a tensor, if it gets that: hand_out_leaves() throws then, unless the
  // method frees the graph of a gradient.
  void note_marked(torch::jit::Value* symbol) { marked_.push_back(symbol); }

  // Records requires_grad_() of a tensor that the path made. From then on each of its names is a
  // new value, because what was computed from it before has no gradient. With False, a leaf that
  // requires_grad_() made before is detached. Throws NotRecordable where the flag is False for any
  // other tensor.
  void run_requires_grad(torch::jit::Node* node);

  // Returns whether requires_grad_() of a tensor that the path made changes nothing, as the tensor
  // comes from a leaf that the path made, whatever the method is given; never without grad mode.
  bool requires_grad_already(torch::jit::Value* symbol, bool grad_mode) const;

  // Returns whether a tensor that the path computed has requires_grad, which follows from what it
  // was computed from; std::nullopt where that does not tell. The path depends on the answers of
  // what the method was given, and on the grad mode.
  std::optional<bool> requires_grad(torch::jit::Value* symbol, bool grad_mode);

  // To be called when the path is complete. Leaves that requires_grad_() made and the caller gets
  // are made outside of the regions (returned_leaves.h), because the caller may ask for their
  // gradients, and a region would return another tensor. Throws NotRecordable where that cannot be.
  void hand_out_leaves();

 private:
  std::vector<torch::jit::Value*> symbols_of(torch::jit::Value* list);
  bool flag(torch::jit::Value* value, bool otherwise);
  // Throws NotRecordable where eager raises, because an output of several elements has no gradient
  // given, or one of another shape. The path depends on outputs without one having one element.
  void require_output_gradients(torch::jit::Value* output_list,
                                const std::vector<torch::jit::Value*>& outputs,
                                torch::jit::Value* given_list,
                                const std::vector<torch::jit::Value*>& given);
  // Returns the leaf that requires_grad_(True) makes of a value.
  torch::jit::Value* mark(torch::jit::Value* symbol);

  // What a tensor may have requires_grad from.
  struct Origins {
    bool has_leaf = false;    // a leaf that the path made
    bool is_unknown = false;  // an operator of which it is not known
    std::vector<torch::jit::Value*> given;
  };
  Origins origins_of(torch::jit::Value* symbol, bool grad_mode) const;
  // The same as requires_grad() in grad mode, for what may be computed from a gradient.
  std::optional<bool> requires_grad_by_formulas(torch::jit::Value* symbol);

  // Returns whether an output depends on the target.
  bool is_reached(const torch::jit::Value* target,
                  const std::vector<torch::jit::Value*>& outputs) const;

  // Returns the tensor that a value stands for, if the path has read it under this name.
  at::Tensor tensor_named(torch::jit::Value* symbol) const;

  // Returns the value that stood first for the target's tensor: eager PyTorch's gradient of it
  // comes from all that reads the tensor, by whichever value. The path depends on the two being the
  // same tensor.
  torch::jit::Value* first_name(const Item& target, torch::jit::Value* symbol);

  struct Names {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;  // no other tensor gets its address
    std::unordered_set<torch::jit::Value*> symbols;
  };

  PathBuilder& builder_;
  PathValues& values_;
  OutputRequiresGrad output_requires_grad_;
  std::unordered_map<const c10::TensorImpl*, Names> names_;
  std::unordered_set<const torch::jit::Value*> integers_;
  // Of what requires_grad_() made: what is a leaf for sure, which nothing with a gradient computed.
  std::unordered_set<const torch::jit::Value*> leaves_;
  std::vector<torch::jit::Value*> marked_;
  // What has no requires_grad: tensors that the method was given, on which the path depends, and
  // tensors that it computed from gradients.
  std::unordered_set<const torch::jit::Value*> without_grad_;
  // What requires_grad_(False) made of a leaf, and the leaf: where that is marked again, eager
  // PyTorch's gradients of it come from what has read it before, too.
  std::unordered_map<const torch::jit::Value*, torch::jit::Value*> detached_;
  bool has_complex_ = false;  // a tensor of complex numbers was read or made
};

}  // namespace aten_recompute
