#include "passes/frontend/path/path_gradients.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "ir/gradient_reach.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"
#include "passes/frontend/path/given_values.h"
#include "passes/frontend/path/graph_of_value.h"
#include "passes/frontend/rewrites/not_recordable.h"
#include "runtime/inner_gradient.h"
#include "runtime/path_check.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

namespace {

bool may_have_gradient(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

// Returns whether it is not known if what the operator returns requires a gradient, where its
// operands are known.
bool is_unknown(const Node* node) {
  const auto is_list = [](const Value* value) {
    return value->type()->kind() == c10::TypeKind::ListType && contains_tensor(*value->type());
  };
  const auto inputs = node->inputs();
  const auto outputs = node->outputs();
  // A gradient of a linear function is a constant, what is inside of a branch or of a program's own
  // operator is not known, and of lists each element has its own answer.
  const auto kind = node->kind();
  const bool is_ours = kind.is_aten() || kind.is_prim() || kind.ns() == symbols::kGradient.ns();
  const bool maps_lists = std::any_of(inputs.begin(), inputs.end(), is_list) &&
                          std::any_of(outputs.begin(), outputs.end(), is_list);
  return kind == symbols::kGradient || !is_ours || maps_lists || !node->blocks().empty() ||
         node->hasAttribute(c10::attr::Subgraph) || node->hasAttribute(symbols::kBeforeRegions);
}

bool makes_leaf(const Node* node) {
  const auto argument = leaf_argument(node);
  if (argument != LeafArgument::kNone)
    return argument == LeafArgument::kTrue;
  return node->kind() == symbols::kRequireGrad || node->kind() == c10::aten::requires_grad_;
}

// Returns whether only a call tells if the operator makes a leaf.
bool may_make_leaf(const Node* node) {
  return leaf_argument(node) == LeafArgument::kUnknown;
}

// Returns whether a call may give the operator a type or a number for which it makes complex
// numbers, whatever the tensors hold.
bool number_may_be_complex(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr)
    return false;
  const auto& arguments = schema->arguments();
  for (size_t i = 0; i < std::min(arguments.size(), node->inputs().size()); ++i) {
    const auto* value = node->input(i);
    const auto maker = value->node()->kind();
    if (maker == c10::prim::Constant || maker == c10::prim::dtype)
      continue;
    if (arguments[i].name() == "dtype" || value->type()->kind() == c10::TypeKind::NumberType ||
        value->type()->kind() == c10::TypeKind::ComplexType)
      return true;
  }
  return false;
}

// Returns whether the path returns the leaf, a container with it or a view of it. Throws
// NotRecordable where the path writes to such a value or keeps it in an attribute.
bool is_returned(torch::jit::Graph& graph, Value* leaf) {
  std::unordered_set<const Value*> holders{leaf};
  for (const auto* node : graph.nodes()) {
    const auto inputs = node->inputs();
    const bool reads_leaf = std::any_of(inputs.begin(), inputs.end(), [&](const Value* input) {
      return holders.count(input) != 0;
    });
    if (reads_leaf && (node->kind() == c10::prim::SetAttr || mutates_an_argument(node)))
      throw NotRecordable("it hands a leaf that it made to the caller");
    if (reads_leaf && (may_alias_an_argument(node) || has_fact(node, Fact::kMovesValues) ||
                       node->kind() == c10::prim::DictConstruct))
      holders.insert(node->outputs().begin(), node->outputs().end());
  }
  const auto outputs = graph.outputs();
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](const Value* output) { return holders.count(output) != 0; });
}

}  // namespace

bool may_return_operand(const Node* node) {
  return has_fact(node, Fact::kReturnsArgumentOfSameType) ||
         has_fact(node, Fact::kReturnsArgumentOfSameLayout);
}

void PathGradients::note_result(const c10::IValue& result, const Value* symbol) {
  if (!result.isTensor() || !result.toTensor().defined())
    return;
  if (!may_have_gradient(result.toTensor()))
    integers_.insert(symbol);
  has_complex_ = has_complex_ || result.toTensor().is_complex();
}

void PathGradients::note_name(const Item& item, Value* symbol) {
  if (item.container != nullptr) {
    for (const auto& element : item.container->items)
      note_name(element, element.symbol);
  } else if (symbol != nullptr && item.is_tensor() && item.value.toTensor().defined()) {
    const auto& tensor = item.value.toTensor();
    has_complex_ = has_complex_ || tensor.is_complex();
    c10::weak_intrusive_ptr<c10::TensorImpl> weak(tensor.getIntrusivePtr());
    const auto names = names_.try_emplace(tensor.unsafeGetTensorImpl(), Names{std::move(weak), {}});
    names.first->second.symbols.insert(symbol);
  }
}

