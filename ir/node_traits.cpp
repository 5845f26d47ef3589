#include "ir/node_traits.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <string>
#include <unordered_set>

#include "ir/operator_facts.h"
#include "ir/registered_facts.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;

bool has_tag(const Node* node, at::Tag tag) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr)
    return false;
  auto op = c10::Dispatcher::singleton().findSchema(schema->operator_name());
  return op.has_value() && op->hasTag(tag);
}

// Returns whether an argument is a list that a node makes of several tensors.
bool takes_several_tensors(const Node* node) {
  return std::any_of(node->inputs().begin(), node->inputs().end(), [](const auto* input) {
    return input->node()->kind() == c10::prim::ListConstruct && contains_tensor(*input->type()) &&
           input->node()->inputs().size() > 1;
  });
}

// Returns whether the node is an einsum that sums over one of its letters. Whether it sums over the
// dimensions of an ellipsis depends on their number.
bool sums_over_a_letter(const Node* node) {
  const auto equation = torch::jit::constant_as<std::string>(node->input(0));
  if (!equation)
    return false;
  const auto arrow = equation->find("->");
  const auto operand = equation->substr(0, arrow);
  return std::any_of(operand.begin(), operand.end(), [&](unsigned char letter) {
    if (std::isalpha(letter) == 0)
      return false;
    return arrow == std::string::npos ? std::count(operand.begin(), operand.end(), letter) > 1
                                      : equation->find(letter, arrow) == std::string::npos;
  });
}

}  // namespace

bool mutates_an_argument(const Node* node) {
  const auto* schema = node->maybeSchema();
  return schema != nullptr && schema->is_mutable();
}

bool writes_to(const Node* node, size_t argument) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || argument >= schema->arguments().size())
    return false;
  const auto* alias = schema->arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

bool slices_whole_dimension(const Node* node) {
  if (node->kind() != c10::aten::slice || node->inputs().size() != 5)  // a slice of a list
    return false;
  const auto start = torch::jit::toIValue(node->input(2));
  const auto end = torch::jit::toIValue(node->input(3));
  return start && (start->isNone() || start->toInt() == 0) && end &&
         (end->isNone() || end->toInt() == std::numeric_limits<int64_t>::max()) &&
         torch::jit::constant_as<int64_t>(node->input(4)) == 1;
}

bool may_alias_an_argument(const Node* node) {
  if (is_cast(node))  // its schema does not say so
    return true;
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || schema->is_mutable())
    return false;
  for (const auto& result : schema->returns()) {
    if (result.alias_info() != nullptr)
      return true;
  }
  return has_fact(node, Fact::kMayCopy) ||
         (has_fact(node, Fact::kMayCopyOnlyElement) && !takes_several_tensors(node) &&
          !sums_over_a_letter(node));
}

bool is_pure_view(const Node* node) {
  return may_alias_an_argument(node) && !has_fact(node, Fact::kMayCopy) &&
         !has_fact(node, Fact::kMayCopyOnlyElement) &&
         (node->kind().is_aten() || node->kind() == symbols::kRequireGrad);
}

bool makes_new_tensor(const torch::jit::Value* value) {
  const auto* node = value->node();
  return node->kind().is_aten() && node->maybeSchema() != nullptr && node->blocks().empty() &&
         !may_alias_an_argument(node) && !mutates_an_argument(node);
}

bool is_pointwise(const Node* node) {
  if (has_tag(node, at::Tag::pointwise))
    return true;
  const auto* schema = node->maybeSchema();
  if (schema == nullptr)
    return false;
  const auto of_tensors =
      c10::Dispatcher::singleton().findSchema(c10::OperatorName(schema->name(), "Tensor"));
  return of_tensors.has_value() && of_tensors->hasTag(at::Tag::pointwise);
}

LeafArgument leaf_argument(const Node* node) {
  const auto* schema = node->maybeSchema();
  const auto index =
      schema == nullptr ? std::nullopt : schema->argumentIndexWithName("requires_grad");
  if (!index)
    return LeafArgument::kNone;
  const auto flag = torch::jit::constant_as<bool>(node->input(static_cast<size_t>(*index)));
  if (!flag)
    return LeafArgument::kUnknown;
  return *flag ? LeafArgument::kTrue : LeafArgument::kFalse;
}

