// What may be part of a region, and why not.
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
  kOutside,  // pure, but not for a region: stands before or after it
  kBreak     // ends the region before it
};

struct Eligibility {
  Place place = Place::kRegion;
  std::string reason;
};

// A list, or a list in a list, that holds tensors.
bool is_list_with_tensors(const c10::Type& type);

// What a method's nodes are judged by.
struct RegionFacts {
  const torch::jit::AliasDb& aliases;
  std::unordered_set<const torch::jit::Node*> kept_out;  // stay outside whatever they are
  std::unordered_set<std::string> set_attributes;        // names of those that the method sets
  // Values that the method asks autograd about by name: what reads them comes in another region, so
  // that they are on the way of the gradients.
  std::unordered_set<const torch::jit::Value*> asked_for;
};

// Judges the nodes of one block, in order.
class RegionJudge {
 public:
  // All outlive it. `in_region` is the region at the time of the question.
  RegionJudge(torch::jit::Block* block, const RegionFacts& facts,
              const std::unordered_set<torch::jit::Node*>& in_region)
      : block_(block), facts_(facts), in_region_(in_region) {}

  Eligibility judge(torch::jit::Node* node) const;

 private:
  Eligibility outside(torch::jit::Node* node, const std::string& reason) const;
  Eligibility judge_control_flow(torch::jit::Node* node) const;
  bool only_checks(torch::jit::Block* block) const;
  Eligibility judge_mutation(torch::jit::Node* node) const;

  torch::jit::Block* block_;
  const RegionFacts& facts_;
  const std::unordered_set<torch::jit::Node*>& in_region_;
};

}  // namespace aten_recompute
