#include "planner/model/problem_builder.h"

#include <utility>

namespace aten_recompute {

int32_t ProblemBuilder::add_storage(int64_t bytes, bool held) {
  problem_.bytes.push_back(bytes);
  problem_.held.push_back(held);
  return static_cast<int32_t>(problem_.num_storages()) - 1;
}

void ProblemBuilder::set_storage(int32_t storage, int64_t bytes, bool held) {
  problem_.bytes[storage] = bytes;
  problem_.held[storage] = held;
}

int32_t ProblemBuilder::add_value(std::string name, std::vector<int32_t> storages,
                                  int32_t producer) {
  problem_.value_names.push_back(std::move(name));
  problem_.producer.push_back(producer);
  problem_.storages.push_back(storages);
  return static_cast<int32_t>(problem_.num_values()) - 1;
}

int32_t ProblemBuilder::add_incoming(std::string name, std::vector<int32_t> storages) {
  const auto value = add_value(std::move(name), std::move(storages));
  problem_.incoming.push_back(value);
  return value;
}

int32_t ProblemBuilder::add_output(int32_t node, std::string name, std::vector<int32_t> storages) {
  const auto value = add_value(std::move(name), std::move(storages), node);
  nodes_[node].outputs.push_back(value);
  return value;
}

NodePlace ProblemBuilder::place(const std::string& layer, const std::string& source) {
  const auto index_of = [](const std::string& text, std::vector<std::string>& texts,
                           std::unordered_map<std::string, int32_t>& known) {
    if (text.empty())
      return -1;
    const auto [found, is_new] = known.emplace(text, static_cast<int32_t>(texts.size()));
    if (is_new)
      texts.push_back(text);
    return found->second;
  };
  return {index_of(layer, problem_.layers, layers_), index_of(source, problem_.sources, sources_)};
}

int32_t ProblemBuilder::add_node(ProblemNode node) {
  nodes_.push_back(std::move(node));
  return static_cast<int32_t>(nodes_.size()) - 1;
}

void ProblemBuilder::start_alternatives() {
  if (!in_alternatives_)
    problem_.num_nodes = nodes_.size();
  in_alternatives_ = true;
}

void ProblemBuilder::start_backward() {
  problem_.num_forward = nodes_.size();
  problem_.num_served_forward = nodes_.size() - first_served_.value_or(nodes_.size());
}

int32_t ProblemBuilder::add_alternative(int32_t original, ProblemNode node) {
  start_alternatives();
  const auto index = add_node(std::move(node));
  nodes_[original].alternatives.push_back(index);
  return index;
}

Problem ProblemBuilder::build() const {
  auto problem = problem_;
  if (!in_alternatives_)
    problem.num_nodes = nodes_.size();
  for (const auto& node : nodes_) {
    problem.node_names.push_back(node.name);
    problem.inputs.push_back(node.inputs);
    problem.outputs.push_back(node.outputs);
    problem.overwrites.push_back(node.overwrites);
    problem.seconds.push_back(node.seconds);
    problem.flops.push_back(node.flops);
    problem.workspace_bytes.push_back(node.workspace_bytes);
    problem.replay_bytes.push_back(node.replay_bytes);
    problem.recomputable.push_back(node.recomputable);
    problem.is_view.push_back(node.is_view);
    problem.alternatives.push_back(node.alternatives);
    problem.optional.push_back(node.optional);
    if (!problem.layers.empty() || !problem.sources.empty())
      problem.places.push_back(node.place);
  }
  return problem;
}

}  // namespace aten_recompute
