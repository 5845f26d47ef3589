// Builds planning problems node by node. The only place that fills the per-node lists of Problem.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "planner/model/problem.h"

namespace aten_recompute {

// A node as a Problem describes it; the fields are explained there.
struct ProblemNode {
  std::string name;
  std::vector<int32_t> inputs{};
  std::vector<int32_t> outputs{};  // usually filled by ProblemBuilder::add_output()
  std::vector<int32_t> overwrites{};
  double seconds = 0.0;
  double flops = 0.0;
  int64_t workspace_bytes = 0;
  int64_t replay_bytes = 0;
  bool recomputable = false;
  bool is_view = false;
  bool optional = false;
  std::vector<int32_t> alternatives{};  // usually filled by ProblemBuilder::add_alternative()
  NodePlace place{};                    // from ProblemBuilder::place()
};

// Forward nodes are added first, then backward nodes, then alternatives. Example:
//
//   ProblemBuilder builder;
//   const auto x = builder.add_value("x", {builder.add_storage(100, /*held=*/true)});
//   const auto relu = builder.add_node({.name = "relu", .inputs = {x}, .recomputable = true});
//   const auto y = builder.add_output(relu, "y", {builder.add_storage(100)});
//   builder.start_backward();
//   ...
//   Problem problem = builder.build();
//
// Each function returns the index of what it added.
class ProblemBuilder {
 public:
  // `held`: the storage belongs to the caller.
  int32_t add_storage(int64_t bytes, bool held = false);
  void set_storage(int32_t storage, int64_t bytes, bool held);

  // Adds a value that lies in these storages. With `producer` -1 it is given to the program.
  int32_t add_value(std::string name, std::vector<int32_t> storages, int32_t producer = -1);
  // Adds a given value that exists only from the start of the backward, and returns its index.
  int32_t add_incoming(std::string name, std::vector<int32_t> storages);
  // Adds a value as the next output of `node`, and returns its index.
  int32_t add_output(int32_t node, std::string name, std::vector<int32_t> storages);
  void add_result(int32_t value) { problem_.results.push_back(value); }

  // Returns the place with this layer and this source line; "" for what is not known.
  NodePlace place(const std::string& layer, const std::string& source);

  int32_t add_node(ProblemNode node);
  // Nodes of the forward that are added from here on are served.
  void start_served() { first_served_ = nodes_.size(); }
  // Nodes that are added from here on belong to the backward.
  void start_backward();
  // Nodes that are added from here on are alternatives to others.
  void start_alternatives();
  // Adds a node that can run in place of `original`. The first one starts the alternatives.
  int32_t add_alternative(int32_t original, ProblemNode node);

  // Access to what was added so far. References are valid until a node or value is added.
  size_t num_nodes() const { return nodes_.size(); }
  ProblemNode& node(int32_t index) { return nodes_[index]; }
  const ProblemNode& node(int32_t index) const { return nodes_[index]; }
  bool in_forward(int32_t node) const {
    return problem_.in_forward(node);
  }  // after start_backward()
  int32_t producer(int32_t value) const { return problem_.producer[value]; }
  const std::string& value_name(int32_t value) const { return problem_.value_names[value]; }
  std::span<const int32_t> storages(int32_t value) const { return problem_.storages[value]; }
  int64_t storage_bytes(int32_t storage) const { return problem_.bytes[storage]; }

  Problem build() const;

 private:
  Problem problem_;  // without the lists that are filled from nodes_
  std::vector<ProblemNode> nodes_;
  std::unordered_map<std::string, int32_t> layers_;   // index in Problem::layers
  std::unordered_map<std::string, int32_t> sources_;  // index in Problem::sources
  std::optional<size_t> first_served_;
  bool in_alternatives_ = false;
};

}  // namespace aten_recompute
