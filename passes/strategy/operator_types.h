// Says which operators are cheap enough to run again, and which of them a compiler would fuse.
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

// Returns the name under which lists of operators contain the node's operator. For a tape this is
// the operator that the tape runs.
std::string listed_name(const torch::jit::Node* node);

class OperatorTypes {
 public:
  // A list replaces the default, which is in the table of operator facts and follows PyTorch's
  // partitioner. By default, operators that ATen tags as pointwise are recomputable as well.
  OperatorTypes(const std::optional<std::vector<std::string>>& recomputable,
                const std::optional<std::vector<std::string>>& compute_intensive,
                bool recompute_random);

  // Whether the operator draws random numbers.
  bool random(const torch::jit::Node* node) const;
  bool recomputable(const torch::jit::Node* node) const;
  bool compute_intensive(const torch::jit::Node* node) const;
  // Whether the operator can be part of a loop over elements: it is recomputable or random.
  bool fusible(const torch::jit::Node* node) const;
  // Whether whatever makes an operand can write it into the result directly.
  bool concatenates(const torch::jit::Node* node) const;

 private:
  std::optional<OperatorNames> recomputable_;
  std::optional<OperatorNames> compute_intensive_;
  bool recompute_random_;
};

}  // namespace aten_recompute
