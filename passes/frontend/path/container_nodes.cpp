#include "passes/frontend/path/container_nodes.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "passes/frontend/rewrites/not_recordable.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
namespace prim = c10::prim;

void make_sequence(Node* node, Container::Kind kind, PathValues& values) {
  std::vector<Item> items;
  for (auto* input : node->inputs())
    items.push_back(values.get(input));
  values.set(node->output(), make_container(kind, node->output()->type(), std::move(items)));
}

// The attributes are set by the nodes that follow.
void make_object(Node* node, PathValues& values) {
  const auto type = node->output()->type();
  std::vector<Item> attributes(type->expect<c10::ClassType>()->numAttributes());
  values.set(node->output(), make_container(Container::Kind::kObject, type, std::move(attributes)));
}

void make_dict(Node* node, PathValues& values, PathBuilder& builder) {
  auto item = make_container(Container::Kind::kDict, node->output()->type());
  for (size_t i = 0; i + 1 < node->inputs().size(); i += 2) {
    auto& key = values.get(node->input(i));
    if (!is_key(key.value))
      throw NotRecordable("a dict has keys of type " + node->input(i)->type()->str());
    builder.require(key);
    auto& keys = item.container->keys;
    const auto found = std::find(keys.begin(), keys.end(), key.value);
    if (found != keys.end()) {
      item.container->items[static_cast<size_t>(found - keys.begin())] =
          values.get(node->input(i + 1));
      continue;
    }
    keys.push_back(key.value);
    item.container->items.push_back(values.get(node->input(i + 1)));
  }
  values.set(node->output(), item);
}

void unpack(Node* node, PathValues& values, PathBuilder& builder) {
  auto& item = values.get(node->input(0));
  if (item.container == nullptr || item.container->items.size() != node->outputs().size())
    throw NotRecordable("a container is unpacked into another number of values");
  auto& container = *item.container;
  const bool is_untouched =
      container.source != nullptr && !container.is_callers && !container.is_changed &&
      std::all_of(container.items.begin(), container.items.end(),
                  [](const Item& each) { return each.pending && each.container == nullptr; });
  if (is_untouched) {
    // It raises an error if the length is another, as the method does.
    auto* copy = builder.add_copy(node, {container.source});
    for (size_t i = 0; i < container.items.size(); ++i) {
      container.items[i].pending = false;
      container.items[i].symbol = copy->output(i);
      if (container.items[i].is_tensor())
        builder.memory().note_element(copy->output(i), container.source);
    }
    container.has_determined_size = true;
  }
  builder.require_size(container);
  for (size_t i = 0; i < container.items.size(); ++i)
    values.set(node->output(i), builder.element(container, i));
}

Container& known_container(const Node* node, PathValues& values) {
  auto& item = values.get(node->input(0));
  if (item.container == nullptr)
    throw NotRecordable("a tuple is not known");
  return *item.container;
}

void index_tuple(Node* node, PathValues& values, PathBuilder& builder) {
  auto& container = known_container(node, values);
  auto& index = values.get(node->input(1));
  builder.require(index);
  auto place = index.value.toInt();
  if (place < 0)
    place += static_cast<int64_t>(container.items.size());
  values.set(node->output(), builder.element(container, static_cast<size_t>(place)));
}

void slice_tuple(Node* node, PathValues& values, PathBuilder& builder) {
  auto& container = known_container(node, values);
  auto item = make_container(Container::Kind::kTuple, node->output()->type());
  for (auto i = node->i(c10::attr::beg); i < node->i(c10::attr::end); ++i)
    item.container->items.push_back(builder.element(container, static_cast<size_t>(i)));
  values.set(node->output(), item);
}

}  // namespace

bool run_container_node(Node* node, PathValues& values, PathBuilder& builder) {
  switch (node->kind()) {
    case prim::ListConstruct:
      make_sequence(node, Container::Kind::kList, values);
      return true;
    case prim::TupleConstruct:
      make_sequence(node, Container::Kind::kTuple, values);
      return true;
    case prim::DictConstruct:
      make_dict(node, values, builder);
      return true;
    case prim::CreateObject:
      make_object(node, values);
      return true;
    case prim::TupleUnpack:
    case prim::ListUnpack:
      unpack(node, values, builder);
      return true;
    case prim::TupleIndex:
      index_tuple(node, values, builder);
      return true;
    case prim::TupleSlice:
      slice_tuple(node, values, builder);
      return true;
    default:
      return false;
  }
}

}  // namespace aten_recompute