bool is_made_leaf(const torch::jit::Value* value) {
  return value->node()->kind() == c10::aten::requires_grad_ &&
         value->node()->hasAttribute(symbols::kBeforeRegions);
}

bool is_random(const Node* node) {
  if (const auto* registered = registered_facts(node);
      registered != nullptr && registered->random.has_value())
    return *registered->random;
  return has_tag(node, at::Tag::nondeterministic_seeded) || node->isNondeterministic() ||
         has_fact(node, Fact::kRandom);
}

bool may_be_random(const Node* node) {
  if (is_random(node))
    return true;
  if (node->maybeSchema() == nullptr || node->kind().is_aten() || node->kind().is_prim() ||
      node->kind().ns() == symbols::kMarkLayer.ns())
    return false;
  const auto* registered = registered_facts(node);
  return registered == nullptr || !registered->random.has_value();
}

bool may_run_again(const Node* node) {
  const auto* registered = registered_facts(node);
  return registered == nullptr || registered->recomputable;
}

bool updates_hidden_state(const Node* node) {
  if (const auto* registered = registered_facts(node);
      registered != nullptr && (registered->has_replay || !registered->recomputable))
    return true;
  return has_fact(node, Fact::kUpdatesStatistics);
}

bool updates_statistics_only(const Node* node) {
  return has_fact(node, Fact::kUpdatesStatistics) && registered_facts(node) == nullptr;
}

namespace {

// Returns whether the node has running statistics, and its arguments do not say that it leaves them
// as they are. In evaluation, instance norm writes to them, too.
bool has_statistics_to_update(const Node* node) {
  const auto& arguments = node->schema().arguments();
  bool has_statistics = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& name = arguments[i].name();
    if (name == "training") {
      const auto training = torch::jit::constant_as<bool>(node->input(i));
      if (training && !*training)
        return false;
    }
    has_statistics =
        has_statistics || (name.rfind("running", 0) == 0 && !node->input(i)->mustBeNone());
  }
  return has_statistics;
}

}  // namespace

bool has_effect(const Node* node) {
  if (node->hasAttribute(c10::attr::Subgraph)) {
    bool any = false;
    for_each_node(node->g(c10::attr::Subgraph)->block(),
                  [&](const Node* inner) { any = any || has_effect(inner); });
    return any;
  }
  if (may_be_random(node))
    return true;
  return updates_hidden_state(node) &&
         (!updates_statistics_only(node) || has_statistics_to_update(node));
}

bool reads_metadata_only(const Node* node, size_t operand) {
  if (!node->hasAttribute(c10::attr::Subgraph))
    return operand == 0 && has_fact(node, Fact::kReadsMetadataOnly);
  // The last operands are the subgraph's inputs; a random state may come before them.
  const auto inputs = node->g(c10::attr::Subgraph)->inputs();
  const auto others = node->inputs().size() - std::min(node->inputs().size(), inputs.size());
  if (operand < others)
    return false;
  const auto& uses = inputs[operand - others]->uses();
  return std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
    return reads_metadata_only(use.user, use.offset);
  });
}

bool is_non_differentiable(const Node* node) {
  if (has_fact(node, Fact::kNotDifferentiable)) {
    const auto* registered = registered_facts(node);
    return registered == nullptr || !registered->has_gradients;
  }
  // This is a cast to an integer type that is known at compile time.
  if (node->kind() == c10::aten::to || node->kind() == c10::aten::type_as) {
    for (size_t i = 1; i < node->inputs().size(); ++i) {
      const auto* schema = node->maybeSchema();
      if (schema == nullptr || schema->arguments()[i].name() != "dtype")
        continue;
      auto dtype = torch::jit::toIValue(node->input(i));
      if (dtype && dtype->isInt()) {
        const auto type = dtype->toScalarType();
        return !at::isFloatingType(type) && !at::isComplexType(type);
      }
    }
  }
  return false;
}

