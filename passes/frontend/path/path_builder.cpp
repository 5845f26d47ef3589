#include "passes/frontend/path/path_builder.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/frontend/rewrites/not_recordable.h"
#include "runtime/path_check.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;
namespace prim = c10::prim;

// Gives the node's outputs the types and names of these values.
void describe_outputs(Node& node, at::ArrayRef<Value*> like) {
  for (size_t i = 0; i < like.size(); ++i) {
    node.output(i)->setType(like[i]->type());
    if (like[i]->hasDebugName())
      node.output(i)->setDebugName(like[i]->debugNameBase());
  }
}

}  // namespace

PathBuilder::PathBuilder()
    : graph_(std::make_shared<torch::jit::Graph>()),
      memory_(*graph_, [this](Node* node) { insert(node); }) {
  start_ = graph_->insertConstant(IValue())->node();
}

IValue PathBuilder::value_of(const Item& item) const {
  if (item.container == nullptr)
    return item.value;
  const auto& container = *item.container;
  switch (container.kind) {
    case Container::Kind::kList: {
      c10::impl::GenericList list(container.type->expect<c10::ListType>()->getElementType());
      for (const auto& each : container.items)
        list.push_back(value_of(each));
      return list;
    }
    case Container::Kind::kTuple: {
      std::vector<IValue> elements;
      for (const auto& each : container.items)
        elements.push_back(value_of(each));
      const auto type = container.type->expect<c10::TupleType>();
      if (type->schema() != nullptr)
        return c10::ivalue::Tuple::createNamed(std::move(elements), type);
      return c10::ivalue::Tuple::create(std::move(elements));
    }
    case Container::Kind::kDict: {
      const auto type = container.type->expect<c10::DictType>();
      c10::impl::GenericDict dict(type->getKeyType(), type->getValueType());
      for (size_t i = 0; i < container.keys.size(); ++i)
        dict.insert(container.keys[i], value_of(container.items[i]));
      return dict;
    }
    case Container::Kind::kObject:
      break;
  }
  throw NotRecordable("an operator takes an object that the method made");
}

Node* PathBuilder::insert(Node* node) {
  graph_->appendNode(node);
  ++num_nodes_;
  if (origin_ == nullptr)
    return node;
  node->setSourceRange(origin_->sourceRange());
  if (node->kind() == prim::Constant || node->kind() == prim::GetAttr)
    return node;
  if (origin_->hasAttribute(symbols::kModulePath) && !node->hasAttribute(symbols::kModulePath))
    node->s_(symbols::kModulePath, origin_->s(symbols::kModulePath));
  if (origin_->hasAttribute(symbols::kLayer) && !node->hasAttribute(symbols::kLayer))
    node->i_(symbols::kLayer, origin_->i(symbols::kLayer));
  return node;
}

void PathBuilder::move_back(Node* last, Node* target) {
  while (last != target && last->next() != graph_->return_node()) {
    auto* moved = last->next();
    moved->moveAfter(target);
    target = moved;
  }
}

Value* PathBuilder::add_constant(const IValue& value) {
  const torch::jit::WithInsertPoint guard(graph_->return_node());
  return graph_->insertConstant(value);
}

Value* PathBuilder::add(c10::Symbol kind, at::ArrayRef<Value*> inputs, const c10::TypePtr& type) {
  auto* node = insert(graph_->create(kind, inputs, type == nullptr ? 0 : 1));
  return type == nullptr ? nullptr : node->output()->setType(type);
}

Node* PathBuilder::add_node(c10::Symbol kind, at::ArrayRef<Value*> inputs, size_t num_outputs) {
  return insert(graph_->create(kind, inputs, num_outputs));
}

Value* PathBuilder::add_attribute(Value* object, const std::string& name) {
  auto* node = graph_->createGetAttr(object, name)->insertBefore(start_);
  if (origin_ != nullptr)
    node->setSourceRange(origin_->sourceRange());
  return node->output();
}

Value* PathBuilder::add_copy_of_attribute(Value* attribute) {
  const torch::jit::WithInsertPoint guard(start_);
  auto* copy = graph_->insert(aten::clone, {attribute});
  copy->node()->i_(symbols::kBeforeRegions, 1);
  return copy;
}

