#include "passes/frontend/path/path_memory.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/frontend/rewrites/not_recordable.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;

PathMemory::Tensor* PathMemory::find(Value* value) const {
  const auto found = names_.find(value);
  return found == names_.end() ? nullptr : found->second.tensor;
}

PathMemory::Tensor& PathMemory::get(Value* value) {
  if (auto* tensor = find(value))
    return *tensor;
  auto& tensor = tensors_.emplace_back();
  tensor.value = value;
  names_[value] = {&tensor, 0};
  return tensor;
}

void PathMemory::set_content(Tensor& tensor, Value* content) {
  tensor.value = content;
  tensor.is_outdated = false;
  names_[content] = {&tensor, ++tensor.version};
}

PathMemory::Tensor& PathMemory::add_view(Value* result, Tensor& base) {
  auto& tensor = get(result);
  tensor.base = &base;
  tensor.view = result->node();
  base.views.push_back(&tensor);
  return tensor;
}

void PathMemory::note_view(Value* result, Value* operand) {
  if (find(result) != nullptr)
    return;
  auto& tensor = add_view(result, get(operand));
  const auto inputs = result->node()->inputs();
  tensor.operand =
      static_cast<size_t>(std::find(inputs.begin(), inputs.end(), operand) - inputs.begin());
}

void PathMemory::note_same(Value* result, Value* operand) {
  auto& tensor = get(operand);
  names_[result] = {&tensor, tensor.version};
}

void PathMemory::note_list(Value* list, Value* operand) {
  lists_[list] = {&get(operand), operand};
}

void PathMemory::note_element(Value* result, Value* list) {
  const auto found = lists_.find(list);
  if (found == lists_.end() || find(result) != nullptr)
    return;
  if (!is_current(found->second.value))
    throw NotRecordable("it reads a list of views after writing to their memory");
  add_view(result, *found->second.base).list = list;
}

bool PathMemory::is_view(Value* value) const {
  const auto* tensor = find(value);
  return tensor != nullptr && tensor->base != nullptr;
}

bool PathMemory::is_current(Value* value) const {
  const auto found = names_.find(value);
  if (found == names_.end())
    return true;
  const auto& [tensor, version] = found->second;
  return version == tensor->version && !tensor->is_outdated && !tensor->is_lost;
}

Value* PathMemory::current(Value* value) {
  return is_current(value) ? value : refresh(*find(value));
}

Value* PathMemory::refresh(Tensor& tensor) {
  if (tensor.is_lost)
    throw NotRecordable("it reads memory that it has written to through a view of another kind");
  if (!tensor.is_outdated)
    return tensor.value;
  set_content(tensor, make_again(tensor, refresh(*tensor.base)));
  return tensor.value;
}

Value* PathMemory::make_again(const Tensor& view, Value* base) {
  auto* node = graph_.create(view.view->kind(), view.view->inputs(), 1);
  node->copyAttributes(*view.view);
  node->output()->setType(view.view->output()->type());
  node->replaceInput(view.operand, base);
  insert_(node);
  return node->output();
}

void PathMemory::outdate(Tensor& tensor) {
  tensor.is_outdated = true;
  tensor.is_lost = tensor.list != nullptr || !is_pure_view(tensor.view);
  outdate_views(tensor, nullptr);
}

void PathMemory::outdate_views(Tensor& tensor, const Tensor* except) {
  for (auto* view : tensor.views) {
    const bool is_apart = except != nullptr && view->list != nullptr && view->list == except->list;
    if (view != except && !is_apart)
      outdate(*view);
  }
}

namespace {

// Operators that put the result of a view back into what it is a view of.
const std::unordered_map<std::string, const char*>& scatters() {
  static const std::unordered_map<std::string, const char*> table{
      {"aten::slice.Tensor", "aten::slice_scatter"},
      {"aten::select.int", "aten::select_scatter"},
      {"aten::diagonal", "aten::diagonal_scatter"}};
  return table;
}

bool has_scatter(const Node* view) {
  return scatters().count(qualified_operator_name(view)) != 0;
}

// Returns the order of dimensions that undoes permute(x, dims); nullopt if it is not known.
std::optional<std::vector<int64_t>> inverse_order(const Node* permute) {
  const auto* list = permute->input(1)->node();
  const auto dims = list->inputs();
  if (list->kind() != c10::prim::ListConstruct)
    return std::nullopt;
  const auto rank = static_cast<int64_t>(dims.size());
  std::vector<int64_t> inverse(dims.size());
  for (int64_t i = 0; i < rank; ++i) {
    const auto dim = torch::jit::constant_as<int64_t>(dims[static_cast<size_t>(i)]);
    if (!dim)
      return std::nullopt;
    inverse[static_cast<size_t>(*dim < 0 ? *dim + rank : *dim)] = i;
  }
  return inverse;
}

bool only_changes_sizes(const std::string& name) {
  static const std::unordered_set<std::string> names{
      "aten::view",      "aten::unflatten.int", "aten::squeeze", "aten::squeeze.dim",
      "aten::unsqueeze", "aten::view_as",       "aten::alias"};
  return names.count(name) != 0;
}

}  // namespace

