// Which operators are cheap enough to run again, and which of them a compiler would fuse.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Names are ATen's ("relu"), or qualified ("library::operator"). They stand for every overload.
using OperatorNames = std::unordered_set<std::string>;

// The name under which a node's operator is listed; of an operator on tape, its own.
std::string listed_name(const torch::jit::Node* node);

class OperatorTypes {
 public:
  // Without lists the table of operator facts decides, with the defaults of PyTorch's partitioner;
  // operators that ATen tags as pointwise are recomputable as well. A list for `recomputable`
  // decides alone.
  OperatorTypes(const std::optional<std::vector<std::string>>& recomputable,
                const std::optional<std::vector<std::string>>& compute_intensive,
                bool recompute_random);

  // Draws random numbers, on tape or off it.
  bool random(const torch::jit::Node* node) const;
  bool recomputable(const torch::jit::Node* node) const;
  bool compute_intensive(const torch::jit::Node* node) const;
  // Can be part of a loop over elements: the recomputable ones, and those that draw random numbers.
  bool fusible(const torch::jit::Node* node) const;
  // Takes each operand where it comes from, so that whatever makes it can write into the result.
  bool concatenates(const torch::jit::Node* node) const;

 private:
  std::optional<OperatorNames> recomputable_;
  std::optional<OperatorNames> compute_intensive_;
  bool recompute_random_;
};

}  // namespace aten_recompute
