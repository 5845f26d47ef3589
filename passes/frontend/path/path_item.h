// The values that a recorded path computes with.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

namespace torch::jit {
struct Value;
}

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

// Returns a container that the path puts together, with this content.
Item make_container(Container::Kind kind, const c10::TypePtr& type, std::vector<Item> items = {});

// Returns the item for a result of an operator, or for what the method was given. `symbol` is its
// value in the graph, which gets a narrower type where the value tells one. Throws NotRecordable
// for a dict whose keys are not known in comparisons (is_key).
Item make_item(const c10::IValue& value, torch::jit::Value* symbol, const c10::TypePtr& type,
               bool is_callers);
// Returns a constant item for the value, or a container of constants.
Item constant_item(const c10::IValue& value, const c10::TypePtr& type);

// Returns whether the item is a constant of the path, with all that it contains.
bool is_fully_constant(const Item& item);

// Notes that the types of all tensors in the item are not determined.
void mark_undetermined(Item& item);
// Returns whether rank, dtype and device of all tensors in the item follow from the structure of
// what the method was given.
bool has_determined_type(const Item& item);

// Returns whether the value may be a key of a dict whose content is known: an int, float, bool or
// str.
bool is_key(const c10::IValue& value);
// Returns the declared type of an element, of a dict's value, or of an object's attribute.
c10::TypePtr element_type(const Container& container, size_t index);
// Sets the value of the graph that holds what the container holds; nullptr if there is none. On
// this path the value is of the container's type, which operators that read it ask for. It may have
// been declared as an Optional, a Union, or Any.
void set_source(Container& container, torch::jit::Value* source);
// Gives a tensor that was declared as a Union or Any its type on this path.
void narrow_type(torch::jit::Value& symbol, const c10::IValue& value);
// Returns whether a type says less than what a value of it is in one call.
bool is_wider(const c10::Type& type);

}  // namespace aten_recompute
