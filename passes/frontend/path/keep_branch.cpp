#include "passes/frontend/path/keep_branch.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>

#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "passes/frontend/rewrites/not_recordable.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// A plan keeps all of a branch or nothing, so a branch with more operators is better decided.
constexpr size_t kMaxOperators = 64;

bool is_plain_type(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
      return true;
    default:
      return false;
  }
}

bool only_moves_values(const Node* node) {
  switch (node->kind()) {
    case prim::Constant:
    case prim::If:
    case prim::GetAttr:
    case prim::RaiseException:
    case prim::TupleConstruct:
    case prim::TupleUnpack:
    case prim::TupleIndex:
    case prim::ListConstruct:
    case prim::ListUnpack:
    case prim::unchecked_cast:
    case prim::unchecked_unwrap_optional:
    case prim::Uninitialized:
      return true;
    default:
      return false;
  }
}

bool may_run_as_a_part(const Node* node) {
  if (only_moves_values(node))
    return true;
  return node->blocks().empty() && node->maybeOperator() != nullptr && !node->hasSideEffects() &&
         !node->isNondeterministic() && !may_be_random(node) && !updates_hidden_state(node) &&
         !asks_autograd(node) && !runs_autograd(node) &&
         !has_fact(node, Fact::kChangesTensorItself);
}

void check_operators(Node* branch) {
  size_t num_operators = 0;
  for (auto* block : branch->blocks()) {
    for_each_node(block, [&](Node* node) {
      if (!may_run_as_a_part(node))
        throw NotRecordable("a branch has " + qualified_operator_name(node) + " in it");
      num_operators += only_moves_values(node) ? 0 : 1;
    });
  }
  if (num_operators > kMaxOperators)
    throw NotRecordable("a branch has more than " + std::to_string(kMaxOperators) + " operators");
  for (const auto* output : branch->outputs()) {
    if (!is_plain_type(*output->type()))
      throw NotRecordable("a branch returns a " + output->type()->str());
  }
}

class BranchCopy {
 public:
  BranchCopy(Node* node, const BranchValues& values)
      : values_(values), graph_(std::make_shared<Graph>()) {
    for (auto* value : free_values(node))
      inner_[value] = insert(values_.item_of(value), value->type());
    auto* copy = graph_->createClone(node, [&](Value* value) { return inner_.at(value); });
    graph_->appendNode(copy);
    for (size_t i = 0; i < objects_.size(); ++i)  // grows
      read_attributes(objects_[i].first, objects_[i].second);
    for (auto* output : copy->outputs())
      graph_->registerOutput(output);
  }

  KeptBranch finish() {
    for (const auto& [object, item] : objects_) {
      if (object->hasUses())
        throw NotRecordable("a branch does more with an object than to read its attributes");
    }
    erase_inputs_without_uses();
    const torch::jit::AliasDb aliases(graph_);
    for_each_node(graph_->block(), [&](Node* node) {
      const bool holds_operands = node->owningBlock() == graph_->block() && node->blocks().empty();
      if (holds_operands && node->kind() != prim::Constant && aliases.hasWriters(node))
        throw NotRecordable("a branch changes a container that it was given");
    });
    for (auto* input : graph_->inputs()) {
      if (aliases.hasWriters(input))
        throw NotRecordable("a branch writes to what it was given");
    }
    KeptBranch kept;
    separate_uses();
    kept.graph = graph_;
    kept.operands = std::move(operands_);
    for (const auto* input : graph_->inputs())
      kept.types.push_back(input->type());
    return kept;
  }

 private:
  // Returns the item's value in the copy.
  Value* insert(Item& item, const c10::TypePtr& type) {
    if (item.container != nullptr)
      return insert_container(*item.container);
    if (item.value.isObject())
      return insert_object(item, type);
    if (item.is_constant())
      return graph_->insertConstant(item.value);
    const auto actual =
        item.value.isTensor() ? c10::TypePtr(c10::TensorType::get()) : item.value.type();
    if (item.pending || !is_plain_type(*actual))
      throw NotRecordable("a branch reads a " + type->str());
    operands_.push_back(item);
    return graph_->addInput()->setType(actual);
  }

