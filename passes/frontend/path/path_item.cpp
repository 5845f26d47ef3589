#include "passes/frontend/path/path_item.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <utility>

#include "passes/frontend/rewrites/not_recordable.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Value;

// Returns the type of which a value that is not None is, where it is declared to be optional.
c10::TypePtr without_optional(const c10::TypePtr& type, const IValue& value) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional != nullptr && !value.isNone() ? optional->getElementType() : type;
}

ContainerPtr container_of(const IValue& value, const c10::TypePtr& declared) {
  auto container = std::make_shared<Container>();
  const auto type = without_optional(declared, value);
  const bool is_known = type->kind() == c10::TypeKind::ListType ||
                        type->kind() == c10::TypeKind::TupleType ||
                        type->kind() == c10::TypeKind::DictType;
  container->type = is_known ? type : value.type();
  return container;
}

Item pending(Item item) {
  item.pending = true;
  return item;
}

}  // namespace

Item make_container(Container::Kind kind, const c10::TypePtr& type, std::vector<Item> items) {
  Item item;
  item.container = std::make_shared<Container>();
  item.container->kind = kind;
  item.container->type = type;
  item.container->items = std::move(items);
  return item;
}

Item make_item(const IValue& value, Value* symbol, const c10::TypePtr& type, bool is_callers) {
  Item item;
  const bool is_read = symbol != nullptr || is_callers;
  const auto add = [&](const IValue& element, size_t index) {
    auto child = make_item(element, nullptr, element_type(*item.container, index), is_callers);
    item.container->items.push_back(is_read ? pending(std::move(child)) : std::move(child));
  };
  if (value.isList()) {
    item.container = container_of(value, type);
    item.container->kind = Container::Kind::kList;
    const auto list = value.toList();
    for (size_t i = 0; i < list.size(); ++i)
      add(list.get(i), i);
  } else if (value.isTuple()) {
    item.container = container_of(value, type);
    item.container->kind = Container::Kind::kTuple;
    const auto& elements = value.toTupleRef().elements();
    for (size_t i = 0; i < elements.size(); ++i)
      add(elements[i], i);
  } else if (value.isGenericDict()) {
    item.container = container_of(value, type);
    item.container->kind = Container::Kind::kDict;
    for (const auto& entry : value.toGenericDict()) {
      if (!is_key(entry.key()))
        throw NotRecordable("a dict has keys of type " + entry.key().type()->str());
      item.container->keys.push_back(entry.key());
      add(entry.value(), item.container->items.size());
    }
  } else {
    item.value = value;
    item.symbol = symbol;
    if (symbol != nullptr && is_callers)
      narrow_type(*symbol, value);
    return item;
  }
  set_source(*item.container, symbol);
  item.container->is_callers = is_callers;
  return item;
}

Item constant_item(const IValue& value, const c10::TypePtr& type) {
  return make_item(value, nullptr, type, false);
}

bool is_fully_constant(const Item& item) {
  if (item.container == nullptr)
    return item.is_constant();
  const auto& container = *item.container;
  return container.source == nullptr && !item.pending &&
         container.kind != Container::Kind::kObject &&
         std::all_of(container.items.begin(), container.items.end(), is_fully_constant);
}

void mark_undetermined(Item& item) {
  item.has_determined_type = false;
  if (item.container == nullptr)
    return;
  for (auto& each : item.container->items)
    mark_undetermined(each);
}

bool has_determined_type(const Item& item) {
  if (item.container == nullptr)
    return item.has_determined_type;
  const auto& items = item.container->items;
  return item.has_determined_type && std::all_of(items.begin(), items.end(), has_determined_type);
}

bool is_key(const IValue& value) {
  return value.isString() || value.isInt() || value.isBool() || value.isDouble();
}

c10::TypePtr element_type(const Container& container, size_t index) {
  switch (container.kind) {
    case Container::Kind::kList:
      return container.type->expect<c10::ListType>()->getElementType();
    case Container::Kind::kTuple:
      return container.type->expect<c10::TupleType>()->elements()[index];
    case Container::Kind::kDict:
      return container.type->expect<c10::DictType>()->getValueType();
    case Container::Kind::kObject:
      return container.type->expect<c10::ClassType>()->getAttribute(index);
  }
  return nullptr;
}

void set_source(Container& container, Value* source) {
  container.source = source;
  if (source == nullptr)
    return;
  if (source->type()->kind() == c10::TypeKind::OptionalType)
    source->setType(source->type()->expectRef<c10::OptionalType>().getElementType());
  if (is_wider(*source->type()))
    source->setType(container.type);
}

void narrow_type(Value& symbol, const IValue& value) {
  const bool is_union = symbol.type()->kind() == c10::TypeKind::UnionType ||
                        symbol.type()->kind() == c10::TypeKind::AnyType;
  if (is_union && value.isTensor())
    symbol.setType(c10::TensorType::get());
}

bool is_wider(const c10::Type& type) {
  return type.kind() == c10::TypeKind::OptionalType || type.kind() == c10::TypeKind::AnyType ||
         type.kind() == c10::TypeKind::UnionType || type.kind() == c10::TypeKind::NumberType;
}

}  // namespace aten_recompute