bool PathMemory::is_put_in(Value* value) const {
  const auto* tensor = find(value);
  while (tensor != nullptr && tensor->base != nullptr && !tensor->base->is_lost &&
         can_put_in(*tensor)) {
    if (has_scatter(tensor->view) || qualified_operator_name(tensor->view) == "aten::narrow")
      return true;
    tensor = tensor->base;
  }
  return false;
}

Value* PathMemory::write(Value* value, Value* content) {
  auto* written = &get(value);
  refresh(*written);
  // As in eager PyTorch, the tensor that all others are views of gets the new content, and all
  // views are made from it when they are read next, so that gradients are added in the same order.
  std::vector<Tensor*> views;
  auto* root = written;
  while (root->base != nullptr && !root->base->is_lost && can_put_in(*root)) {
    views.push_back(root);
    root = root->base;
  }
  if (root == written && root->base != nullptr)
    content = with_gaps_of(content, root->value);
  std::vector<Value*> bases(views.size());
  for (size_t i = views.size(); i-- > 0;) {
    if (i + 1 == views.size())
      bases[i] = refresh(*root);
    else if (slices_whole_dimension(views[i + 1]->view))
      bases[i] = bases[i + 1];
    else
      bases[i] = make_again(*views[i + 1], bases[i + 1]);
  }
  // x[:] is all of x, so that nothing needs to be put into it, as long as a scatter before or
  // behind it gives the result the layout and the history of x.
  const auto gets_layout = [&](size_t i) {
    while (i < views.size() && slices_whole_dimension(views[i]->view))
      ++i;
    return i < views.size() && has_scatter(views[i]->view);
  };
  bool has_layout = false;
  for (size_t i = 0; i < views.size(); ++i) {
    if (slices_whole_dimension(views[i]->view) && (has_layout || gets_layout(i + 1)))
      continue;
    content = put_in(bases[i], *views[i], content);
    content->node()->i_(symbols::kOfWrite, 1);
    has_layout = has_scatter(views[i]->view);
  }
  set_content(*root, content);
  outdate_views(*root, nullptr);
  for (auto* part = root; part->base != nullptr; part = part->base) {
    outdate_views(*part->base, part);
    part->base->is_lost = true;
  }
  return content;
}

void PathMemory::rename(Value* value, Value* name) {
  auto& tensor = get(value);
  set_content(tensor, name);
  outdate_views(tensor, nullptr);
}

Value* PathMemory::with_gaps_of(Value* content, Value* part) {
  const auto of_part = [&](c10::Symbol kind) {
    return append(kind, {part})->setType(c10::ListType::ofInts());
  };
  static const auto kind = c10::Symbol::fromQualString("aten_recompute::with_gaps_of");
  return append(kind, {content, of_part(aten::size), of_part(aten::stride)});
}

Value* PathMemory::append(c10::Symbol kind, at::ArrayRef<Value*> inputs) {
  auto* node = graph_.create(kind, inputs, 1);
  insert_(node);
  return node->output();
}

bool PathMemory::can_put_in(const Tensor& view) {
  if (view.list != nullptr || view.operand != 0 || !is_pure_view(view.view))
    return false;
  const auto name = qualified_operator_name(view.view);
  if (name == "aten::permute")
    return inverse_order(view.view).has_value();
  return has_scatter(view.view) || only_changes_sizes(name) || name == "aten::narrow" ||
         name == "aten::transpose.int" || name == "aten::t";
}

Value* PathMemory::put_in_narrow(Value* base, Value* content, Value* dim, Value* start,
                                 Value* length) {
  const torch::jit::WithInsertPoint guard(graph_.return_node());
  const auto append_int = [&](c10::Symbol kind, at::ArrayRef<Value*> inputs) {
    return append(kind, inputs)->setType(c10::IntType::get());
  };
  const auto known = torch::jit::constant_as<int64_t>(start);
  if (!known || *known < 0) {  // it may count from the end
    auto* is_negative = append(aten::lt, {start, graph_.insertConstant(0)});
    is_negative->setType(c10::BoolType::get());
    auto* size = append_int(aten::size, {base, dim});
    auto* shift = append_int(aten::mul, {size, append_int(aten::Int, {is_negative})});
    start = append_int(aten::add, {start, shift});
  }
  auto* end = append_int(aten::add, {start, length});
  return append(aten::slice_scatter, {base, content, dim, start, end, graph_.insertConstant(1)});
}

Value* PathMemory::put_in(Value* base, const Tensor& view, Value* content) {
  const auto name = qualified_operator_name(view.view);
  const auto inputs = view.view->inputs();
  if (const auto found = scatters().find(name); found != scatters().end()) {
    std::vector<Value*> operands{base, content};
    operands.insert(operands.end(), inputs.begin() + 1, inputs.end());
    return append(c10::Symbol::fromQualString(found->second), operands);
  }
  if (name == "aten::narrow")
    return put_in_narrow(base, content, inputs[1], inputs[2], inputs[3]);
  if (name == "aten::permute") {
    const torch::jit::WithInsertPoint guard(graph_.return_node());
    return append(aten::permute, {content, graph_.insertConstant(*inverse_order(view.view))});
  }
  if (name == "aten::transpose.int")
    return append(aten::transpose, {content, inputs[1], inputs[2]});
  if (name == "aten::t")
    return append(aten::t, {content});
  return append(aten::reshape_as, {content, base});
}

}  // namespace aten_recompute
