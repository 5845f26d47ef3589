#include "passes/partition/splice.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "ir/dead_code.h"
#include "ir/node_place.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/insert_formula.h"
#include "passes/strategy/graph_problem.h"
#include "planner/model/simulator.h"
#include "rules/recomputability.h"
#include "rules/registry.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Inserts the formula of the node's replay rule and returns its results. `map` returns for each
// input of the node the value to read instead.
std::vector<Value*> insert_replay(Graph& graph, const CompiledFormula& formula, Node* node,
                                  const std::function<Value*(Value*)>& map) {
  std::vector<Value*> arguments;
  for (const auto& name : formula.parameters)
    arguments.push_back(map(node->input(node->schema().argumentIndexWithName(name).value())));
  return insert_formula(graph, formula, arguments);
}

// Makes a second run of a tape follow the replay rule of its operator, if there is one.
void use_replay_on_tape(Node* tape) {
  auto subgraph = tape->g(c10::attr::Subgraph)->copy();
  auto* node = subgraph->block()->nodes().front();
  const auto* replay = compiled_replay(node);
  if (replay == nullptr)
    return;
  const torch::jit::WithInsertPoint guard(node);
  const auto values = insert_replay(*subgraph, *replay, node, [](Value* value) { return value; });
  for (size_t i = 0; i < values.size(); ++i)
    node->output(i)->replaceAllUsesWith(values[i]);
  node->destroy();
  tape->g_(c10::attr::Subgraph, subgraph);
}

// Inserts what computes the node again: its replay rule or a copy of it. Returns the results. `map`
// is that of insert_replay().
std::vector<Value*> insert_again(Graph& graph, Node* node,
                                 const std::function<Value*(Value*)>& map) {
  if (const auto* replay = compiled_replay(node))
    return insert_replay(graph, *replay, node, map);
  auto* clone = graph.insertNode(graph.createClone(node, map));
  if (clone->kind() == symbols::kTapeForward)
    use_replay_on_tape(clone);
  return {clone->outputs().begin(), clone->outputs().end()};
}

class Splicer {
 public:
  Splicer(JointGraph& joint, const GraphProblem& problem)
      : joint_(joint), graph_(*joint.graph), problem_(problem) {}

  void run(const std::vector<Step>& steps) {
    for (const auto& step : steps) {
      if (step.slot == 0)
        continue;
      auto* node = problem_.nodes[step.node];
      const auto original = problem_.alternative_to[step.node];
      const auto& problem = problem_.problem;
      const bool is_served = step.node == problem.node_of(static_cast<size_t>(step.slot));
      if (!is_served && problem.in_forward(original < 0 ? step.node : original)) {
        copies_wanted_.push_back({node, &step});
        continue;
      }
      for (const auto& [wanted, copied] : copies_wanted_)
        copy(wanted, *copied, node);
      copies_wanted_.clear();
      replace_inputs(node);
      if (original >= 0)
        replace(problem_.nodes[original], node);
    }
    auto* results = graph_.return_node();
    for (size_t i = joint_.num_outputs; i < results->inputs().size(); ++i) {
      results->replaceInput(i, mapped(results->input(i)));
    }
    remove_unused_alternatives();
  }

 private:
  // Returns the current copy of a forward value. `value` may be an earlier copy: a node of the
  // forward that was served reads copies, and so would a copy of that node.
  Value* mapped(Value* value) const {
    const auto original = originals_.find(value);
    const auto found = copies_.find(original == originals_.end() ? value : original->second);
    return found == copies_.end() ? value : found->second;
  }

  // Replaces a backward node by the alternative that the plan chose.
  void replace(Node* original, Node* alternative) {
    const auto& gives = alternative->is(symbols::kGives);
    for (size_t i = 0; i < gives.size(); ++i)
      original->output(static_cast<size_t>(gives[i]))->replaceAllUsesWith(alternative->output(i));
    alternative->removeAttribute(symbols::kAlternativeTo);
    original->destroy();
  }