void PathGradients::note_only_name(const Item& item, Value* symbol) {
  if (item.is_tensor())
    names_.erase(item.value.toTensor().unsafeGetTensorImpl());
  note_name(item, symbol);
}

Value* PathGradients::first_name(const Item& target, Value* symbol) {
  if (!target.is_tensor())
    return symbol;
  const auto found = names_.find(target.value.toTensor().unsafeGetTensorImpl());
  if (found == names_.end())
    return symbol;
  auto* first = symbol;
  for (auto* name : found->second.symbols) {
    // A name from before a write to the memory of the tensor stands for another version of it.
    if (name != first && builder_.memory().is_current(name) &&
        reach_forward(*builder_.graph(), {name}).count(first) != 0)
      first = name;
  }
  if (first != symbol) {
    auto* same = builder_.add(kIsSameTensor, {first, symbol}, c10::BoolType::get());
    builder_.check(same, true);
  }
  return first;
}

bool PathGradients::require_same(const Item& item, Value* symbol, Value* other) {
  const auto found = names_.find(item.value.toTensor().unsafeGetTensorImpl());
  const bool is_same = found != names_.end() && found->second.symbols.count(other) != 0;
  builder_.check(builder_.add(kIsSameTensor, {symbol, other}, c10::BoolType::get()), is_same);
  return is_same;
}

bool PathGradients::is_reached(const Value* target, const std::vector<Value*>& outputs) const {
  const auto reached = reach_forward(*builder_.graph(), {target}, nullptr, [&](const Value* value) {
    return integers_.count(value) != 0;
  });
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](const Value* output) { return reached.count(output) != 0; });
}

std::vector<Value*> PathGradients::symbols_of(Value* list) {
  const auto& item = values_.get(list);
  if (item.container == nullptr)
    throw NotRecordable("autograd.grad() takes a list whose length is not known");
  builder_.require_size(*item.container);
  std::vector<Value*> symbols;
  for (size_t i = 0; i < item.container->items.size(); ++i) {
    auto& element = builder_.element(*item.container, i);
    const bool is_none = element.container == nullptr && element.value.isNone();
    symbols.push_back(is_none ? nullptr : builder_.symbol_of(element, c10::TensorType::get()));
    note_name(element, symbols.back());
  }
  return symbols;
}

bool PathGradients::flag(Value* value, bool otherwise) {
  auto& item = values_.get(value);
  builder_.require(item);
  return item.value.isNone() ? otherwise : item.value.toBool();
}

void PathGradients::require_output_gradients(Value* output_list, const std::vector<Value*>& outputs,
                                             Value* given_list, const std::vector<Value*>& given) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& output = values_.get(output_list).container->items[i].value.toTensor();
    if (given[i] != nullptr) {
      const auto& gradient = values_.get(given_list).container->items[i].value.toTensor();
      if (gradient.sizes() != output.sizes())
        throw NotRecordable("autograd.grad() gets a gradient of another shape than its output");
      continue;
    }
    if (output.numel() != 1 || output.is_complex())
      throw NotRecordable("autograd.grad() gets no gradient for an output that is no real number");
    if (output.dim() == 0)
      continue;  // whatever the sizes of other tensors are
    static const auto numel = c10::Symbol::fromQualString("aten::numel");
    Item count;
    count.value = output.numel();
    count.symbol = builder_.add(numel, {outputs[i]}, c10::IntType::get());
    builder_.require(count);
  }
}

