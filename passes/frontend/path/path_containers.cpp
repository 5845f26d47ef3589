#include "passes/frontend/path/path_containers.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>

#include "passes/frontend/rewrites/not_recordable.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Node;
using Kind = Container::Kind;
using Items = std::vector<Item>;

// One operator on a container. Returns its results.
struct Call {
  Node* node;
  Items& operands;
  PathBuilder& builder;

  Container& container() const { return *operands[0].container; }
  // Returns an operand as a constant, on which the path depends from now on.
  const IValue& constant(size_t operand) const {
    builder.require(operands[operand]);
    return operands[operand].value;
  }
  // Returns the container that holds what the result has, with this content.
  Item made(Kind kind, Items items) const {
    return make_container(kind, node->output()->type(), std::move(items));
  }
};

using Instruction = std::function<Items(Call&)>;

Items elements(PathBuilder& builder, Container& container) {
  builder.require_size(container);
  Items items;
  for (size_t i = 0; i < container.items.size(); ++i)
    items.push_back(builder.element(container, i));
  return items;
}

// Returns the index that `operand` gives, counted from the end if it is negative.
size_t index_of(const Call& call, size_t operand) {
  auto& container = call.container();
  auto index = call.constant(operand).toInt();
  if (index < 0) {
    call.builder.require_size(container);
    index += static_cast<int64_t>(container.items.size());
  }
  if (index < 0 || index >= static_cast<int64_t>(container.items.size()))
    throw NotRecordable("an index is out of range");
  return static_cast<size_t>(index);
}

// Returns the place of a key in a dict; nullopt if it is not there.
std::optional<size_t> place_of(const Call& call, size_t operand) {
  const auto& keys = call.container().keys;
  const auto found = std::find(keys.begin(), keys.end(), call.constant(operand));
  if (found == keys.end())
    return std::nullopt;
  return static_cast<size_t>(found - keys.begin());
}

Item integer(size_t value) {
  return constant_item(static_cast<int64_t>(value), c10::IntType::get());
}

void erase(Container& container, size_t index) {
  const auto at = static_cast<std::ptrdiff_t>(index);
  container.items.erase(container.items.begin() + at);
  if (container.kind == Kind::kDict)
    container.keys.erase(container.keys.begin() + at);
}

void set(Container& dict, const IValue& key, Item item) {
  const auto found = std::find(dict.keys.begin(), dict.keys.end(), key);
  if (found != dict.keys.end()) {
    dict.items[static_cast<size_t>(found - dict.keys.begin())] = std::move(item);
    return;
  }
  dict.keys.push_back(key);
  dict.items.push_back(std::move(item));
}

// ---- lists ----

Items append(Call& call) {
  call.builder.change(call.container());
  call.container().items.push_back(call.operands[1]);
  return {call.operands[0]};
}

Items extend(Call& call) {
  auto added = elements(call.builder, *call.operands[1].container);
  call.builder.change(call.container());
  auto& items = call.container().items;
  items.insert(items.end(), added.begin(), added.end());
  return {call.operands[0]};
}

Items insert(Call& call) {
  call.builder.change(call.container());
  auto& items = call.container().items;
  const auto size = static_cast<int64_t>(items.size());
  auto index = call.constant(1).toInt();
  index = std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
  items.insert(items.begin() + index, call.operands[2]);
  return {};
}

Items pop(Call& call) {
  call.builder.change(call.container());
  const auto index = index_of(call, 1);
  auto item = call.container().items[index];
  erase(call.container(), index);
  return {item};
}

Items erase_item(Call& call) {
  call.builder.change(call.container());
  erase(call.container(), index_of(call, 1));
  return {};
}

Items set_item(Call& call) {
  call.builder.change(call.container());
  call.container().items[index_of(call, 1)] = call.operands[2];
  return {call.operands[0]};
}

Items get_item(Call& call) {
  return {call.builder.element(call.container(), index_of(call, 1))};
}

Items clear(Call& call) {
  call.builder.change(call.container());
  call.container().items.clear();
  call.container().keys.clear();
  return {};
}

Items reverse(Call& call) {
  call.builder.change(call.container());
  std::reverse(call.container().items.begin(), call.container().items.end());
  return {};
}

Items concatenate(Call& call) {
  auto items = elements(call.builder, call.container());
  auto second = elements(call.builder, *call.operands[1].container);
  items.insert(items.end(), second.begin(), second.end());
  return {call.made(Kind::kList, std::move(items))};
}

Items repeat(Call& call) {
  const auto items = elements(call.builder, call.container());
  Items repeated;
  for (int64_t i = 0; i < call.constant(1).toInt(); ++i)
    repeated.insert(repeated.end(), items.begin(), items.end());
  return {call.made(Kind::kList, std::move(repeated))};
}

Items copy_list(Call& call) {
  return {call.made(Kind::kList, elements(call.builder, call.container()))};
}

Items slice(Call& call) {
  const auto items = elements(call.builder, call.container());
  const auto size = static_cast<int64_t>(items.size());
  const auto step = call.constant(3).toInt();
  if (step == 0)
    throw NotRecordable("a slice has step 0");
  const auto bound = [&](size_t operand, int64_t otherwise) {
    const auto& given = call.constant(operand);
    if (given.isNone())
      return otherwise;
    const auto index = given.toInt() < 0 ? given.toInt() + size : given.toInt();
    return step > 0 ? std::clamp<int64_t>(index, 0, size)
                    : std::clamp<int64_t>(index, -1, size - 1);
  };
  const auto start = bound(1, step > 0 ? 0 : size - 1);
  const auto end = bound(2, step > 0 ? size : -1);
  Items taken;
  for (auto i = start; step > 0 ? i < end : i > end; i += step)
    taken.push_back(items[static_cast<size_t>(i)]);
  return {call.made(Kind::kList, std::move(taken))};
}

