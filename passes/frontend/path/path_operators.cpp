#include "passes/frontend/path/path_operators.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/check_blocks.h"
#include "ir/functionalize.h"
#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"
#include "passes/frontend/path/determined_types.h"
#include "passes/frontend/path/given_values.h"
#include "passes/frontend/path/meta_run.h"
#include "passes/frontend/rewrites/not_recordable.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;
namespace aten = c10::aten;
namespace prim = c10::prim;

// Returns whether a conversion between types may ask for a memory format, or for a type that is
// not the same in all calls.
bool may_ask_for_layout(const Node* node) {
  const auto& arguments = node->schema().arguments();
  for (size_t i = 1; i < node->inputs().size(); ++i) {
    const auto& type = *node->input(i)->type();
    const bool is_constant = node->input(i)->node()->kind() == prim::Constant;
    const bool is_format = arguments[i].name() == "memory_format";
    if (is_format ? type.kind() != c10::TypeKind::NoneType
                  : !is_constant && type.kind() != c10::TypeKind::TensorType)
      return true;
  }
  return false;
}

// Returns whether the value is computed from a gradient that the method asks for. The run that
// records the path has zeros in its place.
bool depends_on_gradient(const Value* value) {
  std::vector<const Value*> pending{value};
  std::unordered_set<const Node*> seen;
  while (!pending.empty()) {
    const auto* maker = pending.back()->node();
    pending.pop_back();
    if (maker->kind() == symbols::kGradient)
      return true;
    if (seen.insert(maker).second)
      pending.insert(pending.end(), maker->inputs().begin(), maker->inputs().end());
  }
  return false;
}

// Returns whether the block has no effect but to raise or warn, and has only operators and `if`s in
// it: a loop in a check is decided, as other loops are.
bool is_check(Block* block) {
  bool has_only_operators = true;
  for_each_node(block, [&](const Node* node) {
    has_only_operators =
        has_only_operators && (raises_or_warns(node) || node->kind() == prim::Constant ||
                               node->kind() == prim::If || node->maybeOperator() != nullptr);
  });
  return has_only_operators && only_raises_or_warns(block);
}

}  // namespace

std::vector<IValue> PathOperators::execute(Node* node, const std::vector<Item>& operands) {
  Stack stack;
  for (const auto& item : operands)
    stack.push_back(builder_.value_of(item));
  if (mutates_an_argument(node) || updates_hidden_state(node)) {
    for (const auto& value : stack)
      writes_.prepare_write(value);
  }
  if (node->getOperator().schema().is_vararg() && node->getOperator().hasOperation())
    stack.emplace_back(static_cast<int64_t>(operands.size()));
  if (meta_run_ != nullptr) {
    meta_run_->run(node, stack);
    return {stack.begin(), stack.end()};
  }
  const auto given = stack;  // on the meta device, where a step is estimated
  try {
    node->getOperation()(stack);
  } catch (const std::exception&) {
    stack = given;
    if (!run_shape_function(node, stack))
      throw CallRaises(" in " + qualified_operator_name(node));
  }
  return {stack.begin(), stack.end()};
}

void PathOperators::run(Node* node, const std::vector<Item>& operands) {
  const bool only_warns = node->kind() == aten::warn || node->kind() == prim::Print;
  if (node->maybeOperator() == nullptr || !node->blocks().empty() ||
      (node->hasSideEffects() && !only_warns))
    throw NotRecordable("it has " + qualified_operator_name(node) + " in it");
  if (run_with_out(node, operands))
    return;
  const bool writes_to_own = is_in_place(node) && writes_to_own_memory(operands[0]);
  if (!writes_to_own)
    check_written(node, operands);
  std::vector<IValue> results;
  if (!only_warns)
    results = execute(node, operands);
  if (writes_to_own)
    return record_write(node, operands, results[0]);
  if (without_grad_ && is_in_place(node) && operands[0].is_tensor())
    return record_callers_write(node, operands);
  // An operator without operands asks for a state of the process, which may change.
  const bool keeps = only_warns || mutates_an_argument(node) || makes_tensors(node) ||
                     is_random(node) || operands.empty();
  if (!keeps && has_fact(node, Fact::kFollowsFromType) && has_determined_type(operands[0])) {
    attributes_.require_types();
    return set_constants(node, results);
  }
  if (!keeps && std::all_of(operands.begin(), operands.end(), is_fully_constant))
    return set_constants(node, results);
  record(node, operands, results);
}

