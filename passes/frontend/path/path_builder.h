// The values that a recorded path computes with, and the graph that it is written to.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "passes/frontend/path/path_memory.h"
#include "passes/frontend/rewrites/not_recordable.h"

namespace aten_recompute {

struct Container;

// A value while a path is recorded: what it is in this call, and what stands for it in the graph.
// It is a constant of the path if it has neither symbol nor container, and is not pending.
struct Item {
  c10::IValue value;                    // not set for a container
  torch::jit::Value* symbol = nullptr;  // of the new graph
  std::shared_ptr<Container> container;
  bool pending = false;  // an element of a container, which is read from it when it is needed
  // Whether rank, dtype and device, if it is a tensor, follow from the structure of what the method
  // was given. They may also be decided by sizes, or by numbers that the path does not depend on.
  bool has_determined_type = true;

  bool is_constant() const { return symbol == nullptr && container == nullptr && !pending; }
  bool is_tensor() const { return value.isTensor(); }
};

// A list, tuple, dict or object whose content is known element by element. Two items that share a
// container are one object for the program.
struct Container {
  enum class Kind { kList, kTuple, kDict, kObject };

  Kind kind = Kind::kList;
  c10::TypePtr type;
  std::vector<Item> items;        // elements; values of a dict; attributes of an object by slot
  std::vector<c10::IValue> keys;  // of a dict: int, float, bool or str

  // A value of the graph that holds what the container held at first; nullptr for a container that
  // the path put together. Pending elements are read from it.
  torch::jit::Value* source = nullptr;
  bool is_changed = false;  // it no longer holds what `source` holds
  bool is_callers = false;  // `source` is visible to the caller: changes are repeated there
  bool has_determined_size = false;  // a check of its length is in the graph, or not needed
};

using ContainerPtr = std::shared_ptr<Container>;

// Writes the straight line of a path to a graph.
class PathBuilder {
 public:
  PathBuilder();

  const std::shared_ptr<torch::jit::Graph>& graph() const { return graph_; }

  // The node of the method that is recorded at present. Added nodes get its source range, module
  // path and layer.
  void set_origin(torch::jit::Node* node) { origin_ = node; }

  // Returns the value of the graph that stands for the item, of a type that fits `expected`.
  torch::jit::Value* symbol_of(Item& item, const c10::TypePtr& expected);
  // Returns what the item is in this call.
  c10::IValue value_of(const Item& item) const;
  // Returns whether the item is a constant of the path, with all that it contains.
  static bool is_constant(const Item& item);
  // Returns a constant item for the value, or a container of constants.
  static Item constant(const c10::IValue& value, const c10::TypePtr& type);
  // Returns the item for a result of an operator, or for what the method was given. `symbol` is its
  // value in the graph.
  static Item item_of(const c10::IValue& value, torch::jit::Value* symbol, const c10::TypePtr& type,
                      bool is_callers);

  // Notes that the types of all tensors in the item are not determined.
  static void mark_undetermined(Item& item);

  // Returns an element of a container, which is read from the container's source if need be.
  Item& element(Container& container, size_t index);
  // Notes that the container is about to change. Reads what is still to be read of it.
  void change(Container& container);

  // Adds a copy of a node of the method, which takes these values.
  torch::jit::Node* add_copy(torch::jit::Node* node, std::vector<torch::jit::Value*> inputs);
  torch::jit::Value* add(c10::Symbol kind, at::ArrayRef<torch::jit::Value*> inputs,
                         const c10::TypePtr& type);
  // Adds aten_recompute::branch for a branch of the method. `outputs` are those of the method's
  // node.
  torch::jit::Node* add_branch(const std::shared_ptr<torch::jit::Graph>& branch,
                               at::ArrayRef<torch::jit::Value*> inputs,
                               at::ArrayRef<torch::jit::Value*> outputs);
  torch::jit::Value* add_constant(const c10::IValue& value);
  // Adds a copy of a node that comes before all that the path computes. It takes `input`, which the
  // method was given, and `constant`.
  torch::jit::Node* add_copy_at_start(torch::jit::Node* node, torch::jit::Value* input,
                                      const c10::IValue& constant);
  // Adds a read of an attribute. It comes before all that the path computes.
  torch::jit::Value* add_attribute(torch::jit::Value* object, const std::string& name);

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
  std::set<std::pair<size_t, bool>> checked_;  // unique() of conditions
  size_t num_nodes_ = 0;
  bool changes_are_made_ = false;
};

}  // namespace aten_recompute
