#include "passes/strategy/graph_problem.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <map>
#include <utility>

#include "ir/memory_reuse.h"
#include "ir/node_names.h"
#include "ir/node_place.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/save_plan.h"
#include "ir/symbols.h"
#include "passes/profile/profile.h"
#include "planner/model/problem_builder.h"
#include "rules/recomputability.h"
#include "runtime/in_place.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

class GraphTranslator {
 public:
  GraphTranslator(const JointGraph& joint, const Profile* profile,
                  const std::vector<bool>& accumulated)
      : joint_(joint), profile_(profile), accumulated_(accumulated) {}

  GraphProblem run() {
    add_profiled_storages();
    add_inputs();
    find_waiting_gradients();
    const auto alternatives = add_nodes();
    builder_.start_alternatives();
    for (auto* node : alternatives)
      add_alternative(node);
    const auto outputs = joint_.graph->outputs();
    for (size_t i = 0; i < joint_.num_outputs; ++i)
      add_result(outputs[i]);
    add_gradients();
    graph_.problem = builder_.build();
    graph_.problem.is_one_program = joint_.has_inner_backward;
    graph_.problem.loss_bytes = graph_.problem.incoming_bytes();
    return std::move(graph_);
  }

 private:
  void add_profiled_storages() {
    if (profile_ == nullptr)
      return;
    for (size_t i = 0; i < profile_->storage_bytes.size(); ++i)
      builder_.add_storage(profile_->storage_bytes[i], profile_->storage_is_callers[i]);
  }