bool PathOperators::run_with_out(Node* node, const std::vector<Item>& operands) {
  const auto last = operands.size() - 1;
  if (operands.empty() || node->outputs().size() != 1 || !node->kind().is_aten() ||
      !writes_to(node, last) || node->schema().arguments()[last].name() != "out" ||
      !operands[last].is_tensor())
    return false;
  // No gradient passes through a tensor of integers.
  const auto target = operands[last].value.toTensor();
  const bool are_integers = std::all_of(operands.begin(), operands.end(), [](const Item& operand) {
    return !operand.is_tensor() ||
           at::isIntegralType(operand.value.toTensor().scalar_type(), /*includeBool=*/true);
  });
  if (!are_integers || !writes_.is_own(target))
    return false;
  const auto inputs = node->inputs();
  auto& graph = *node->owningGraph();
  auto* compute = graph.create(node->kind(), inputs.slice(0, last))->copyMetadata(node);
  auto* no_wait = graph.create(prim::Constant)->i_(c10::attr::value, 0);
  no_wait->output()->setType(c10::BoolType::get());
  auto* copy = graph.create(aten::copy_, {inputs[last], compute->output(), no_wait->output()})
                   ->copyMetadata(node);
  bool has_run = false;
  if (compute->maybeOperator() != nullptr) {
    const std::vector<Item> others(operands.begin(), operands.end() - 1);
    const auto results = execute(compute, others);
    const auto& result = results[0].toTensor();
    if (result.sizes() == target.sizes() && result.scalar_type() == target.scalar_type()) {
      record(compute, others, results);
      values_.set(no_wait->output(), constant_item(false, c10::BoolType::get()));
      run(copy, {operands[last], values_.get(compute->output()), values_.get(no_wait->output())});
      values_.set(node->output(), values_.get(copy->output()));
      for (auto* value : {copy->output(), compute->output(), no_wait->output()})
        values_.forget(value);
      has_run = true;
    }
  }
  for (auto* added : {copy, compute, no_wait})
    added->destroy();
  return has_run;
}

void PathOperators::check_written(const Node* node, const std::vector<Item>& operands) const {
  if (!mutates_an_argument(node) && !updates_hidden_state(node))
    return;
  for (const auto& operand : operands) {
    if (operand.is_tensor() && writes_.is_taken(operand.value.toTensor()))
      throw NotRecordable(qualified_operator_name(node) + " reads or writes an attribute");
  }
}

std::vector<Value*> PathOperators::symbols_of_inputs(const Node* node) {
  std::vector<Value*> symbols;
  for (const auto* input : node->inputs())
    symbols.push_back(builder_.symbol_of(values_.get(input), input->type()));
  return symbols;
}

void PathOperators::set_constants(const Node* node, const std::vector<IValue>& results) {
  for (size_t i = 0; i < node->outputs().size(); ++i)
    values_.set(node->output(i), constant_item(results[i], node->output(i)->type()));
}

