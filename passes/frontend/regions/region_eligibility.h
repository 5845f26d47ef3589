// Decides which nodes may be part of a region, and gives the reason if one may not.
#pragma once

#include <string>
#include <unordered_set>

namespace c10 {
struct Type;
}

namespace torch::jit {
class AliasDb;
struct Block;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

enum class Place {
  kRegion,   // part of a region
  kOutside,  // pure, but not part of a region: it moves before or after the region
  kBreak     // ends the region before it
};

struct Eligibility {
  Place place = Place::kRegion;
  std::string reason;  // for the log; empty for nodes that are part of a region
};

// Returns whether the type is a list, or a list of lists, of tensors.
bool is_list_with_tensors(const c10::Type& type);

// What is known of a method when its nodes are judged.
struct RegionFacts {
  const torch::jit::AliasDb& aliases;
  std::unordered_set<const torch::jit::Node*> excluded;  // nodes that must stay outside
  std::unordered_set<std::string> set_attributes;        // names of attributes that the method sets
  // Values whose gradient the method itself asks for. A region ends after each of them, so that
  // gradients between two regions pass through the value.
  std::unordered_set<const torch::jit::Value*> gradient_targets;
  // Blocks of autocast may be part of regions. Nothing that autocast may cast is moved then.
  bool has_autocast_blocks = false;
  // Gradients that the method asks for may be part of regions.
  bool has_gradients = false;
};

// Decides about the nodes of one block, which need to be given in order.
class EligibilityChecker {
 public:
  // The arguments need to outlive this object. `in_region` has the nodes of the present region.
  EligibilityChecker(torch::jit::Block* block, const RegionFacts& facts,
                     const std::unordered_set<torch::jit::Node*>& in_region)
      : block_(block), facts_(facts), in_region_(in_region) {}

  // Returns where the node belongs, with the reason.
  Eligibility check(torch::jit::Node* node) const;

 private:
  // Returns the place of a node that may not be part of a region: kOutside if it is pure.
  Eligibility outside(torch::jit::Node* node, const std::string& reason) const;
  // Returns whether the node has to stay in its block of autocast.
  bool may_be_cast(const torch::jit::Node* node) const;
  Eligibility check_control_flow(torch::jit::Node* node) const;
  // Returns whether a region may have, or be given, all that the nodes of this nested block read.
  bool may_enter_region(torch::jit::Block* block) const;
  Eligibility check_mutation(torch::jit::Node* node) const;

  torch::jit::Block* block_;
  const RegionFacts& facts_;
  const std::unordered_set<torch::jit::Node*>& in_region_;
};

}  // namespace aten_recompute