bool output_is_differentiable(const Node* node, size_t output) {
  const auto& facts = operator_facts(node);
  if (facts.has(Fact::kFirstOutputNotDifferentiable))
    return output > 0;
  if (facts.has(Fact::kOnlyFirstTwoOutputsDifferentiable))
    return output < 2;
  return output == 0 || !facts.has(Fact::kOnlyFirstOutputDifferentiable);
}

bool asks_autograd(const Node* node) {
  return has_fact(node, Fact::kAsksAutograd);
}

bool runs_autograd(const Node* node) {
  return has_fact(node, Fact::kRunsAutograd);
}

bool bounds_autocast_block(const Node* node) {
  return node->kind() == symbols::kEnterAutocast || node->kind() == symbols::kExitAutocast;
}

bool asks_autocast(const Node* node) {
  static const std::unordered_set<c10::Symbol> queries{
      c10::Symbol::fromQualString("aten::is_autocast_enabled"),
      c10::Symbol::fromQualString("aten::is_autocast_cpu_enabled"),
      c10::Symbol::fromQualString("aten::get_autocast_dtype")};
  return queries.count(node->kind()) != 0;
}

bool depends_on_autocast(torch::jit::Block* block) {
  bool depends = false;
  for_each_node(block, [&](const Node* node) {
    depends = depends || bounds_autocast_block(node) || asks_autocast(node);
  });
  return depends;
}

bool is_marker(const Node* node) {
  return has_fact(node, Fact::kMarker);
}

bool is_in_a_loop(const Node* node) {
  for (; node != nullptr; node = node->owningBlock()->owningNode()) {
    if (node->kind() == c10::prim::Loop)
      return true;
  }
  return false;
}

void for_each_node(torch::jit::Block* block, const std::function<void(Node*)>& function) {
  for (auto* node : block->nodes()) {
    function(node);
    for (auto* inner : node->blocks())
      for_each_node(inner, function);
  }
}

namespace {

// A value made inside of `root` has a chain of owning nodes that reaches it.
bool is_made_inside(const torch::jit::Value* value, const Node* root) {
  const auto* owner = value->node()->owningBlock()->owningNode();
  while (owner != nullptr && owner != root)
    owner = owner->owningBlock()->owningNode();
  return owner == root;
}

void collect_free_values(Node* node, const Node* root, std::vector<torch::jit::Value*>& values,
                         std::unordered_set<const torch::jit::Value*>& seen) {
  const auto read = [&](torch::jit::Value* value) {
    if (!is_made_inside(value, root) && seen.insert(value).second)
      values.push_back(value);
  };
  for (auto* input : node->inputs())
    read(input);
  for (auto* block : node->blocks()) {
    for (auto* inner : block->nodes())
      collect_free_values(inner, root, values, seen);
    for (auto* output : block->outputs())
      read(output);
  }
}

}  // namespace

std::vector<torch::jit::Value*> free_values(Node* node) {
  std::vector<torch::jit::Value*> values;
  std::unordered_set<const torch::jit::Value*> seen;
  collect_free_values(node, node, values, seen);
  return values;
}

bool is_cast(const Node* node) {
  return has_fact(node, Fact::kCast);
}

bool contains_tensor(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType)
    return true;
  if (type.kind() == c10::TypeKind::AnyType)
    return true;
  for (const auto& inner : type.containedTypes()) {
    if (contains_tensor(*inner))
      return true;
  }
  return false;
}

bool makes_tensors(const Node* node) {
  const auto outputs = node->outputs();
  return std::any_of(outputs.begin(), outputs.end(),
                     [](const auto* output) { return contains_tensor(*output->type()); });
}

bool is_tensor_type(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType)
    return true;
  if (type.kind() != c10::TypeKind::OptionalType)
    return false;
  const auto inner = type.containedTypes();
  return inner.size() == 1 && inner[0]->kind() == c10::TypeKind::TensorType;
}

bool can_be_none(const c10::Type& type) {
  return type.kind() == c10::TypeKind::OptionalType || type.kind() == c10::TypeKind::NoneType ||
         type.kind() == c10::TypeKind::AnyType;
}

}  // namespace aten_recompute