void PathGradients::run_grad(Node* node, bool grad_mode) {
  const auto outputs = symbols_of(node->input(0));
  auto targets = symbols_of(node->input(1));
  const auto& given_item = values_.get(node->input(2));
  auto given = given_item.is_constant() && given_item.value.isNone()
                   ? std::vector<Value*>(outputs.size(), nullptr)
                   : symbols_of(node->input(2));
  if (given.size() != outputs.size())
    throw CallRaises();
  require_output_gradients(node->input(0), outputs, node->input(2), given);
  GradientRequest request;
  request.create_graph = flag(node->input(4), false);
  request.retain_graph = flag(node->input(3), request.create_graph);
  const bool allow_unused = flag(node->input(5), false);
  std::vector<Value*> operands = outputs;
  std::vector<Value*> unused;
  std::vector<size_t> used;
  const auto& target_items = values_.get(node->input(1)).container->items;
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i] = first_name(target_items[i], targets[i]);
    if (!is_reached(targets[i], outputs)) {
      unused.push_back(targets[i]);
      continue;
    }
    used.push_back(i);
    operands.push_back(targets[i]);
  }
  if (!allow_unused && used.size() < targets.size())
    throw NotRecordable("autograd.grad() has a target that its outputs do not depend on");
  std::vector<Item> results(targets.size(), constant_item(c10::IValue(), c10::NoneType::get()));
  if (targets.empty() || (used.empty() && !grad_mode))
    throw NotRecordable("autograd.grad() has no target that its outputs depend on");
  for (auto* gradient : given) {
    request.has_gradient.push_back(gradient != nullptr ? 1 : 0);
    if (gradient != nullptr)
      operands.push_back(gradient);
  }
  operands.insert(operands.end(), unused.begin(), unused.end());
  const auto nodes = builder_.graph()->nodes();
  request.is_real =
      !has_complex_ && std::none_of(nodes.begin(), nodes.end(), number_may_be_complex);
  request.num_outputs = static_cast<int64_t>(outputs.size());
  request.num_targets = static_cast<int64_t>(used.size());
  auto* gradient = builder_.add_node(symbols::kGradient, operands, used.size() + 1);
  request.write(*gradient);
  if (!request.create_graph)
    gradient->i_(symbols::kWithoutGraph, 1);
  builder_.check(gradient->outputs().back()->setType(c10::BoolType::get()), true);

  for (size_t k = 0; k < used.size(); ++k) {
    auto& result = results[used[k]];
    const auto& target = target_items[used[k]];
    result.value = at::zeros_like(target.value.toTensor());
    result.symbol = gradient->output(k)->setType(c10::TensorType::get());
    result.has_determined_type = target.has_determined_type;
  }
  values_.set(node->output(),
              make_container(Container::Kind::kList, node->output()->type(), std::move(results)));
}

at::Tensor PathGradients::tensor_named(Value* symbol) const {
  for (const auto& [impl, names] : names_) {
    if (names.symbols.count(symbol) == 0)
      continue;
    if (auto tensor = names.tensor.lock())
      return at::Tensor(std::move(tensor));
  }
  return {};
}

PathGradients::Origins PathGradients::origins_of(Value* symbol, bool grad_mode) const {
  // Without gradients, a view of a tensor that requires one does so, and an operator that has
  // nothing to do returns such a tensor itself.
  const auto passes = [&](const Node* node) {
    return !is_non_differentiable(node) && !node->hasAttribute(symbols::kWithoutGraph) &&
           (grad_mode || may_alias_an_argument(node) || may_return_operand(node));
  };
  Origins origins;
  std::vector<Value*> pending{symbol};
  std::unordered_set<const Value*> seen;
  while (!pending.empty()) {
    auto* value = pending.back();
    pending.pop_back();
    if (!contains_tensor(*value->type()) || integers_.count(value) != 0 ||
        !seen.insert(value).second)
      continue;
    auto* maker = value->node();
    if (makes_leaf(maker)) {
      origins.has_leaf = true;
    } else if (is_given(value)) {
      origins.given.push_back(value);
    } else if (may_make_leaf(maker) || (passes(maker) && is_unknown(maker))) {
      origins.is_unknown = true;
    } else if (passes(maker)) {
      for (size_t i = 0; i < maker->inputs().size(); ++i) {
        if (passes_gradient(maker, i, value->offset()))
          pending.push_back(maker->input(i));
      }
    }
  }
  return origins;
}

bool PathGradients::requires_grad_already(Value* symbol, bool grad_mode) const {
  return makes_leaf(symbol->node()) || (grad_mode && origins_of(symbol, grad_mode).has_leaf);
}

std::optional<bool> PathGradients::requires_grad(Value* symbol, bool grad_mode) {
  if (makes_leaf(symbol->node()))
    return true;
  const auto origins = origins_of(symbol, grad_mode);
  if (origins.has_leaf && grad_mode)
    return true;
  if (grad_mode && origins.is_unknown)
    return requires_grad_by_formulas(symbol);
  if (origins.has_leaf || origins.is_unknown)
    return std::nullopt;
  std::vector<Item> answers;
  for (auto* value : origins.given) {
    const auto tensor = tensor_named(value);
    if (!tensor.defined())
      return std::nullopt;
    if (!may_have_gradient(tensor))
      continue;
    auto answer = builder_.ask_requires_grad(value, tensor);
    if (tensor.requires_grad()) {
      if (!grad_mode)
        return std::nullopt;
      builder_.require(answer);  // whatever the others are
      return true;
    }
    answers.push_back(std::move(answer));
  }
  for (auto& answer : answers)
    builder_.require(answer);
  without_grad_.insert(origins.given.begin(), origins.given.end());
  return false;
}