Items length(Call& call) {
  call.builder.require_size(call.container());
  return {integer(call.container().items.size())};
}

// ---- dicts ----

Items get_value(Call& call) {
  const auto place = place_of(call, 1);
  if (!place)
    throw NotRecordable("a key is missing");
  return {call.builder.element(call.container(), *place)};
}

Items get_value_or(Call& call) {
  if (const auto place = place_of(call, 1))
    return {call.builder.element(call.container(), *place)};
  if (call.operands.size() > 2)
    return {call.operands[2]};
  return {constant_item(IValue(), c10::NoneType::get())};
}

Items set_value(Call& call) {
  call.builder.change(call.container());
  set(call.container(), call.constant(1), call.operands[2]);
  return {};
}

Items set_default(Call& call) {
  call.builder.change(call.container());
  if (!place_of(call, 1))
    set(call.container(), call.constant(1), call.operands[2]);
  return {call.container().items[*place_of(call, 1)]};
}

Items erase_value(Call& call) {
  call.builder.change(call.container());
  const auto place = place_of(call, 1);
  if (!place)
    throw NotRecordable("a key is missing");
  erase(call.container(), *place);
  return {};
}

Items pop_value(Call& call) {
  call.builder.change(call.container());
  const auto place = place_of(call, 1);
  if (!place && call.operands.size() > 2)
    return {call.operands[2]};
  if (!place)
    throw NotRecordable("a key is missing");
  auto item = call.container().items[*place];
  erase(call.container(), *place);
  return {item};
}

Items update(Call& call) {
  auto& other = *call.operands[1].container;
  if (other.kind != Kind::kDict)
    throw NotRecordable("a dict is updated from a list");
  const auto added = elements(call.builder, other);
  const auto keys = other.keys;
  call.builder.change(call.container());
  for (size_t i = 0; i < added.size(); ++i)
    set(call.container(), keys[i], added[i]);
  return {};
}

Items contains_key(Call& call) {
  return {constant_item(place_of(call, 1).has_value(), c10::BoolType::get())};
}

Items copy_dict(Call& call) {
  auto copy = call.made(Kind::kDict, elements(call.builder, call.container()));
  copy.container->keys = call.container().keys;
  return {copy};
}

Items dict_of_pairs(Call& call) {
  auto dict = call.made(Kind::kDict, {});
  for (auto& pair : elements(call.builder, call.container())) {
    auto key = call.builder.element(*pair.container, 0);
    call.builder.require(key);
    set(*dict.container, key.value, call.builder.element(*pair.container, 1));
  }
  return {dict};
}

Items key_items(const Call& call) {
  Items keys;
  const auto type = call.container().type->expect<c10::DictType>()->getKeyType();
  for (const auto& key : call.container().keys)
    keys.push_back(constant_item(key, type));
  return keys;
}

Items keys_of(Call& call) {
  return {call.made(Kind::kList, key_items(call))};
}

Items values_of(Call& call) {
  return {call.made(Kind::kList, elements(call.builder, call.container()))};
}

Items items_of(Call& call) {
  const auto keys = key_items(call);
  const auto values = elements(call.builder, call.container());
  const auto pair_type = call.node->output()->type()->expect<c10::ListType>()->getElementType();
  Items pairs;
  for (size_t i = 0; i < keys.size(); ++i) {
    auto pair = call.made(Kind::kTuple, {keys[i], values[i]});
    pair.container->type = pair_type;
    pairs.push_back(std::move(pair));
  }
  return {call.made(Kind::kList, std::move(pairs))};
}

using Instructions = std::unordered_map<std::string, Instruction>;

const Instructions& instructions(Kind kind) {
  static const Instructions lists{
      {"append", append},
      {"extend", extend},
      {"add_", extend},
      {"insert", insert},
      {"pop", pop},
      {"Delete", erase_item},
      {"clear", clear},
      {"_set_item", set_item},
      {"__getitem__", get_item},
      {"reverse", reverse},
      {"add", concatenate},
      {"mul", repeat},
      {"copy", copy_list},
      {"list", copy_list},
      {"slice", slice},
      {"len", length},
      {"dict", dict_of_pairs},
  };
  static const Instructions dicts{
      {"__getitem__", get_value},  {"get", get_value_or},   {"_set_item", set_value},
      {"setdefault", set_default}, {"Delete", erase_value}, {"pop", pop_value},
      {"update", update},          {"clear", clear},        {"__contains__", contains_key},
      {"copy", copy_dict},         {"dict", copy_dict},     {"keys", keys_of},
      {"values", values_of},       {"items", items_of},     {"len", length},
  };
  static const Instructions none;
  return kind == Kind::kList ? lists : kind == Kind::kDict ? dicts : none;
}

}  // namespace

bool run_on_container(Node* node, Items& operands, Items& results, PathBuilder& builder) {
  if (!node->kind().is_aten() || operands.empty() || operands[0].container == nullptr)
    return false;
  const auto& known = instructions(operands[0].container->kind);
  const auto found = known.find(node->kind().toUnqualString());
  if (found == known.end())
    return false;
  Call call{node, operands, builder};
  results = found->second(call);
  results.resize(node->outputs().size());
  return true;
}

}  // namespace aten_recompute
