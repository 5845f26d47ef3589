#include "passes/profile/run_on_meta.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "ir/graph_device.h"
#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/profile/region_profile.h"
#include "rules/autocast_probe.h"
#include "rules/find_shape.h"
#include "rules/shapes.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Stack;

// Stands for a tape.
struct NoTape : torch::CustomClassHolder {};

// Returns the operator that a tape runs; the node itself if it is no tape.
const Node* operator_of(const Node* node) {
  return node->kind() == symbols::kTapeForward
             ? node->g(c10::attr::Subgraph)->block()->nodes().front()
             : node;
}

// Runs the shape function on the operands that the operator gets from the tape. Returns false if
// the operator itself has to run.
bool run_shape_function(const ShapeFunction& function, const Node* node, Stack& stack) {
  const auto* inner = operator_of(node);
  if (inner == node)
    return function(stack);
  Stack operands;
  for (const auto* input : inner->inputs())
    operands.push_back(stack.at(input->offset()));
  if (!function(operands))
    return false;
  stack = std::move(operands);
  stack.push_back(c10::IValue::make_capsule(c10::make_intrusive<NoTape>()));
  return true;
}

}  // namespace

bool has_shape_function(const Node* node) {
  return shape_function(operator_of(node)) != nullptr;
}

void run_on_meta(const Program::Instruction& instruction, const Node* node, Stack& stack) {
  if (const auto function = shape_function(operator_of(node))) {
    if (run_shape_function(function, node, stack))
      return;
  }
  put_on_meta(*node, stack);
  instruction.run(stack);
}

bool run_parts_on_meta(const Program::Instruction& instruction, const Node* node, Stack& stack) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || !node->kind().is_aten())
    return false;
  const auto op =
      c10::Dispatcher::singleton().findSchema({schema->name(), schema->overload_name()});
  if (!op || !is_composed(*op))
    return false;
  auto results = stack;
  try {
    put_on_meta(*node, results);
    instruction.run(results);
  } catch (const std::exception&) {
    return false;
  }
  stack = std::move(results);
  return true;
}

std::string why_not_described(const Node* node, const std::exception& error) {
  const auto name = qualified_operator_name(operator_of(node));
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  const auto begin = std::min(text.find_first_not_of(" \n"), text.size());
  const auto end = std::min(text.find('\n', begin), text.find(". ", begin));
  const auto line = text.substr(begin, end - begin);
  auto why = name + ": its results are not known without running it (" + line + ")";
  // Any other error is one that a run would raise, too.
  const bool has_no_kernel = dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr ||
                             dynamic_cast<const NotProfiled*>(&error) != nullptr;
  if (has_no_kernel && operator_of(node)->kind().ns() != symbols::kTapeForward.ns())
    why += "; register_shape(\"" + name + "\", ...) gives them";
  return why;
}

}  // namespace aten_recompute
