// Small planning problems for tests, written node by node.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "planner/model/problem.h"
#include "planner/model/simulator.h"

namespace aten_recompute::test {

// Values are added in the order in which they come into being:
//
//   ProblemBuilder b;
//   const auto x = b.held("x", 100);
//   const auto a = b.fresh("a", {x}, 10);
//   b.start_backward();
//   const auto dy = b.incoming("dy", 10);
//   b.fresh("dx", {dy, a}, 100);
//   b.result("dx");
//
// A node is called as its first output, runs for one second and for as many floating-point
// operations, unless last() is told otherwise.
class ProblemBuilder {
 public:
  struct Output {
    std::string name;
    int64_t bytes;
  };

  int32_t held(const std::string& name, int64_t bytes) { return add_value(name, -1, bytes, 1); }
  // Given to the program, but not the caller's to keep.
  int32_t given(const std::string& name, int64_t bytes) { return add_value(name, -1, bytes, 0); }
  int32_t incoming(const std::string& name, int64_t bytes) {
    problem_.incoming.push_back(given(name, bytes));
    return problem_.incoming.back();
  }

  int32_t fresh(const std::string& name, const std::vector<int32_t>& inputs, int64_t bytes) {
    return fresh(inputs, {{name, bytes}}).front();
  }
  std::vector<int32_t> fresh(const std::vector<int32_t>& inputs,
                             const std::vector<Output>& outputs) {
    const auto node = add_node(outputs.front().name, inputs);
    std::vector<int32_t> made;
    for (const auto& [name, bytes] : outputs)
      made.push_back(add_value(name, node, bytes, 0));
    problem_.outputs.push_back(made);
    return made;
  }
  // Of one tensor, or a list of several.
  int32_t view(const std::string& name, const std::vector<int32_t>& inputs) {
    const auto node = add_node(name, inputs);
    problem_.is_view[node] = 1;
    problem_.seconds[node] = 0.0;
    std::vector<int32_t> storages;
    for (auto input : inputs) {
      const auto of_input = problem_.storages[input];
      storages.insert(storages.end(), of_input.begin(), of_input.end());
    }
    problem_.value_names.push_back(name);
    problem_.producer.push_back(node);
    problem_.storages.push_back(storages);
    const auto value = static_cast<int32_t>(problem_.num_values()) - 1;
    problem_.outputs.push_back({value});
    return value;
  }

  void start_backward() {
    problem_.num_forward = problem_.num_all_nodes();
    in_backward_ = true;
  }
  void result(int32_t value) { problem_.results.push_back(value); }

  // After all other nodes: runs in place of what makes `value`, from other inputs.
  int32_t alternative(int32_t value, const std::vector<int32_t>& inputs, double seconds) {
    if (problem_.num_nodes == 0)
      problem_.num_nodes = problem_.num_all_nodes();
    const auto node = add_node(problem_.value_names[value] + "_instead", inputs);
    problem_.seconds[node] = seconds;
    problem_.outputs.push_back({value});
    alternatives_.push_back({problem_.producer[value], node});
    return node;
  }

  // Of the node added last.
  void seconds(double seconds) { problem_.seconds.back() = seconds; }
  void workspace(int64_t bytes) { problem_.workspace_bytes.back() = bytes; }
  void once() { problem_.recomputable.back() = 0; }
  void optional() { problem_.optional.back() = 1; }
  void overwrites(const std::vector<int32_t>& inputs) { overwrites_.back() = inputs; }

  Problem build() {
    if (problem_.num_nodes == 0)
      problem_.num_nodes = problem_.num_all_nodes();
    for (const auto& row : overwrites_)
      problem_.overwrites.push_back(row);
    for (size_t node = 0; node < problem_.num_all_nodes(); ++node) {
      std::vector<int32_t> row;
      for (const auto& [instead_of, alternative] : alternatives_) {
        if (instead_of == static_cast<int32_t>(node))
          row.push_back(alternative);
      }
      problem_.alternatives.push_back(row);
    }
    return problem_;
  }

 private:
  struct Alternative {
    int32_t instead_of;
    int32_t node;
  };

  int32_t add_value(const std::string& name, int32_t producer, int64_t bytes, uint8_t held) {
    problem_.value_names.push_back(name);
    problem_.producer.push_back(producer);
    problem_.storages.push_back({static_cast<int32_t>(problem_.bytes.size())});
    problem_.bytes.push_back(bytes);
    problem_.held.push_back(held);
    return static_cast<int32_t>(problem_.num_values()) - 1;
  }

  int32_t add_node(const std::string& name, const std::vector<int32_t>& inputs) {
    problem_.node_names.push_back(name);
    problem_.inputs.push_back(inputs);
    problem_.seconds.push_back(1.0);
    problem_.flops.push_back(1.0);
    problem_.workspace_bytes.push_back(0);
    problem_.recomputable.push_back(in_backward_ ? 0 : 1);
    problem_.is_view.push_back(0);
    problem_.optional.push_back(0);
    overwrites_.emplace_back();
    return static_cast<int32_t>(problem_.num_all_nodes()) - 1;
  }

  Problem problem_;
  std::vector<std::vector<int32_t>> overwrites_;
  std::vector<Alternative> alternatives_;
  bool in_backward_ = false;
};

// The steps as "a b | da b dx": what ran, the forward before the bar.
inline std::string listing(const Simulator& simulator) {
  std::string text;
  bool in_backward = false;
  for (const auto& step : simulator.steps()) {
    if (step.slot > 0 && !in_backward) {
      in_backward = true;
      text += text.empty() ? "|" : " |";
    }
    text += text.empty() ? "" : " ";
    text += simulator.problem().node_names[step.node];
  }
  return text;
}

}  // namespace aten_recompute::test