  Value* insert_object(const Item& item, const c10::TypePtr& type) {
    auto* object = graph_->addInput()->setType(type);
    operands_.push_back(item);
    objects_.emplace_back(object, item);
    return object;
  }

  Value* insert_container(Container& container) {
    std::vector<Value*> elements;
    for (auto& item : container.items) {
      if (item.pending)
        throw NotRecordable("a branch reads a container that the method was given");
      elements.push_back(insert(item, item.value.type()));
    }
    if (container.kind == Container::Kind::kTuple)
      return graph_->insertNode(graph_->createTuple(elements))->output();
    if (container.kind != Container::Kind::kList)
      throw NotRecordable("a branch reads a " + container.type->str());
    const auto element_type = container.type->expect<c10::ListType>()->getElementType();
    return graph_->insertNode(graph_->createList(element_type, elements))->output();
  }

  // Replaces the reads of an object's attributes by values of the path.
  void read_attributes(Value* object, Item item) {
    // The loop changes the uses.  NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
    const std::vector<torch::jit::Use> uses(object->uses());
    for (const auto& use : uses) {
      if (use.user->kind() != prim::GetAttr)
        continue;
      auto& attribute = values_.attribute_of(item, use.user);
      const torch::jit::WithInsertPoint guard(*graph_->nodes().begin());
      auto* value = insert(attribute, use.user->output()->type());
      use.user->output()->replaceAllUsesWith(value);
      use.user->destroy();
    }
  }

  void erase_inputs_without_uses() {
    for (size_t i = graph_->inputs().size(); i-- > 0;) {
      if (graph_->inputs()[i]->hasUses())
        continue;
      graph_->eraseInput(i);
      operands_.erase(operands_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // Eager adds the gradients of all uses of a value one by one, that of the last use first, and
  // those of one operator in the order of its operands. With one input for each use, in this order,
  // those of uses in the branch leave it one by one, too.
  void separate_uses() {
    const auto count = graph_->inputs().size();
    for (size_t i = 0; i < count; ++i) {
      auto* input = graph_->inputs()[i];
      if (!input->type()->isSubtypeOf(*c10::TensorType::get()))
        continue;
      auto uses = input->uses();
      std::reverse(uses.begin(), uses.end());
      for (auto first = uses.begin(); first != uses.end();) {
        const auto last = std::find_if(
            first, uses.end(), [&](const torch::jit::Use& use) { return use.user != first->user; });
        std::reverse(first, last);
        first = last;
      }
      for (size_t k = 1; k < uses.size(); ++k) {  // the first of them keeps the input
        auto* further = graph_->addInput()->copyMetadata(input);
        uses[k].user->replaceInput(uses[k].offset, further);
        operands_.push_back(operands_[i]);
      }
    }
  }

  const BranchValues& values_;
  std::shared_ptr<Graph> graph_;
  std::unordered_map<Value*, Value*> inner_;  // by the value of the method
  std::vector<Item> operands_;                // per input of graph_
  std::vector<std::pair<Value*, Item>> objects_;
};

}  // namespace

bool is_result_changed(Node* node, const torch::jit::AliasDb& aliases) {
  const auto outputs = node->outputs();
  const auto reads = free_values(node);
  return std::any_of(outputs.begin(), outputs.end(), [&](Value* output) {
    return std::any_of(reads.begin(), reads.end(), [&](Value* value) {
      return contains_tensor(*value->type()) && contains_tensor(*output->type()) &&
             aliases.mayContainAlias(output, value) &&
             (aliases.hasWriters(output) || aliases.hasWriters(value));
    });
  });
}

KeptBranch keep_branch(Node* node, const BranchValues& values) {
  check_operators(node);
  return BranchCopy(node, values).finish();
}

}  // namespace aten_recompute
