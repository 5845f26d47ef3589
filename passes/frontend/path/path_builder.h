// The graph that a recorded path is written to.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "passes/frontend/path/path_item.h"
#include "passes/frontend/path/path_memory.h"
#include "passes/frontend/path/returned_leaves.h"

namespace aten_recompute {

// Writes the straight line of a path to a graph.
class PathBuilder {
 public:
  PathBuilder();

  const std::shared_ptr<torch::jit::Graph>& graph() const { return graph_; }

  // The node of the method that is recorded at present. Added nodes get its source range, module
  // path and layer.
  void set_origin(torch::jit::Node* node) { origin_ = node; }

  // Says whether what comes next stands in a block of torch.no_grad().
  void set_without_grad(bool without_grad) { without_grad_ = without_grad; }
  // Notes a value that was made in such a block and may be used in one only.
  void keep_inside(torch::jit::Value* value) { inside_only_.insert(value); }
  bool is_kept_inside(const torch::jit::Value* value) const {
    return inside_only_.count(value) != 0;
  }

  // Returns the value of the graph that stands for the item, of a type that fits `expected`. Throws
  // NotRecordable outside of no_grad() for a value that may be used there only.
  torch::jit::Value* symbol_of(Item& item, const c10::TypePtr& expected);
  // Returns what the item is in this call.
  c10::IValue value_of(const Item& item) const;

  // Returns an element of a container, which is read from the container's source if need be.
  Item& element(Container& container, size_t index);
  // Notes that the container is about to change. Reads what is still to be read of it.
  void change(Container& container);

  // Adds a copy of a node of the method, which takes these values.
  torch::jit::Node* add_copy(torch::jit::Node* node, const std::vector<torch::jit::Value*>& inputs);
  torch::jit::Value* add(c10::Symbol kind, at::ArrayRef<torch::jit::Value*> inputs,
                         const c10::TypePtr& type);
  // Adds a node of a kind without a schema. Its outputs get their types from the caller.
  torch::jit::Node* add_node(c10::Symbol kind, at::ArrayRef<torch::jit::Value*> inputs,
                             size_t num_outputs);
  // Adds aten_recompute::branch for a branch of the method. `outputs` are those of the method's
  // node.
  torch::jit::Node* add_branch(const std::shared_ptr<torch::jit::Graph>& branch,
                               at::ArrayRef<torch::jit::Value*> inputs,
                               at::ArrayRef<torch::jit::Value*> outputs);
  torch::jit::Value* add_constant(const c10::IValue& value);
  // Adds a copy of a node that comes before all that the path computes. It takes `input`, which the
  // method was given, and the constant, if there is one.
  torch::jit::Node* add_copy_at_start(torch::jit::Node* node, torch::jit::Value* input,
                                      const std::optional<c10::IValue>& constant = std::nullopt);
  // Asks, before all that the path computes, whether a tensor that the method was given requires
  // grad. `tensor` is that of this call. Returns the answer.
  Item ask_requires_grad(torch::jit::Value* given, const at::Tensor& tensor);
  // Notes that `value` is another name of a tensor that the method was given, which later nodes
  // read in its place.
  void rename_given(torch::jit::Value* tensor, torch::jit::Value* value) {
    given_names_[tensor] = value;
  }
  // Returns whether the path has computed something from the tensor.
  bool is_read(const torch::jit::Value* tensor) const;
  // Has all that the path has computed so far read the tensor detached.
  void detach_for_readers(torch::jit::Value* given);
  // Adds a read of an attribute. It comes before all that the path computes.
  torch::jit::Value* add_attribute(torch::jit::Value* object, const std::string& name);
  // Adds a copy of an attribute that the path writes to at its end. It is made where the attribute
  // is read, and is part of no region (symbols::kBeforeRegions), so that the regions' backward and
  // their replay can read it later.
  torch::jit::Value* add_copy_of_attribute(torch::jit::Value* attribute);

  // Makes a leaf before all regions (returned_leaves.h). Returns whether it could.
  bool make_before_regions(torch::jit::Value* leaf) {
    return make_leaf_before_regions(leaf, start_);
  }
  // Has the caller get a leaf that a region makes (returned_leaves.h). Returns whether it can.
  bool return_leaf(torch::jit::Value* leaf) {
    return return_leaf_of_region(leaf, start_, num_returned_leaves_++);
  }

  // Makes the path depend on the item being what it is in this call. The item is constant
  // afterward.
  void require(Item& item);
  // The same for the length of a container.
  void require_size(Container& container);
  // Sets the number of the `if` that is being decided, for the checks that this adds. None: -1.
  void set_decision(int64_t decision) { decision_ = decision; }
  // Adds a check that the condition has this value.
  void check(torch::jit::Value* condition, bool expected);

  // From now on the caller's containers hold what the path has put into them.
  void finish_changes() { changes_are_made_ = true; }

  // Which tensors that the path made share memory.
  PathMemory& memory() { return memory_; }

  size_t num_nodes() const { return num_nodes_; }
  torch::jit::Node* last_node() const { return graph_->return_node()->prev(); }
  // Moves all nodes that come after `last` to the place right behind `target`, in their order.
  void move_back(torch::jit::Node* last, torch::jit::Node* target);

 private:
  torch::jit::Value* build(Container& container);
  bool is_current(const Container& container) const;
  torch::jit::Value* read(Container& container, size_t index);
  torch::jit::Node* insert(torch::jit::Node* node);

  std::shared_ptr<torch::jit::Graph> graph_;
  PathMemory memory_;
  torch::jit::Node* start_;  // reads of inputs and attributes are inserted before it
  torch::jit::Node* origin_ = nullptr;
  int64_t decision_ = -1;
  std::unordered_map<torch::jit::Value*, torch::jit::Value*> given_names_;
  std::set<std::pair<size_t, bool>> checked_;  // unique() of conditions
  size_t num_nodes_ = 0;
  int64_t num_returned_leaves_ = 0;
  bool changes_are_made_ = false;
  bool without_grad_ = false;
  std::unordered_set<const torch::jit::Value*> inside_only_;
};

}  // namespace aten_recompute
