#include "passes/autodiff/tape_sources.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>

#include "ir/symbols.h"
#include "runtime/tape.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;
using Source = TapeSources::Source;

class Finder {
 public:
  explicit Finder(const JointGraph& joint) : joint_(joint) {}

  TapeSources find() {
    for (auto* node : joint_.forward_nodes()) {
      if (node->kind() == symbols::kTapeForward)
        add_tape(node);
      else
        add_node(node);
    }
    for (auto output : joint_.vjp_outputs)
      found_.outputs.push_back(source_of(joint_.graph->outputs()[output]));
    return std::move(found_);
  }

 private:
  Source source_of(const Value* value) const {
    if (joint_.requires_grad.count(value->unique()) == 0)
      return TapeSources::kNever;
    const auto found = sources_.find(value);
    return found == sources_.end() ? TapeSources::kAlways : found->second;
  }

  Source add(TapeSources::Value value) {
    found_.values.push_back(std::move(value));
    return static_cast<Source>(found_.values.size() - 1);
  }

  void add_tape(Node* node) {
    const auto number = static_cast<int32_t>(found_.operands.size());
    node->i_(kTapeNumber, number);
    const auto& flags = node->is(symbols::kRequiresGrad);
    auto& operands = found_.operands.emplace_back();
    for (size_t i = 0; i < flags.size(); ++i)
      operands.push_back(flags[i] != 0 ? source_of(node->input(i)) : TapeSources::kNever);
    for (size_t i = 0; i < node->outputs().size(); ++i)
      sources_[node->output(i)] = add({number, static_cast<int32_t>(i), {}});
  }

  void add_node(Node* node) {
    std::vector<Source> of;
    for (const auto* input : node->inputs()) {
      const auto source = source_of(input);
      if (source == TapeSources::kAlways)
        return;
      if (source != TapeSources::kNever && std::find(of.begin(), of.end(), source) == of.end())
        of.push_back(source);
    }
    if (of.empty() || !node->blocks().empty())
      return;
    const auto source = of.size() == 1 ? of.front() : add({-1, 0, std::move(of)});
    for (const auto* output : node->outputs())
      sources_[output] = source;
  }

  const JointGraph& joint_;
  TapeSources found_;
  std::unordered_map<const Value*, Source> sources_;  // of values that do not always require grad
};

}  // namespace

TapeSources number_tapes(JointGraph& joint) {
  return Finder(joint).find();
}

}  // namespace aten_recompute
