#include "passes/splice.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <string>
#include <unordered_map>

#include "passes/forward_values.h"
#include "passes/node_traits.h"
#include "passes/rules/rule.h"
#include "passes/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

bool draws_random_numbers(const Node* node) {
  if (node->kind() != symbols::kTapeForward)
    return is_random(node);
  for (const auto* inner : node->g(c10::attr::Subgraph)->nodes()) {
    // Operators of other libraries seldom say that they are random; a noted state costs little.
    if (is_random(inner) || !inner->kind().is_aten())
      return true;
  }
  return false;
}

class Splicer {
 public:
  Splicer(JointGraph& joint, const SavePlan& plan)
      : graph_(*joint.graph), plan_(plan), forward_(joint), start_(joint.backward_start) {}

  void run() {
    // 1. Which forward nodes have to run again.
    std::vector<Node*> backward;
    for (auto* node = start_->next(); node != graph_.return_node(); node = node->next()) {
      backward.push_back(node);
    }
    for (auto* node : backward) {
      for (auto* value : forward_.read_by(node))
        need(value);
    }
    for (auto* value : graph_.return_node()->inputs().slice(forward_.num_outputs()))
      need(value);
    // 2. Copies, in forward order.
    Node* after = start_;
    for (auto* node = graph_.nodes().front(); node != start_; node = node->next()) {
      if (recomputed_.count(node) != 0)
        after = copy(node, after);
    }
    // 3. The backward reads the copies.
    for (auto* node : backward)
      replace_inputs(node);
    auto* results = graph_.return_node();
    for (size_t i = forward_.num_outputs(); i < results->inputs().size(); ++i) {
      if (auto found = copies_.find(results->input(i)); found != copies_.end()) {
        results->replaceInput(i, found->second);
      }
    }
  }

 private:
  void need(Value* value) {
    if (!forward_.is_computed(value) || !contains_tensor(*value->type()))
      return;
    if (plan_.saved.count(value->unique()) != 0)
      return;
    auto* node = value->node();
    if (recompute_veto(node) != RecomputeVeto::kNone)
      return;
    if (!recomputed_.insert(node).second)
      return;
    for (auto* input : node->inputs())
      need(input);
  }

  Value* mapped(Value* value) const {
    const auto found = copies_.find(value);
    return found == copies_.end() ? value : found->second;
  }

  // Returns the last node that was added after `after`.
  Node* copy(Node* node, Node* after) {
    std::vector<Value*> outputs;
    std::vector<std::string> names;  // a clone takes the names of what it is a clone of
    for (auto* output : node->outputs()) {
      names.push_back(output->hasDebugName() ? output->debugName() : "");
    }
    const torch::jit::WithInsertPoint guard(after->next());
    if (draws_random_numbers(node)) {
      outputs = copy_random(node);
    } else if (const auto* replay = compiled_replay(node)) {
      outputs = copy_replay(node, *replay);
    } else {
      auto* clone =
          graph_.insertNode(graph_.createClone(node, [&](Value* v) { return mapped(v); }));
      outputs.assign(clone->outputs().begin(), clone->outputs().end());
    }
    Node* last = after;
    while (last->next() != graph_.insertPoint()) {
      last = last->next();
      if (last->kind() != prim::Constant)
        last->i_(symbols::kRecomputed, 1);
    }
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      auto* original = node->output(i);
      outputs[i]->setType(original->type());
      outputs[i]->setDebugName(
          (original->hasDebugName() ? original->debugNameBase() : "v" + original->debugName()) +
          "_recomputed");
      if (!names[i].empty())
        original->setDebugName(names[i]);
      if (plan_.saved.count(original->unique()) == 0)
        copies_[original] = outputs[i];
    }
    return last;
  }

  std::vector<Value*> copy_random(Node* node) {
    Value* state = nullptr;
    {
      const torch::jit::WithInsertPoint before(node);
      auto* capture = graph_.insertNode(graph_.create(symbols::kRandomState, node->inputs(), 1));
      state = capture->output()->setType(c10::AnyType::get());
      state->setDebugName("random_state");
    }
    auto subgraph = std::make_shared<Graph>();
    std::unordered_map<Value*, Value*> inner;
    std::vector<Value*> inputs{state};
    for (auto* input : node->inputs()) {
      if (inner.count(input) != 0)
        continue;
      inner[input] = subgraph->addInput()->setType(input->type());
      inputs.push_back(mapped(input));
    }
    auto* clone =
        subgraph->insertNode(subgraph->createClone(node, [&](Value* v) { return inner.at(v); }));
    for (auto* output : clone->outputs())
      subgraph->registerOutput(output);
    auto* replay =
        graph_.insertNode(graph_.create(symbols::kReplayRandom, inputs, node->outputs().size()));
    replay->g_(c10::attr::Subgraph, subgraph);
    return {replay->outputs().begin(), replay->outputs().end()};
  }

  std::vector<Value*> copy_replay(Node* node, const CompiledFormula& formula) {
    std::vector<Value*> arguments;
    for (const auto& name : formula.parameters) {
      arguments.push_back(mapped(node->input(node->schema().argumentIndexWithName(name).value())));
    }
    auto values = torch::jit::insertGraph(graph_, *formula.graph, arguments);
    if (values.size() == 1 && values[0]->type()->kind() == c10::TypeKind::TupleType) {
      auto* unpack = graph_.insertNode(graph_.createTupleUnpack(values[0]));
      values.assign(unpack->outputs().begin(), unpack->outputs().end());
    }
    return values;
  }

  void replace_inputs(Node* node) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      auto* copy = mapped(node->input(i));
      if (copy != node->input(i))
        node->replaceInput(i, copy);
    }
    for (auto* block : node->blocks()) {
      for (auto* inner : block->nodes())
        replace_inputs(inner);
      replace_inputs(block->return_node());
    }
  }

  Graph& graph_;
  const SavePlan& plan_;
  ForwardValues forward_;
  Node* start_;
  std::unordered_set<Node*> recomputed_;
  std::unordered_map<Value*, Value*> copies_;
};

}  // namespace

RecomputeVeto recompute_veto(const Node* node) {
  if (mutates_an_argument(node))
    return RecomputeVeto::kMutates;
  if (!node->blocks().empty())
    return RecomputeVeto::kControlFlow;
  // A second run would update the statistics a second time, unless a replay rule says how not to.
  if (updates_hidden_state(node) && compiled_replay(node) == nullptr)
    return RecomputeVeto::kMutates;
  if (node->kind() == symbols::kTapeForward) {
    for (const auto* inner : node->g(c10::attr::Subgraph)->nodes()) {
      if (updates_hidden_state(inner))
        return RecomputeVeto::kMutates;
    }
  }
  return RecomputeVeto::kNone;
}

const char* to_string(RecomputeVeto veto) {
  switch (veto) {
    case RecomputeVeto::kNone:
      return "recomputable";
    case RecomputeVeto::kMutates:
      return "writes to an argument";
    case RecomputeVeto::kControlFlow:
      return "control flow";
  }
  return "unknown";
}

void splice(JointGraph& joint, const SavePlan& plan) {
  Splicer(joint, plan).run();
  torch::jit::LowerSimpleTuples(joint.graph);
}

}  // namespace aten_recompute