  void add_inputs() {
    const auto inputs = joint_.graph->inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!contains_tensor(*inputs[i]->type()))
        continue;
      const bool is_incoming = i >= joint_.num_inputs;
      auto storages = storages_of_given(inputs[i], /*held=*/!is_incoming);
      const auto& name = inputs[i]->debugName();
      note_value(inputs[i], is_incoming ? builder_.add_incoming(name, std::move(storages))
                                        : builder_.add_value(name, std::move(storages)));
    }
  }

  // Adds the nodes of forward and backward; returns the alternatives, which come after them.
  std::vector<Node*> add_nodes() {
    bool backward = false;
    std::vector<Node*> alternatives;
    for (auto* node : joint_.graph->nodes()) {
      if (node == joint_.inner_backward)
        builder_.start_served();
      if (node == joint_.backward_start) {
        backward = true;
        builder_.start_backward();
      } else if (node->kind() == prim::Constant) {
        // A tensor among the graph's constants belongs to the program for good.
        if (auto* value = node->output(); contains_tensor(*value->type())) {
          note_value(value, builder_.add_value(value->debugName(),
                                               storages_of_given(value, /*held=*/true)));
        }
      } else if (node->hasAttribute(symbols::kAlternativeTo)) {
        alternatives.push_back(node);
      } else {
        add_node(node, backward);
        own_memory_.add_outputs_of(node);
      }
    }
    return alternatives;
  }

  void note_value(Value* value, int32_t index) {
    graph_.values.push_back(value);
    graph_.index.emplace(value, index);
  }

  std::vector<int32_t> profiled_storages(const Value* value) const {
    const auto found = profile_->storages.find(value->unique());
    return found == profile_->storages.end() ? std::vector<int32_t>{} : found->second;
  }

  std::vector<int32_t> storages_of_given(const Value* value, bool held) {
    if (profile_ != nullptr)
      return profiled_storages(value);
    return {builder_.add_storage(0, held)};
  }

  std::vector<int32_t> storages_of_output(const Value* value, int32_t producer) {
    if (profile_ != nullptr)
      return profiled_storages(value);
    const auto& node = builder_.node(producer);
    if (!node.is_view)
      return {builder_.add_storage(0)};
    std::vector<int32_t> storages;
    for (auto input : node.inputs) {
      const auto of_input = builder_.storages(input);
      storages.insert(storages.end(), of_input.begin(), of_input.end());
    }
    return storages;
  }

  void add_result(Value* value) {
    if (const auto found = graph_.index.find(value); found != graph_.index.end())
      builder_.add_result(found->second);
  }

  // Returns the first region input that is the same tensor as this one.
  size_t same_tensor(size_t input) const {
    const bool known = profile_ != nullptr && input < profile_->same_as.size();
    return known ? profile_->same_as[input] : input;
  }

  // Where one tensor is several inputs, autograd accumulates the gradients in the memory of the
  // first and passes on their sum, so only the first stays in memory.
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

  // A gradient leaves the region no earlier than the last backward node that reads its input
  // (CompiledRegion::find_stages). The problem expresses this by letting that node read the
  // gradient.
  void find_waiting_gradients() {
    std::unordered_map<const Value*, std::vector<size_t>>
        inputs_of;  // whose memory a value may share
    for (auto input : joint_.gradient_inputs)
      inputs_of[joint_.graph->inputs()[input]] = {input};
    std::unordered_map<size_t, Node*> last;  // by input
    bool backward = false;
    for (auto* node : joint_.graph->nodes()) {
      backward = backward || node == joint_.backward_start;
      const bool may_alias = may_alias_an_argument(node) || has_fact(node, Fact::kMovesValues);
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
          if (may_alias)
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

  std::vector<int32_t> reads_of(Node* node) const {
    auto reads = free_values(node);
    if (const auto found = waiting_.find(node); found != waiting_.end())
      reads.insert(reads.end(), found->second.begin(), found->second.end());
    std::vector<int32_t> inputs;
    for (auto* value : reads) {
      if (const auto found = graph_.index.find(value); found != graph_.index.end())
        inputs.push_back(found->second);
    }
    return inputs;
  }

  // Describes a node or an alternative, without its outputs.
  ProblemNode describe(Node* node, bool backward) {
    NodeCost cost;
    if (profile_ != nullptr) {
      if (const auto found = profile_->nodes.find(node); found != profile_->nodes.end())
        cost = found->second;
    }
    auto inputs = reads_of(node);
    const bool views = is_view(node, inputs);
    return {.name = node->kind().toQualString(),
            .inputs = std::move(inputs),
            .overwrites = overwrites(node),
            .seconds = cost.seconds,
            .flops = cost.flops,
            .workspace_bytes = cost.workspace_bytes,
            .replay_bytes = cost.replay_bytes,
            .recomputable = !backward && recompute_veto(node) == RecomputeVeto::kNone,
            .is_view = views,
            .optional = node->hasAttribute(symbols::kOptional),
            .place = builder_.place(module_path_of(node), location_of(node))};
  }

  void note_node(Node* node, int32_t alternative_to) {
    graph_.nodes.push_back(node);
    graph_.alternative_to.push_back(alternative_to);
  }

  void add_node(Node* node, bool backward) {
    const auto index = builder_.add_node(describe(node, backward));
    note_node(node, -1);
    if (!node->outputs().empty())
      producers_.emplace(node->output(0)->unique(), index);
    for (auto* output : node->outputs()) {
      if (contains_tensor(*output->type())) {
        note_value(output, builder_.add_output(index, output->debugName(),
                                               storages_of_output(output, index)));
      }
    }
  }

  void add_alternative(Node* node) {
    const auto original = producers_.at(static_cast<size_t>(node->i(symbols::kAlternativeTo)));
    auto description = describe(node, /*backward=*/!builder_.in_forward(original));
    for (auto output : node->is(symbols::kGives)) {
      auto* value = graph_.nodes[original]->output(static_cast<size_t>(output));
      description.outputs.push_back(graph_.index.at(value));
    }
    builder_.add_alternative(original, std::move(description));
    note_node(node, original);
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
          const auto of_input = builder_.storages(input);
          return std::find(of_input.begin(), of_input.end(), storage) != of_input.end();
        });
        if (!given)
          return false;
      }
    }
    return any;
  }

  // Returns what Program overwrites at run time: memory that an operator of the same program made,
  // where the layouts allow it. Without a profile, layouts are assumed to allow it.
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
      if (found != graph_.index.end() && builder_.producer(found->second) >= 0 &&
          own_memory_.contains(value))
        values.push_back(found->second);
    }
    return values;
  }

  const JointGraph& joint_;
  const Profile* profile_;
  const std::vector<bool>& accumulated_;
  // Per node: gradients that leave the region once it has run.
  std::unordered_map<const Node*, std::vector<Value*>> waiting_;
  OwnMemory own_memory_;
  std::unordered_map<size_t, int32_t> producers_;  // nodes, by Value::unique() of output 0
  ProblemBuilder builder_;
  GraphProblem graph_;
};

}  // namespace

GraphProblem make_problem(const JointGraph& joint, const Profile* profile,
                          const std::vector<bool>& accumulated) {
  return GraphTranslator(joint, profile, accumulated).run();
}

RetentionPlan retention_of(const GraphProblem& graph, const SavePlan& plan) {
  RetentionPlan retention(graph.problem);
  const auto bases = base_values(graph.problem);
  const auto last_slots = last_slots_of_forward(graph.problem, bases);
  for (size_t i = 0; i < graph.values.size(); ++i)
    retention.drop(static_cast<int32_t>(i), static_cast<size_t>(last_slots[i]));
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (plan.saved.count(graph.values[i]->unique()) == 0)
      continue;
    for (auto base : bases[i])
      retention.keep(base, static_cast<size_t>(last_slots[base]));
  }
  return retention;
}

}  // namespace aten_recompute