Node* PathBuilder::add_copy_at_start(Node* node, Value* input,
                                     const std::optional<IValue>& constant) {
  const torch::jit::WithInsertPoint guard(start_);
  // What is declared to be optional is cast where the path comes to it.
  auto* given = input;
  while (given->node()->kind() == prim::unchecked_cast)
    given = given->node()->input();
  if (given != input) {
    auto* cast = graph_->insertNode(graph_->create(prim::unchecked_cast, {given}, 1));
    given = cast->output()->setType(input->type());
  }
  std::vector<Value*> inputs{given};
  if (constant)
    inputs.push_back(graph_->insertConstant(*constant));
  auto* copy = graph_->create(node->kind(), inputs, node->outputs().size());
  copy->copyAttributes(*node);
  copy->copyMetadata(node);
  describe_outputs(*copy, node->outputs());
  return graph_->insertNode(copy);
}

Item PathBuilder::ask_requires_grad(Value* given, const at::Tensor& tensor) {
  auto* question = graph_->create(prim::requires_grad, {given}, 1);
  question->output()->setType(c10::BoolType::get());
  Item answer;
  answer.value = tensor.requires_grad();
  answer.symbol = add_copy_at_start(question, given)->output();
  question->destroy();
  return answer;
}

bool PathBuilder::is_read(const Value* tensor) const {
  return std::any_of(tensor->uses().begin(), tensor->uses().end(), [&](const torch::jit::Use& use) {
    const auto outputs = use.user->outputs();
    return !use.user->isBefore(start_) &&
           std::any_of(outputs.begin(), outputs.end(), [](const Value* output) {
             // What was only found to be the tensor itself is no result.
             const auto& uses = output->uses();
             return contains_tensor(*output->type()) &&
                    (uses.empty() || std::any_of(uses.begin(), uses.end(), [](const auto& each) {
                       return each.user->kind() != kIsSameTensor;
                     }));
           });
  });
}

void PathBuilder::detach_for_readers(Value* given) {
  // The loop changes the uses.  NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::vector<torch::jit::Use> uses(given->uses());
  auto* detached = graph_->create(aten::detach, {given}, 1)->insertBefore(start_)->output();
  detached->setType(given->type());
  for (const auto& use : uses) {
    if (use.user->isBefore(start_))
      continue;
    if (mutates_an_argument(use.user))
      throw NotRecordable("it marks an argument as a leaf to which it has written");
    use.user->replaceInput(use.offset, detached);
  }
}

Node* PathBuilder::add_copy(Node* node, const std::vector<Value*>& inputs) {
  auto* copy = graph_->create(node->kind(), inputs, node->outputs().size());
  copy->copyAttributes(*node);
  describe_outputs(*copy, node->outputs());
  return insert(copy);
}

Node* PathBuilder::add_branch(const std::shared_ptr<Graph>& branch, at::ArrayRef<Value*> inputs,
                              at::ArrayRef<Value*> outputs) {
  auto* node = graph_->create(symbols::kBranch, inputs, outputs.size());
  node->g_(c10::attr::Subgraph, branch);
  describe_outputs(*node, outputs);
  return insert(node);
}

Value* PathBuilder::symbol_of(Item& item, const c10::TypePtr& expected) {
  if (item.container != nullptr)
    return build(*item.container);
  if (item.symbol == nullptr)
    return add_constant(item.value);
  if (!without_grad_ && is_kept_inside(item.symbol))
    throw NotRecordable("it uses a tensor outside of no_grad() that may be its operand, or a view");
  item.symbol = memory_.current(item.symbol);
  if (const auto found = given_names_.find(item.symbol); found != given_names_.end())
    item.symbol = found->second;
  if (is_wider(*item.symbol->type()) && !item.symbol->type()->isSubtypeOf(*expected)) {
    auto* cast = add(prim::unchecked_cast, {item.symbol}, expected);
    memory_.note_same(cast, item.symbol);
    item.symbol = cast;
  }
  return item.symbol;
}

Value* PathBuilder::read(Container& container, size_t index) {
  auto* source = container.source;
  const auto type = element_type(container, index);
  const auto kind =
      container.kind == Container::Kind::kTuple ? prim::TupleIndex : c10::Symbol(aten::__getitem__);
  const auto key = container.kind == Container::Kind::kDict ? container.keys[index]
                                                            : IValue(static_cast<int64_t>(index));
  if (!container.is_callers)
    return add(kind, {source, add_constant(key)}, type);
  // The path may change the caller's container at its end, so it is read at the beginning.
  const torch::jit::WithInsertPoint guard(start_);
  auto* constant = graph_->insertConstant(key);
  auto* node = graph_->insertNode(graph_->create(kind, {source, constant}, 1));
  return node->output()->setType(type);
}

