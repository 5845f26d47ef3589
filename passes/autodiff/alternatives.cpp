#include "passes/autodiff/alternatives.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <vector>

#include "ir/node_place.h"
#include "ir/symbols.h"
#include "rules/registry.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

c10::Symbol own(const char* name) {
  return c10::Symbol::fromQualString(std::string("aten_recompute::") + name);
}

class AlternativeAdder {
 public:
  explicit AlternativeAdder(JointGraph& joint) : joint_(joint), graph_(*joint.graph) {}

  void run() {
    const auto forward = joint_.forward_nodes();
    const auto backward = joint_.backward_nodes();
    for (auto* node : forward) {
      if (node->kind() == own("dropout_mask") || node->kind() == own("composed_dropout_mask"))
        keep_mask_as_bits(node);
      else if (const auto* replay = find_replay(node))
        replay_from_outputs(node, *replay);
    }
    for (auto* node : backward) {
      if (node->kind() == c10::aten::threshold_backward)
        read_sign_as_bits(node);
    }
  }

 private:
  // Marks `alternative` as a node whose outputs can replace the outputs `gives` of `node`.
  void mark(Node* alternative, Node* node, const std::vector<int64_t>& gives) {
    alternative->i_(symbols::kAlternativeTo, static_cast<int64_t>(node->output(0)->unique()));
    alternative->is_(symbols::kGives, gives);
    copy_place(node, alternative);
    for (size_t i = 0; i < gives.size(); ++i)
      alternative->output(i)->setType(node->output(gives[i])->type());
  }

  // Inserts a node that only an alternative reads, and returns its output.
  Value* insert_optional(const char* op, Value* value, const std::string& suffix) {
    auto* bits = graph_.insert(own(op), {value});
    bits->node()->i_(symbols::kOptional, 1);
    copy_place(value->node(), bits->node());
    bits->setDebugName(value->debugName() + suffix);
    return bits;
  }

  void keep_mask_as_bits(Node* node) {
    const torch::jit::WithInsertPoint guard(node->next());
    auto* mask = node->output();
    auto* bits = insert_optional("pack_bits", mask, "_bits");
    auto* size = graph_.insert(c10::aten::size, {mask});
    auto* stride = graph_.insert(c10::aten::stride, {mask});
    auto* unpacked = graph_.insert(own("unpack_bits"), {bits, size, stride});
    mark(unpacked->node(), node, {0});
  }

  void replay_from_outputs(Node* node, const Replay& replay) {
    auto* after = node->next();
    const torch::jit::WithInsertPoint guard(after);
    std::vector<Value*> arguments;
    for (const auto& name : replay.formula.parameters) {
      if (name.rfind("result", 0) == 0) {
        const auto index = name.size() == 6 ? size_t{0} : std::stoul(name.substr(6));
        arguments.push_back(node->output(index));
      } else {
        arguments.push_back(
            node->input(static_cast<size_t>(node->schema().argumentIndexWithName(name).value())));
      }
    }
    torch::jit::insertGraph(graph_, *replay.formula.graph, arguments);
    // A plan chooses between nodes, so a formula of several nodes is no alternative to one.
    std::vector<Node*> added;
    for (auto* next = node->next(); next != after; next = next->next())
      added.push_back(next);
    std::vector<Node*> computing;
    for (auto* next : added) {
      if (next->kind() != prim::Constant)
        computing.push_back(next);
    }
    std::vector<int64_t> gives(replay.gives_outputs.begin(), replay.gives_outputs.end());
    if (computing.size() == 1 && computing[0]->outputs().size() == gives.size()) {
      mark(computing[0], node, gives);
      return;
    }
    for (auto it = added.rbegin(); it != added.rend(); ++it)
      (*it)->destroy();
  }

  void read_sign_as_bits(Node* node) {
    auto* result = node->input(1);
    auto* relu = result->node();
    const auto threshold = torch::jit::toIValue(node->input(2));
    const bool from_zero = threshold && threshold->isScalar() && threshold->toScalar().equal(0);
    if (relu->kind() != c10::aten::relu || !from_zero || !is_forward(relu))
      return;
    Value* bits = nullptr;
    Value* stride = nullptr;
    {
      const torch::jit::WithInsertPoint guard(relu->next());
      bits = insert_optional("positive_bits", result, "_sign");
      stride = graph_.insert(c10::aten::stride, {result});
    }
    const torch::jit::WithInsertPoint guard(node->next());
    auto* gradient = graph_.insert(own("threshold_backward_bits"), {node->input(0), bits, stride});
    mark(gradient->node(), node, {0});
  }

  bool is_forward(const Node* node) const {
    return node->owningBlock() == graph_.block() && node->isBefore(joint_.backward_start);
  }

  JointGraph& joint_;
  Graph& graph_;
};

}  // namespace

void add_alternatives(JointGraph& joint) {
  AlternativeAdder(joint).run();
}

}  // namespace aten_recompute