  void remove_unused_alternatives() {
    std::vector<Node*> unused;
    for (auto* node : graph_.nodes()) {
      if (node->hasAttribute(symbols::kAlternativeTo))
        unused.push_back(node);
    }
    if (problem_.problem.num_all_nodes() == problem_.problem.num_nodes)
      return;
    for (auto* node : unused)
      node->destroy();
    // Optional nodes, and the sizes that they read.
    remove_dead_code(graph_.block(), joint_.backward_start);
  }

  // Returns the forward value that output `i` of a copy of `node` stands for.
  Value* original_output(Node* node, int32_t alternative_to, size_t i) const {
    if (alternative_to < 0)
      return node->output(i);
    const auto& gives = node->is(symbols::kGives);
    return problem_.nodes[alternative_to]->output(static_cast<size_t>(gives[i]));
  }

  // Inserts a copy of the forward node `node` before `before`. The copy provides those outputs that
  // the step's output_mask selects.
  void copy(Node* node, const Step& step, Node* before) {
    const auto alternative_to = problem_.alternative_to[step.node];
    std::vector<Value*> outputs;
    std::vector<std::string> names;  // a clone takes these names away
    for (auto* output : node->outputs())
      names.push_back(output->hasDebugName() ? output->debugName() : "");
    auto* previous = before->prev();
    const torch::jit::WithInsertPoint guard(before);
    if (draws_random_numbers(node))
      outputs = copy_random(node);
    else
      outputs = insert_again(graph_, node, [&](Value* v) { return mapped(v); });
    for (auto* added = previous->next(); added != before; added = added->next()) {
      if (added->kind() == prim::Constant)
        continue;
      added->i_(symbols::kRecomputed, 1);
      copy_place(node, added);
      if (added->hasAttribute(symbols::kAlternativeTo))
        added->removeAttribute(symbols::kAlternativeTo);
    }
    size_t position = 0;  // among the outputs that are values of the problem
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      auto* original = original_output(node, alternative_to, i);
      outputs[i]->setType(original->type());
      outputs[i]->setDebugName(
          (original->hasDebugName() ? original->debugNameBase() : "v" + original->debugName()) +
          "_recomputed");
      if (!names[i].empty())
        node->output(i)->setDebugName(names[i]);
      if (problem_.index.count(original) == 0)
        continue;
      if ((step.output_mask & output_bit(position++)) != 0) {
        copies_[original] = outputs[i];
        originals_[outputs[i]] = original;
      }
    }
  }

  // Inserts a node that runs `node` again from the random state before its first run, which another
  // new node in the forward notes.
  std::vector<Value*> copy_random(Node* node) {
    auto& state = random_states_[node];
    if (state == nullptr) {
      const torch::jit::WithInsertPoint before(node);
      auto* capture = graph_.insertNode(graph_.create(symbols::kRandomState, node->inputs(), 1));
      copy_place(node, capture);
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
    for (auto* output : insert_again(*subgraph, node, [&](Value* v) { return inner.at(v); }))
      subgraph->registerOutput(output);
    auto* replay =
        graph_.insertNode(graph_.create(symbols::kReplayRandom, inputs, node->outputs().size()));
    replay->g_(c10::attr::Subgraph, subgraph);
    return {replay->outputs().begin(), replay->outputs().end()};
  }

  // Makes the node and its blocks read the current copies.
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

  JointGraph& joint_;
  Graph& graph_;
  const GraphProblem& problem_;
  // To be inserted before the next backward node.
  std::vector<std::pair<Node*, const Step*>> copies_wanted_;
  std::unordered_map<Value*, Value*> copies_;     // the current copy of each value
  std::unordered_map<Value*, Value*> originals_;  // of copies
  std::unordered_map<Node*, Value*> random_states_;
};

}  // namespace

void splice(JointGraph& joint, const GraphProblem& graph, const std::vector<Step>& steps) {
  Splicer(joint, graph).run(steps);
  torch::jit::LowerSimpleTuples(joint.graph->block());
}

void splice(JointGraph& joint, const SavePlan& plan) {
  const auto graph = make_problem(joint, nullptr);
  Simulator simulator(graph.problem);
  simulator.run(retention_of(graph, plan));
  splice(joint, graph, simulator.steps());
}

}  // namespace aten_recompute