Item& PathBuilder::element(Container& container, size_t index) {
  auto& item = container.items.at(index);
  if (!item.pending)
    return item;
  item.pending = false;
  auto* symbol =
      item.container == nullptr && item.value.isNone() ? nullptr : read(container, index);
  if (item.container != nullptr) {
    set_source(*item.container, symbol);
  } else {
    item.symbol = symbol;
    if (symbol != nullptr && container.is_callers)
      narrow_type(*symbol, item.value);
    if (symbol != nullptr && item.is_tensor())
      memory_.note_element(symbol, container.source);
  }
  return item;
}

void PathBuilder::change(Container& container) {
  require_size(container);
  for (size_t i = 0; i < container.items.size(); ++i)
    element(container, i);
  container.is_changed = true;
}

// Returns whether the container's source holds what the container does, at any depth.
bool PathBuilder::is_current(const Container& container) const {
  return container.source != nullptr && !container.is_changed &&
         std::all_of(container.items.begin(), container.items.end(), [&](const Item& item) {
           if (item.pending)
             return true;
           return item.container == nullptr ? memory_.is_current(item.symbol)
                                            : is_current(*item.container);
         });
}

Value* PathBuilder::build(Container& container) {
  if (is_current(container) || (container.is_callers && changes_are_made_))
    return container.source;
  std::vector<Value*> elements;
  if (container.kind == Container::Kind::kDict) {
    for (size_t i = 0; i < container.keys.size(); ++i) {
      elements.push_back(add_constant(container.keys[i]));
      elements.push_back(symbol_of(element(container, i), element_type(container, i)));
    }
  } else {
    for (size_t i = 0; i < container.items.size(); ++i)
      elements.push_back(symbol_of(element(container, i), element_type(container, i)));
  }
  Value* built = nullptr;
  switch (container.kind) {
    case Container::Kind::kList:
      built = add(prim::ListConstruct, elements, container.type);
      break;
    case Container::Kind::kTuple:
      built = add(prim::TupleConstruct, elements, container.type);
      break;
    case Container::Kind::kDict:
      built = add(prim::DictConstruct, elements, container.type);
      break;
    case Container::Kind::kObject: {
      const auto type = container.type->expect<c10::ClassType>();
      built = add(prim::CreateObject, {}, type);
      for (size_t i = 0; i < elements.size(); ++i) {
        auto* set = insert(graph_->create(prim::SetAttr, {built, elements[i]}, 0));
        set->s_(c10::attr::name, type->getAttributeName(i));
      }
      break;
    }
  }
  // The caller's own container gets the changes at the end of the path.
  if (!container.is_callers) {
    container.source = built;
    container.is_changed = false;
  }
  return built;
}

void PathBuilder::check(Value* condition, bool expected) {
  if (!checked_.emplace(condition->unique(), expected).second)
    return;
  auto* place = add_constant(static_cast<int64_t>(0));  // number_checks() sets it
  auto* check =
      insert(graph_->create(symbols::kCheckPath, {condition, add_constant(expected), place}, 0));
  check->i_(symbols::kDecides, decision_);
}

void PathBuilder::require(Item& item) {
  if (item.symbol == nullptr)
    return;
  if (item.value.isBool()) {
    check(symbol_of(item, c10::BoolType::get()), item.value.toBool());
  } else if (item.value.isInt() || item.value.isDouble() || item.value.isString()) {
    auto* symbol = symbol_of(item, item.value.type());
    check(add(aten::eq, {symbol, add_constant(item.value)}, c10::BoolType::get()), true);
  } else {
    throw NotRecordable("its path depends on a " + item.value.type()->str());
  }
  item.symbol = nullptr;
}

void PathBuilder::require_size(Container& container) {
  if (container.has_determined_size || container.is_callers || container.source == nullptr ||
      container.kind != Container::Kind::kList)
    return;
  container.has_determined_size = true;
  auto* length = add(aten::len, {container.source}, c10::IntType::get());
  auto* equal = add(aten::eq, {length, add_constant(static_cast<int64_t>(container.items.size()))},
                    c10::BoolType::get());
  check(equal, true);
}

}  // namespace aten_recompute