void PathOperators::record(Node* node, const std::vector<Item>& operands,
                           const std::vector<IValue>& results) {
  const auto symbols = symbols_of_inputs(node);
  auto* copy = builder_.add_copy(node, symbols);
  const bool has_determined_types = determines_types(node, operands);
  const auto outputs = node->outputs();
  for (size_t i = 0; i < operands.size(); ++i)
    gradients_.note_name(operands[i], symbols[i]);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (results[i].isGenericDict())
      throw NotRecordable(qualified_operator_name(node) + " returns a dict");
    note_memory(results[i], copy->output(i), operands, symbols);
    gradients_.note_result(results[i], copy->output(i));
    auto* symbol = copy->output(i);
    if (without_grad_) {
      symbol = without_grad(symbol, results[i]);
      keep_inside(symbol, copy, results[i], operands);
    }
    auto item = make_item(results[i], symbol, outputs[i]->type(), false);
    if (item.container != nullptr && reads_metadata_only(node, 0) &&
        has_determined_type(operands[0])) {
      attributes_.require_types();  // the rank is the length
      item.container->has_determined_size = true;
    }
    if (!has_determined_types)
      mark_undetermined(item);
    values_.set(outputs[i], std::move(item));
  }
}

void PathOperators::record_write(Node* node, const std::vector<Item>& operands,
                                 const IValue& result) {
  const auto symbols = symbols_of_inputs(node);
  if (without_grad_ && (!is_without_grad(symbols[0]) || builder_.is_kept_inside(symbols[0])))
    throw NotRecordable("it writes under no_grad() to a tensor that was not made there");
  auto* content = written_content(node, symbols, operands, result);
  if (without_grad_)
    content = without_grad(content, result);
  auto* whole = builder_.memory().write(symbols[0], content);
  gradients_.note_only_name(operands[0], builder_.memory().current(symbols[0]));
  if (without_grad_)
    made_without_grad_.insert(whole);  // what the target is a view of was made without, too
  auto item = operands[0];
  item.symbol = symbols[0];
  item.value = result;
  values_.set(node->output(), item);
}

Value* PathOperators::written_content(Node* node, std::vector<Value*> symbols,
                                      const std::vector<Item>& operands, const IValue& result) {
  auto& memory = builder_.memory();
  auto* target = symbols[0];
  if (node->kind() == aten::copy_ && memory.is_put_in(target)) {
    auto* content = builder_.add(aten::expand_as, {symbols[1], target}, c10::TensorType::get());
    if (operands[1].value.toTensor().scalar_type() != result.toTensor().scalar_type())
      content = builder_.add(aten::type_as, {content, target}, c10::TensorType::get());
    return content;
  }
  auto* copy = builder_.add_copy(node, symbols);
  if (auto* content = make_functional(copy))
    return content;
  copy->destroy();
  auto* none = builder_.add_constant(IValue());
  symbols[0] = builder_.add(aten::clone, {target, none}, c10::TensorType::get());
  if (memory.is_view(target))
    symbols[0] = memory.with_gaps_of(symbols[0], target);
  return builder_.add_copy(node, symbols)->output();
}

bool PathOperators::is_without_grad(const Value* value) const {
  return !contains_tensor(*value->type()) || value->node()->kind() == prim::Constant ||
         value->node()->hasAttribute(symbols::kBeforeRegions) ||
         made_without_grad_.count(value) != 0;
}

Value* PathOperators::without_grad(Value* result, const IValue& value) {
  if (!contains_tensor(*result->type()))
    return result;
  const auto inputs = result->node()->inputs();
  const bool is_safe = std::all_of(inputs.begin(), inputs.end(),
                                   [&](const Value* input) { return is_without_grad(input); });
  if (!is_safe) {
    if (!value.isTensor())
      throw NotRecordable("an operator under no_grad() returns a list");
    auto* detached = builder_.add(aten::detach, {result}, c10::TensorType::get());
    if (writes_.is_own(value.toTensor()))
      builder_.memory().note_view(detached, result);
    result = detached;
  }
  made_without_grad_.insert(result);
  return result;
}

