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

// The defaults of PyTorch's partitioner, in the names that TorchScript programs use. Operators that
// ATen tags as pointwise are recomputable as well, without being listed.
const OperatorNames& default_recomputable_operators();
const OperatorNames& default_compute_intensive_operators();

// The name under which a node's operator is listed; of an operator on tape, its own.
std::string listed_name(const torch::jit::Node* node);

class OperatorTypes {
 public:
  // Without a list: the default. With one for `recomputable`, that list alone decides.
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
  OperatorNames compute_intensive_;
  bool recompute_random_;
};

}  // namespace aten_recompute
