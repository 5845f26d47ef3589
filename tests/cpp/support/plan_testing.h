// Helpers for tests of the planner: small problems, written node by node, and schedules as text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/model/problem_builder.h"
#include "planner/model/simulator.h"

namespace aten_recompute::test {

// Builds a problem with few words. Values are added in the order in which they come into being:
//
//   SmallProblemBuilder b;
//   const auto x = b.held("x", 100);
//   const auto a = b.fresh("a", {x}, 10);
//   b.start_backward();
//   const auto dy = b.incoming("dy", 10);
//   b.result(b.fresh("dx", {dy, a}, 100));
//   const Problem problem = b.build();
//
// A node has the name of its first output. It takes one second and one floating-point operation
// unless seconds() says otherwise.
class SmallProblemBuilder {
 public:
  struct Output {
    std::string name;
    int64_t bytes;
  };

  // A given value that belongs to the caller.
  int32_t held(const std::string& name, int64_t bytes) {
    return builder_.add_value(name, {builder_.add_storage(bytes, /*held=*/true)});
  }
  // A given value that does not belong to the caller.
  int32_t given(const std::string& name, int64_t bytes) {
    return builder_.add_value(name, {builder_.add_storage(bytes)});
  }
  int32_t incoming(const std::string& name, int64_t bytes) {
    return builder_.add_incoming(name, {builder_.add_storage(bytes)});
  }

  // A node whose outputs have memory of their own.
  int32_t fresh(const std::string& name, const std::vector<int32_t>& inputs, int64_t bytes) {
    return fresh(inputs, {{name, bytes}}).front();
  }
  std::vector<int32_t> fresh(const std::vector<int32_t>& inputs,
                             const std::vector<Output>& outputs) {
    const auto node = add_node(outputs.front().name, inputs);
    std::vector<int32_t> made;
    for (const auto& [name, bytes] : outputs)
      made.push_back(builder_.add_output(node, name, {builder_.add_storage(bytes)}));
    return made;
  }
  // A view of one tensor, or a list of several.
  int32_t view(const std::string& name, const std::vector<int32_t>& inputs) {
    const auto node = add_node(name, inputs);
    builder_.node(node).is_view = true;
    builder_.node(node).seconds = 0.0;
    std::vector<int32_t> storages;
    for (auto input : inputs) {
      const auto of_input = builder_.storages(input);
      storages.insert(storages.end(), of_input.begin(), of_input.end());
    }
    return builder_.add_output(node, name, storages);
  }

  void start_served() { builder_.start_served(); }
  void start_backward() {
    builder_.start_backward();
    in_backward_ = true;
  }
  void result(int32_t value) { builder_.add_result(value); }

  // Adds a node that computes `value` from other inputs. Called after all other nodes are added.
  int32_t alternative(int32_t value, const std::vector<int32_t>& inputs, double seconds) {
    auto node = describe(builder_.value_name(value) + "_instead", inputs);
    node.outputs = {value};
    node.seconds = seconds;
    last_ = builder_.add_alternative(builder_.producer(value), std::move(node));
    return last_;
  }

  // These change the node that was added last.
  void seconds(double seconds) { builder_.node(last_).seconds = seconds; }
  void workspace(int64_t bytes) { builder_.node(last_).workspace_bytes = bytes; }
  void replay(int64_t bytes) { builder_.node(last_).replay_bytes = bytes; }
  void place(const std::string& layer, const std::string& source) {
    builder_.node(last_).place = builder_.place(layer, source);
  }
  void once() { builder_.node(last_).recomputable = false; }
  void optional() { builder_.node(last_).optional = true; }
  void overwrites(const std::vector<int32_t>& inputs) { builder_.node(last_).overwrites = inputs; }

  Problem build() const { return builder_.build(); }

 private:
  ProblemNode describe(const std::string& name, const std::vector<int32_t>& inputs) const {
    return {.name = name,
            .inputs = inputs,
            .seconds = 1.0,
            .flops = 1.0,
            .recomputable = !in_backward_};
  }

  int32_t add_node(const std::string& name, const std::vector<int32_t>& inputs) {
    last_ = builder_.add_node(describe(name, inputs));
    return last_;
  }

  ProblemBuilder builder_;
  int32_t last_ = -1;  // node
  bool in_backward_ = false;
};

// Returns the names of the nodes that ran, the forward before the bar: "a b | da b dx".
inline std::string listing(const Simulator& simulator) {
  std::string text;
  bool in_backward = false;
  for (const auto& step : simulator.steps()) {
    if (!simulator.problem().is_before_loss(step.slot) && !in_backward) {
      in_backward = true;
      text += text.empty() ? "|" : " |";
    }
    text += text.empty() ? "" : " ";
    text += simulator.problem().node_names[step.node];
  }
  return text;
}

}  // namespace aten_recompute::test