void PathOperators::keep_inside(Value* symbol, const Node* node, const IValue& value,
                                const std::vector<Item>& operands) {
  if (!value.isTensor() || node->kind() == aten::detach)
    return;
  const auto inputs = node->inputs();
  const bool is_safe = std::all_of(inputs.begin(), inputs.end(), [&](const Value* input) {
    return is_without_grad(input) && !builder_.is_kept_inside(input);
  });
  const bool may_be_operand =
      may_alias_an_argument(node) ||
      std::any_of(operands.begin(), operands.end(), [&](const Item& operand) {
        return operand.is_tensor() && operand.value.toTensor().is_same(value.toTensor());
      });
  if (!is_safe && may_be_operand)
    builder_.keep_inside(symbol);
}

void PathOperators::record_callers_write(Node* node, const std::vector<Item>& operands) {
  auto symbols = symbols_of_inputs(node);
  // In the memory of the target, but with no history.
  symbols[0] = builder_.add(aten::detach, {symbols[0]}, c10::TensorType::get());
  builder_.add_copy(node, symbols);
  values_.set(node->output(), operands[0]);
}

void PathOperators::note_memory(const IValue& result, Value* symbol,
                                const std::vector<Item>& operands,
                                const std::vector<Value*>& symbols) {
  const bool is_list = result.isTensorList() && !result.toListRef().empty();
  if (!is_list && !result.isTensor())
    return;
  const auto tensor = is_list ? result.toListRef()[0].toTensor() : result.toTensor();
  if (!writes_.is_own(tensor))
    return;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].is_tensor() || operands[i].is_constant())
      continue;
    const auto& operand = operands[i].value.toTensor();
    if (!operand.has_storage() || !operand.is_alias_of(tensor))  // a sparse tensor has none
      continue;
    if (is_list)
      builder_.memory().note_list(symbol, symbols[i]);
    else if (mutates_an_argument(symbol->node()))
      builder_.memory().note_same(symbol, symbols[i]);
    else
      builder_.memory().note_view(symbol, symbols[i]);
    return;
  }
}

bool PathOperators::writes_to_own_memory(const Item& target) {
  if (!target.is_tensor() || target.symbol == nullptr || !writes_.is_own(target.value.toTensor()))
    return false;
  if (may_be_callers(target.symbol))
    throw NotRecordable("it writes to a tensor that may be the caller's in another call");
  return true;
}

bool PathOperators::may_be_callers(const Value* value) {
  while (!is_given(value)) {
    const auto* node = value->node();
    if (node->inputs().empty() || (!may_alias_an_argument(node) && !mutates_an_argument(node)))
      return false;
    if (has_fact(node, Fact::kReturnsArgumentOfSameType) && !may_ask_for_layout(node)) {
      attributes_.require_types();
      return false;  // it copies in every call
    }
    value = node->input(0);
  }
  return true;
}

// Operators such as to() and contiguous() return their operand where they have nothing to do.
// requires_grad_() of their result marks the operand then.
std::vector<Value*> PathOperators::take_name_of_operand(Item& tensor) {
  std::vector<Value*> names;
  bool follows_from_types = has_determined_type(tensor);
  while (may_return_operand(tensor.symbol->node()) && !is_given(tensor.symbol)) {
    auto* maker = tensor.symbol->node();
    auto* operand = maker->input(0);
    if (!builder_.memory().is_current(operand))
      throw NotRecordable("it marks a leaf that was written to by another name");
    const bool is_operand = gradients_.require_same(tensor, tensor.symbol, operand);
    if (!is_operand)
      break;
    names.push_back(tensor.symbol);
    tensor.symbol = operand;
    follows_from_types = follows_from_types &&
                         !has_fact(maker, Fact::kReturnsArgumentOfSameLayout) &&
                         !may_ask_for_layout(maker);
  }
  if (!names.empty() && is_given(tensor.symbol)) {
    // The caller's tensor is marked before the path can be left.
    if (!follows_from_types)
      throw NotRecordable("it marks an argument as a leaf if that has a certain layout");
    attributes_.require_types();
  }
  return names;
}

