// Runs the operators of a method while its path is recorded, and writes them to the path.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <unordered_set>
#include <vector>

#include "passes/frontend/path/caller_writes.h"
#include "passes/frontend/path/path_attributes.h"
#include "passes/frontend/path/path_builder.h"
#include "passes/frontend/path/path_gradients.h"
#include "passes/frontend/path/path_values.h"

namespace aten_recompute {

class MetaRun;

class PathOperators {
 public:
  // The arguments need to outlive this object. `meta_run` is nullptr where operators run on the
  // tensors of the call.
  PathOperators(PathBuilder& builder, PathValues& values, PathAttributes& attributes,
                CallerWrites& writes, PathGradients& gradients, MetaRun* meta_run = nullptr)
      : builder_(builder),
        values_(values),
        attributes_(attributes),
        writes_(writes),
        gradients_(gradients),
        meta_run_(meta_run) {}

  // Runs an operator and sets its outputs. `operands` are what its inputs are. The path gets a copy
  // of the node, except where the results are constants of the path. A write to memory that the
  // path made becomes functional. Throws NotRecordable for a node with side effects, for one that
  // is no operator or returns a dict, where this call raises an exception, and for a write to a
  // tensor that may be the caller's in another call.
  void run(torch::jit::Node* node, const std::vector<Item>& operands);

  // Says whether what comes next stands in a block of torch.no_grad(). What operators return there
  // requires no grad: the path detaches it.
  void set_without_grad(bool without_grad) {
    without_grad_ = without_grad;
    builder_.set_without_grad(without_grad);
  }

  // Runs a node on what the operands are in this call, and returns its results. The path gets
  // nothing. Throws NotRecordable if the node raises an exception.
  std::vector<c10::IValue> execute(torch::jit::Node* node, const std::vector<Item>& operands);

  // Runs requires_grad_(). Where the method was given the tensor as an input, or in one, the path
  // does so before all that it computes. Returns false, and does nothing, for other tensors of the
  // caller.
  //
  // `mode_now` returns whether gradients are enabled, on which the path depends then.
  bool run_requires_grad(torch::jit::Node* node, const std::function<bool()>& mode_now);
  // Asks whether a tensor that the method was given requires grad. Returns false, and does nothing,
  // for other tensors.
  bool ask_requires_grad(torch::jit::Node* node);

  // Keeps an `if` that only raises errors or warns as it is: what it checks need not hold for the
  // path to be taken. Returns false, and does nothing, for other `if`s and for a condition that is
  // a constant of the path. Throws NotRecordable if this call takes a block that raises, unless
  // gradients that the method asks for decide that.
  bool keep_check(torch::jit::Node* node);

 private:
  // Records that the path marks a tensor that the method was given, which had other `names` before.
  void mark_given(torch::jit::Node* node, Item& tensor, bool flag,
                  const std::vector<torch::jit::Value*>& names);
  // Gives a tensor the name of the operand that an operator has returned as it is, and the path
  // depends on that. Returns the names that it had before. The item's tensor is the path's own if
  // its name is not one of what the method was given.
  std::vector<torch::jit::Value*> take_name_of_operand(Item& tensor);
  // Throws NotRecordable for a node that may write to an attribute that the path writes back, in
  // another way than functional operators do.
  void check_written(const torch::jit::Node* node, const std::vector<Item>& operands) const;
  // Adds what the node's inputs are to the path and returns their values in its graph.
  std::vector<torch::jit::Value*> symbols_of_inputs(const torch::jit::Node* node);
  // Sets the node's outputs to results that are constants of the path.
  void set_constants(const torch::jit::Node* node, const std::vector<c10::IValue>& results);
  // Adds a copy of the node, which has these results, and sets the node's outputs.
  void record(torch::jit::Node* node, const std::vector<Item>& operands,
              const std::vector<c10::IValue>& results);
  // Records a write to memory of the path without writing.
  void record_write(torch::jit::Node* node, const std::vector<Item>& operands,
                    const c10::IValue& result);
  // Runs an operator of integers with `out=` as one that returns its result, and a copy of that.
  // Returns false, and does nothing, for other operators, and where eager PyTorch does something
  // else: it computes in the type of the target, and resizes a target of another size.
  bool run_with_out(torch::jit::Node* node, const std::vector<Item>& operands);
  // Returns the content of the target after the write; `symbols` are those of the node's inputs.
  torch::jit::Value* written_content(torch::jit::Node* node,
                                     std::vector<torch::jit::Value*> symbols,
                                     const std::vector<Item>& operands, const c10::IValue& result);
  // Returns whether the value requires no grad in any call, because it was made under no_grad().
  bool is_without_grad(const torch::jit::Value* value) const;
  // Returns `result` of an operator, or its detached form where it may require grad and must not.
  // `value` is what it is in this call. Throws NotRecordable for a list of such tensors.
  torch::jit::Value* without_grad(torch::jit::Value* result, const c10::IValue& value);
  // Keeps `symbol`, the result of the node, inside of the block if it may be an operand itself, or
  // a view: in eager PyTorch, the former has its history, and a view of what requires grad is a
  // leaf that requires grad.
  void keep_inside(torch::jit::Value* symbol, const torch::jit::Node* node,
                   const c10::IValue& value, const std::vector<Item>& operands);
  // Records a write to memory of the caller under no_grad().
  void record_callers_write(torch::jit::Node* node, const std::vector<Item>& operands);
  // Notes if a result of an operator shares memory that the path made with an operand.
  void note_memory(const c10::IValue& result, torch::jit::Value* symbol,
                   const std::vector<Item>& operands,
                   const std::vector<torch::jit::Value*>& symbols);
  bool writes_to_own_memory(const Item& target);
  // Returns whether a tensor that the path made in this call may be one that the method was given
  // in another: reshape() and the like copy only if the layout asks for it.
  bool may_be_callers(const torch::jit::Value* value);

  PathBuilder& builder_;
  PathValues& values_;
  PathAttributes& attributes_;
  CallerWrites& writes_;
  PathGradients& gradients_;
  MetaRun* meta_run_;
  bool without_grad_ = false;
  std::unordered_set<const torch::jit::Value*> made_without_grad_;
};

}  // namespace aten_recompute
