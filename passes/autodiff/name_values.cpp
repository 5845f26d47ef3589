#include "passes/autodiff/name_values.h"

#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <string>

#include "ir/symbols.h"

namespace aten_recompute {
namespace {

// Returns the name without namespace; for a tape, that of the operator that it runs.
std::string operator_name(const torch::jit::Node* node) {
  if (node->kind() == symbols::kTapeForward) {
    for (const auto* inner : node->g(c10::attr::Subgraph)->nodes())
      return inner->kind().toUnqualString();
  }
  return node->kind().toUnqualString();
}

// Returns "q" for a value named "q.3" or "q": the name in the source, without the number that makes
// it unique. Returns "" for a value without a name.
std::string source_name(const torch::jit::Value* value) {
  if (!value->hasDebugName())
    return "";
  return value->debugNameBase();
}

}  // namespace

void name_values(const JointGraph& joint) {
  std::map<std::string, int> counts;
  for (auto* node : joint.forward_nodes()) {
    if (node->kind() == c10::prim::Constant)
      continue;
    const auto name = operator_name(node);
    const auto number = std::to_string(counts[name]++);
    for (auto* output : node->outputs()) {
      const auto source = source_name(output);
      output->setDebugName(name + "_" + number + (source.empty() ? "" : "_" + source));
    }
  }
}

}  // namespace aten_recompute