std::optional<bool> PathGradients::requires_grad_by_formulas(Value* symbol) {
  if (output_requires_grad_ == nullptr)
    return std::nullopt;
  const auto is_input = [&](const Value* value) {
    return is_given(value) || integers_.count(value) != 0 ||
           value->node()->kind() == c10::aten::requires_grad_;
  };
  const auto is_left_out = [](const Node* node) {
    return may_make_leaf(node) || (node->kind() != symbols::kGradient && is_unknown(node));
  };
  const auto formulas = graph_of_value(symbol, is_input, is_left_out);
  if (!formulas)
    return std::nullopt;
  std::vector<bool> requires_grad;
  std::vector<Item> answers;
  for (auto* value : formulas->inputs) {
    requires_grad.push_back(makes_leaf(value->node()));
    if (!is_given(value) || !contains_tensor(*value->type()))
      continue;
    const auto tensor = tensor_named(value);
    if (!tensor.defined())
      return std::nullopt;
    if (!may_have_gradient(tensor))
      continue;
    requires_grad.back() = tensor.requires_grad();
    answers.push_back(builder_.ask_requires_grad(value, tensor));
  }
  const auto known = output_requires_grad_(formulas->graph, requires_grad);
  if (!known)
    return std::nullopt;
  for (auto& answer : answers)
    builder_.require(answer);
  if (!*known)
    without_grad_.insert(symbol);
  return known;
}

void PathGradients::hand_out_leaves() {
  auto& graph = *builder_.graph();
  std::vector<Value*> made;
  bool frees_graph = false;
  for (auto* node : graph.nodes()) {
    if (node->kind() == symbols::kRequireGrad)
      made.push_back(node->output());
    frees_graph = frees_graph ||
                  (node->kind() == symbols::kGradient && !GradientRequest::of(*node).retain_graph);
  }
  // With several regions, the caller can ask for gradients of the marked tensor. But a gradient
  // that frees its graph would free all of the regions that it passes through.
  for (auto* value : marked_) {
    if (!frees_graph && is_returned(graph, value))
      throw NotRecordable("it returns a tensor that it marked");
  }
  for (auto* leaf : made) {
    if (!is_returned(graph, leaf))
      continue;
    const bool is_handed_out =
        leaves_.count(leaf) != 0 &&
        (builder_.make_before_regions(leaf) || (!has_complex_ && builder_.return_leaf(leaf)));
    if (!is_handed_out)
      throw NotRecordable("it returns a leaf that it made");
  }
}

Value* PathGradients::mark(Value* symbol) {
  const auto before = detached_.find(symbol);
  if (before != detached_.end())
    return before->second;
  for (auto* value = symbol; mutates_an_argument(value->node()); value = value->node()->input(0)) {
    if (detached_.count(value->node()->input(0)) != 0)
      throw NotRecordable("it marks a leaf again to which it has written");
  }
  auto* leaf = builder_.add(symbols::kRequireGrad, {symbol}, c10::TensorType::get());
  const auto is_without_grad = [&](const Value* value) { return without_grad_.count(value) != 0; };
  const auto origins = origins_of(symbol, true);
  const bool is_leaf = is_without_grad(symbol) ||
                       (!origins.has_leaf && !origins.is_unknown &&
                        std::all_of(origins.given.begin(), origins.given.end(), is_without_grad));
  if (is_leaf)
    leaves_.insert(leaf);
  return leaf;
}

void PathGradients::run_requires_grad(Node* node) {
  auto item = values_.get(node->input(0));
  auto* symbol = builder_.symbol_of(item, c10::TensorType::get());
  const bool sets = flag(node->input(1), true);
  if (!sets && leaves_.count(symbol) == 0)
    throw NotRecordable("it calls requires_grad_(False)");
  auto* renamed =
      sets ? mark(symbol) : builder_.add(c10::aten::detach, {symbol}, c10::TensorType::get());
  if (!sets)
    detached_[renamed] = symbol;
  builder_.memory().replace_name(symbol, renamed);
  note_only_name(item, renamed);
  item.symbol = renamed;
  values_.set(node->output(), item);
}

}  // namespace aten_recompute