void PathOperators::mark_given(Node* node, Item& tensor, bool flag,
                               const std::vector<Value*>& names) {
  // The path marks the tensor before all that it computes, and what it has computed from it so far
  // has no gradient.
  if (builder_.is_read(tensor.symbol)) {
    auto answer = builder_.ask_requires_grad(tensor.symbol, tensor.value.toTensor());
    const bool is_marked = answer.value.toBool();
    builder_.require(answer);
    if (is_marked)
      return;
    builder_.detach_for_readers(tensor.symbol);
  }
  auto* copy = builder_.add_copy_at_start(node, tensor.symbol, flag);
  writes_.add_other_change();
  builder_.rename_given(tensor.symbol, copy->output());
  for (auto* name : names)
    builder_.rename_given(name, copy->output());
  gradients_.note_only_name(tensor, copy->output());
  tensor.symbol = copy->output();
}

bool PathOperators::run_requires_grad(Node* node, const std::function<bool()>& mode_now) {
  auto& tensor = values_.get(node->input(0));
  auto& flag = values_.get(node->input(1));
  if (tensor.symbol == nullptr || !tensor.is_tensor())
    return false;
  builder_.symbol_of(tensor, c10::TensorType::get());
  const bool sets = flag.is_constant() && flag.value.toBool();
  const auto names = sets ? take_name_of_operand(tensor) : std::vector<Value*>();
  const auto finish = [&] {
    const auto item = tensor;
    values_.set(node->output(), item);
    return true;
  };
  if (is_read_of_input(tensor.symbol) && sets) {
    mark_given(node, tensor, sets, names);
    return finish();
  }
  if (is_read_of_input(tensor.symbol) || tensor.symbol->node()->kind() == aten::requires_grad_) {
    // A method that leaves its input as it was: this comes after all that the path computes.
    if (!sets)
      writes_.add_change(node, {tensor, flag});
    return finish();
  }
  if (is_given(tensor.symbol) || (!sets && may_return_operand(tensor.symbol->node())))
    return false;  // it may be a tensor of the caller
  // What has read a tensor with a gradient counts for that, and marking it changes nothing.
  const auto answer =
      sets ? gradients_.requires_grad(tensor.symbol, mode_now()) : std::optional(false);
  if (!answer && builder_.is_read(tensor.symbol))
    return false;
  if (answer.value_or(false)) {
    // Where it was read before, no cut of the method lies before all of its readers.
    if (!builder_.is_read(tensor.symbol))
      gradients_.note_marked(tensor.symbol);
    return finish();
  }
  gradients_.run_requires_grad(node);
  return true;
}

bool PathOperators::ask_requires_grad(Node* node) {
  auto& tensor = values_.get(node->input(0));
  if (tensor.symbol == nullptr || !tensor.is_tensor())
    return false;
  builder_.symbol_of(tensor, c10::TensorType::get());
  if (tensor.symbol->node()->kind() == aten::requires_grad_) {
    values_.set(node->output(), constant_item(true, c10::BoolType::get()));
    return true;
  }
  if (!is_given(tensor.symbol))
    return false;
  values_.set(node->output(), builder_.ask_requires_grad(tensor.symbol, tensor.value.toTensor()));
  return true;
}

bool PathOperators::keep_check(Node* node) {
  const auto& condition = values_.get(node->input(0));
  if (!node->outputs().empty() || is_fully_constant(condition) || !is_check(node->blocks()[0]) ||
      !is_check(node->blocks()[1]))
    return false;
  const bool taken = condition.value.toBool();
  bool raises = false;
  for_each_node(node->blocks()[taken ? 0 : 1],
                [&](Node* inner) { raises = raises || inner->kind() == prim::RaiseException; });
  if (raises && !depends_on_gradient(condition.symbol))
    throw CallRaises();
  std::unordered_map<Value*, Value*> symbols;
  for (auto* value : free_values(node))
    symbols[value] = builder_.symbol_of(values_.get(value), value->type());
  auto* copy = builder_.graph()->createClone(node, [&](Value* value) { return symbols.at(value); });
  builder_.graph()->appendNode(copy);
  return true;
}

}  // namespace aten_recompute
