#include "rules/recomputability.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <optional>

#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"
#include "rules/registry.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;

// Returns the argument of this name, if there is one and it is a constant.
template <class T>
std::optional<T> constant_argument(const Node* node, const char* name) {
  const auto* schema = node->maybeSchema();
  const auto index = schema == nullptr ? std::nullopt : schema->argumentIndexWithName(name);
  return index ? torch::jit::constant_as<T>(node->input(static_cast<size_t>(*index)))
               : std::nullopt;
}

// Calls `function` for the nodes that a tape or a user's function runs.
void for_each_inner(const Node* node, const std::function<void(Node*)>& function) {
  if (node->hasAttribute(c10::attr::Subgraph))
    for_each_node(node->g(c10::attr::Subgraph)->block(), function);
}

// Returns whether a norm in evaluation reads the caller's running statistics. The rules of batch
// norm give it copies of them.
bool reads_running_statistics(const Node* node) {
  if (!updates_statistics_only(node))
    return false;
  const auto training = node->schema().argumentIndexWithName("training");
  if (!training || torch::jit::constant_as<bool>(node->input(*training)).value_or(false))
    return false;
  const auto statistics = node->schema().argumentIndexWithName("running_mean");
  return statistics && node->input(*statistics)->node()->kind() == c10::prim::Param;
}

// Ignores what the operator writes to, because a user's function may write to tensors that it made
// itself.
RecomputeVeto veto_of_operator(const Node* node) {
  if (!may_run_again(node))
    return RecomputeVeto::kRule;
  // A second run would update the statistics a second time, unless a replay rule avoids it.
  if (updates_hidden_state(node) && compiled_replay(node) == nullptr)
    return RecomputeVeto::kMutates;
  if (has_fact(node, Fact::kReadsWhatMayChange) || reads_running_statistics(node))
    return RecomputeVeto::kReadsWritten;
  return RecomputeVeto::kNone;
}

}  // namespace

bool draws_random_numbers(const Node* node) {
  if (may_be_random(node))
    return true;
  bool any = false;
  for_each_inner(node, [&](const Node* inner) {
    any = any || (draws_random_numbers(inner) && !has_no_dropout(inner));
  });
  return any;
}

bool has_no_dropout(const Node* node) {
  return constant_argument<double>(node, "dropout_p").value_or(1.0) == 0.0 ||
         !constant_argument<bool>(node, "training").value_or(true);
}

RecomputeVeto recompute_veto(const Node* node) {
  if (node->hasAttribute(symbols::kReadsWritten))
    return RecomputeVeto::kReadsWritten;
  if (node->kind() == symbols::kTapeForward || node->kind() == symbols::kRuleFunction) {
    auto veto = RecomputeVeto::kNone;
    for_each_inner(node, [&](const Node* inner) {
      if (const auto of_inner = veto_of_operator(inner); of_inner != RecomputeVeto::kNone)
        veto = of_inner;
    });
    return veto;
  }
  if (mutates_an_argument(node))
    return RecomputeVeto::kMutates;
  if (!node->blocks().empty())
    return RecomputeVeto::kControlFlow;
  return veto_of_operator(node);
}

const char* to_string(RecomputeVeto veto) {
  switch (veto) {
    case RecomputeVeto::kNone:
      return "recomputable";
    case RecomputeVeto::kMutates:
      return "writes to an argument";
    case RecomputeVeto::kControlFlow:
      return "control flow";
    case RecomputeVeto::kRule:
      return "its rule says so";
    case RecomputeVeto::kReadsWritten:
      return "reads what may be written to before the backward";
  }
  return "unknown";
}

}  // namespace aten_recompute
