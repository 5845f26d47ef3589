#include "passes/strategy/graph_problem.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <map>
#include <optional>

#include "ir/memory_reuse.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/save_plan.h"
#include "ir/symbols.h"
#include "passes/profile/profile.h"
#include "rules/recomputability.h"
#include "runtime/in_place.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Values that the node reads, nested blocks included, each once.
void collect_reads(Node* node, std::vector<Value*>& reads) {
  auto add = [&](Value* value) {
    if (std::find(reads.begin(), reads.end(), value) == reads.end())
      reads.push_back(value);
  };
  for (auto* input : node->inputs())
    add(input);
  for (auto* block : node->blocks()) {
    for (auto* inner : block->nodes())
      collect_reads(inner, reads);
    for (auto* output : block->outputs())
      add(output);
  }
}

class Builder {
 public:
  Builder(const JointGraph& joint, const Profile* profile, const std::vector<bool>& accumulated)
      : joint_(joint), profile_(profile), accumulated_(accumulated) {}

  GraphProblem run() {
    if (profile_ != nullptr) {
      problem_.bytes = profile_->storage_bytes;
      problem_.held.assign(profile_->storage_is_callers.begin(),
                           profile_->storage_is_callers.end());
    }
    const auto inputs = joint_.graph->inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto index = add_value(inputs[i], -1, /*callers=*/i < joint_.num_inputs);
      if (i >= joint_.num_inputs && index >= 0)
        problem_.incoming.push_back(index);
    }
    find_waiting_gradients();
    bool backward = false;
    std::vector<Node*> alternatives;
    std::unordered_map<size_t, size_t> producers;  // of a first output, by Value::unique()
    for (auto* node : joint_.graph->nodes()) {
      if (node == joint_.backward_start) {
        backward = true;
        problem_.num_forward = problem_.seconds.size();
        continue;
      }
      if (node->kind() == prim::Constant) {
        // A tensor among the graph's constants is the program's, for good.
        add_value(node->output(), -1, /*callers=*/true);
        continue;
      }
      if (node->hasAttribute(symbols::kAlternativeTo)) {
        alternatives.push_back(node);
        continue;
      }
      producers.emplace(node->outputs().empty() ? 0 : node->output(0)->unique(),
                        problem_.seconds.size());
      add_node(node, backward);
      own_memory_.add_outputs_of(node);
    }
    problem_.num_nodes = problem_.seconds.size();
    std::vector<std::vector<int32_t>> of_node(problem_.num_nodes + alternatives.size());
    for (auto* node : alternatives) {
      const auto original = producers.at(static_cast<size_t>(node->i(symbols::kAlternativeTo)));
      of_node[original].push_back(static_cast<int32_t>(problem_.seconds.size()));
      add_alternative(node, static_cast<int32_t>(original));
    }
    for (const auto& row : of_node)
      problem_.alternatives.push_back(row);
    const auto outputs = joint_.graph->outputs();
    for (auto incoming : problem_.incoming)
      problem_.loss_bytes += problem_.value_bytes(incoming);
    for (size_t i = 0; i < joint_.num_outputs; ++i)
      add_result(outputs[i]);
    add_gradients();
    return std::move(graph_);
  }

 private:
  int32_t add_value(Value* value, int32_t producer, bool callers) {
    if (!contains_tensor(*value->type()))
      return -1;
    const auto index = static_cast<int32_t>(graph_.values.size());
    std::vector<int32_t> storages;
    if (profile_ != nullptr) {
      if (const auto found = profile_->storages.find(value->unique());
          found != profile_->storages.end()) {
        storages = found->second;
      }
    } else if (producer >= 0 && problem_.is_view[producer]) {
      for (auto input : problem_.inputs[producer]) {
        const auto of_input = problem_.storages[input];
        storages.insert(storages.end(), of_input.begin(), of_input.end());
      }
    } else {
      storages.push_back(static_cast<int32_t>(problem_.bytes.size()));
      problem_.bytes.push_back(0);
      problem_.held.push_back(callers);
    }
    problem_.value_names.push_back(value->debugName());
    problem_.producer.push_back(producer);
    problem_.storages.push_back(storages);
    graph_.values.push_back(value);
    graph_.index.emplace(value, index);
    return index;
  }

  void add_result(Value* value) {
    if (const auto found = graph_.index.find(value); found != graph_.index.end())
      problem_.results.push_back(found->second);
  }

  // The first region input that is the same tensor as this one.
  size_t same_tensor(size_t input) const {
    const bool known = profile_ != nullptr && input < profile_->same_as.size();
    return known ? profile_->same_as[input] : input;
  }

  // Of a tensor that is several inputs, autograd adds the gradients up as they come, in the memory
  // of the first, and hands on the sum of all.
  void add_gradients() {
    const auto outputs = joint_.graph->outputs();
    std::map<size_t, std::vector<size_t>> of_tensor;  // outputs by input
    for (size_t i = joint_.num_outputs; i < outputs.size(); ++i) {
      const auto input = joint_.gradient_inputs[i - joint_.num_outputs];
      of_tensor[same_tensor(input)].push_back(i);
    }
    for (const auto& [input, gradients] : of_tensor) {
      const bool accumulated = input < accumulated_.size() && accumulated_[input];
      if (accumulated && gradients.size() == 1)
        continue;
      auto made = [&](size_t output) {
        const auto found = graph_.index.find(outputs[output]);
        return found == graph_.index.end() ? -1 : found->second;
      };
      add_result(outputs[*std::min_element(gradients.begin(), gradients.end(),
                                           [&](size_t a, size_t b) { return made(a) < made(b); })]);
    }
  }

  // A gradient leaves no earlier than the last backward node that reads what it is the gradient of
  // (CompiledRegion::find_stages): to the problem, that node reads the gradient, too.
  void find_waiting_gradients() {
    std::unordered_map<const Value*, std::vector<size_t>> inputs_of;  // what a value may lie in
    for (auto input : joint_.gradient_inputs)
      inputs_of[joint_.graph->inputs()[input]] = {input};
    std::unordered_map<size_t, Node*> last;  // by input
    bool backward = false;
    for (auto* node : joint_.graph->nodes()) {
      backward = backward || node == joint_.backward_start;
      const bool hands_on = may_alias_an_argument(node) || has_fact(node, Fact::kMovesValues);
      for (auto* read : node->inputs()) {
        const auto found = inputs_of.find(read);
        if (found == inputs_of.end())
          continue;
        const auto inputs = found->second;
        for (auto input : inputs) {
          if (backward)
            last[input] = node;
        }
        for (auto* output : node->outputs()) {
          if (hands_on)
            inputs_of[output].insert(inputs_of[output].end(), inputs.begin(), inputs.end());
        }
      }
    }
    const auto outputs = joint_.graph->outputs();
    for (size_t i = joint_.num_outputs; i < outputs.size(); ++i) {
      const auto found = last.find(joint_.gradient_inputs[i - joint_.num_outputs]);
      if (found != last.end() && found->second->isAfter(outputs[i]->node()))
        waiting_[found->second].push_back(outputs[i]);
    }
  }

  // What node and alternative have in common; returns the index.
  int32_t add_costs(Node* node, bool backward) {
    const auto index = static_cast<int32_t>(problem_.seconds.size());
    std::vector<Value*> reads;
    collect_reads(node, reads);
    if (const auto found = waiting_.find(node); found != waiting_.end())
      reads.insert(reads.end(), found->second.begin(), found->second.end());
    std::vector<int32_t> inputs;
    for (auto* value : reads) {
      if (const auto found = graph_.index.find(value); found != graph_.index.end())
        inputs.push_back(found->second);
    }
    NodeCost cost;
    if (profile_ != nullptr) {
      if (const auto found = profile_->nodes.find(node); found != profile_->nodes.end())
        cost = found->second;
    }
    problem_.node_names.push_back(node->kind().toQualString());
    problem_.inputs.push_back(inputs);
    problem_.seconds.push_back(cost.seconds);
    problem_.flops.push_back(cost.flops);
    problem_.workspace_bytes.push_back(cost.workspace_bytes);
    problem_.replay_bytes.push_back(cost.replay_bytes);
    problem_.recomputable.push_back(!backward && recompute_veto(node) == RecomputeVeto::kNone);
    problem_.optional.push_back(node->hasAttribute(symbols::kOptional));
    problem_.is_view.push_back(is_view(node, inputs));
    problem_.overwrites.push_back(overwrites(node));
    graph_.nodes.push_back(node);
    graph_.alternative_to.push_back(-1);
    return index;
  }

  void add_node(Node* node, bool backward) {
    const auto index = add_costs(node, backward);
    std::vector<int32_t> outputs;
    for (auto* output : node->outputs()) {
      if (const auto value = add_value(output, index, false); value >= 0)
        outputs.push_back(value);
    }
    problem_.outputs.push_back(outputs);
  }

  void add_alternative(Node* node, int32_t original) {
    const auto index = add_costs(node, !problem_.in_forward(original));
    graph_.alternative_to[index] = original;
    std::vector<int32_t> outputs;
    for (auto output : node->is(symbols::kGives)) {
      auto* value = graph_.nodes[original]->output(static_cast<size_t>(output));
      outputs.push_back(graph_.index.at(value));
    }
    problem_.outputs.push_back(outputs);
  }

  bool is_view(const Node* node, const std::vector<int32_t>& inputs) const {
    if (profile_ == nullptr)
      return is_pure_view(node) || has_fact(node, Fact::kMovesValues);
    bool any = false;
    for (const auto* output : node->outputs()) {
      const auto found = profile_->storages.find(output->unique());
      if (found == profile_->storages.end())
        continue;
      for (auto storage : found->second) {
        any = true;
        const bool given = std::any_of(inputs.begin(), inputs.end(), [&](int32_t input) {
          const auto of_input = problem_.storages[input];
          return std::find(of_input.begin(), of_input.end(), storage) != of_input.end();
        });
        if (!given)
          return false;
      }
    }
    return any;
  }

  // What Program overwrites at run time: memory that an operator of the same program made, where
  // the layouts allow it. Without a profile they are taken to.
  std::vector<int32_t> overwrites(const Node* node) const {
    std::vector<size_t> operands;
    if (profile_ == nullptr) {
      operands = overwritable_operands(node);
    } else if (const auto found = profile_->overwritable.find(node);
               found != profile_->overwritable.end()) {
      operands = found->second;
    }
    std::vector<int32_t> values;
    for (auto operand : operands) {
      const auto* value = node->input(operand);
      const auto found = graph_.index.find(value);
      if (found != graph_.index.end() && problem_.producer[found->second] >= 0 &&
          own_memory_.contains(value))
        values.push_back(found->second);
    }
    return values;
  }

  const JointGraph& joint_;
  const Profile* profile_;
  const std::vector<bool>& accumulated_;
  // By node: gradients that leave when it has run.
  std::unordered_map<const Node*, std::vector<Value*>> waiting_;
  OwnMemory own_memory_;
  GraphProblem graph_;
  Problem& problem_ = graph_.problem;
};

}  // namespace

GraphProblem make_problem(const JointGraph& joint, const Profile* profile,
                          const std::vector<bool>& accumulated) {
  return Builder(joint, profile, accumulated).run();
}

RetentionPlan decisions_of(const GraphProblem& graph, const SavePlan& plan) {
  RetentionPlan decisions(graph.problem);
  for (size_t i = 0; i < graph.values.size(); ++i)
    decisions.drop(static_cast<int32_t>(i), 0);
  const auto decided = base_values(graph.problem);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (plan.saved.count(graph.values[i]->unique()) == 0)
      continue;
    for (auto root : decided[i])
      decisions.keep(root, 0);
  }
  return decisions;
}

}  // namespace aten_recompute
