// Asks for the rows of one operator, and what answers (passes/region/row_dimensions.h).
#pragma once

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "passes/region/known_tensors.h"
#include "runtime/sliced.h"

namespace aten_recompute {

using Sizes = std::vector<int64_t>;
using Rows = std::vector<int64_t>;  // per flat operand

// A node and a dimension of its results.
class Question {
 public:
  Question(const torch::jit::Node* node, int64_t dimension, const KnownTensors& known)
      : node_(node), dimension_(dimension), known_(known), operands_(flat_operands(node)) {}

  const torch::jit::Node* node() const { return node_; }
  int64_t dimension() const { return dimension_; }
  size_t num_operands() const { return operands_.size(); }

  // Returns the sizes of a flat operand; nullptr for one that is no tensor.
  const Sizes* operand(size_t index) const {
    return index < operands_.size() ? sizes_of(operands_[index], known_) : nullptr;
  }
  const Sizes* result() const { return sizes_of(node_->outputs()[0], known_); }
  at::ScalarType dtype_of_operand(size_t index) const {
    return known_.at(operands_[index]->unique()).at(0).dtype;
  }

  // Returns an argument by its name in the schema, if it is constant, or a list of constant ints.
  std::optional<c10::IValue> constant(const char* argument) const;

  std::optional<int64_t> integer(const char* argument) const {
    const auto value = constant(argument);
    return value && value->isInt() ? std::optional(value->toInt()) : std::nullopt;
  }

  // Returns a constant argument that is a dimension of a tensor of this rank.
  std::optional<int64_t> dimension_argument(const char* argument, size_t rank) const {
    auto value = integer(argument);
    if (value && *value < 0)
      *value += static_cast<int64_t>(rank);
    return value;
  }

  // Returns a constant list of dimensions, or a single one; an empty list if it is None.
  std::optional<Sizes> dimensions_argument(const char* argument, size_t rank) const {
    const auto value = constant(argument);
    if (!value)
      return std::nullopt;
    Sizes dimensions;
    if (value->isInt())
      dimensions.push_back(value->toInt());
    else if (value->isIntList())
      dimensions = value->toIntVector();
    else if (!value->isNone())
      return std::nullopt;
    for (auto& dimension : dimensions)
      dimension += dimension < 0 ? static_cast<int64_t>(rank) : 0;
    return dimensions;
  }

  // Slices of operand 0 along `dimension`, and all of the others.
  Rows only_first(int64_t dimension) const { return only(0, dimension); }
  Rows only(size_t operand, int64_t dimension) const {
    Rows rows(operands_.size(), kWhole);
    rows.at(operand) = dimension;
    return rows;
  }

  // The dimension of a flat operand that broadcasting puts at `dimension` of the result; kWhole
  // where it has none or is repeated there. `trailing`: so many of its last dimensions do not take
  // part.
  std::optional<int64_t> broadcast(size_t index, size_t trailing = 0) const {
    const auto* sizes = operand(index);
    if (sizes == nullptr)
      return may_have_rows(index) ? std::nullopt : std::optional(kWhole);
    const auto rank = static_cast<int64_t>(result()->size());
    const auto own = dimension_ - (rank - static_cast<int64_t>(sizes->size()));
    if (own < 0)
      return kWhole;
    if (own >= static_cast<int64_t>(sizes->size() - trailing))
      return std::nullopt;
    if ((*sizes)[own] == (*result())[dimension_])
      return own;
    if ((*sizes)[own] != 1)
      return std::nullopt;
    note_broadcast(index, own);
    return kWhole;
  }

  // Returns whether the operand may be a tensor though its sizes are not known.
  bool may_have_rows(size_t index) const;

  void note_broadcast(size_t operand, int64_t dimension) const {
    broadcasts_.emplace_back(operand, dimension);
  }
  const std::vector<std::pair<size_t, int64_t>>& broadcasts() const { return broadcasts_; }

 private:
  const torch::jit::Node* node_;
  int64_t dimension_;
  const KnownTensors& known_;
  std::vector<torch::jit::Value*> operands_;
  mutable std::vector<std::pair<size_t, int64_t>> broadcasts_;
};

using Answer = std::optional<Rows>;
using Answerer = std::function<Answer(const Question&)>;
using AnswerTable = std::unordered_map<std::string, Answerer>;  // by qualified name

// ---- answers for operators of several kinds ----

// Each element of the result follows from the operands' elements at its place.
Answer elementwise(const Question& question);
// The result has the sizes of operand 0, and its elements follow from those of operand 0.
Answer as_first(const Question& question);
// The first so many dimensions are samples, channels and the like, which the operator keeps apart.
Answerer leading(size_t count);
// The last so many dimensions belong together, those before them are kept apart.
Answerer except_last(size_t count);

// ---- operators by kind ----

void add_rows_of_layers(AnswerTable& table);  // rows_of_layers.cpp
void add_rows_of_shapes(AnswerTable& table);  // rows_of_shapes.cpp

// Channels of the input of a convolution, whose shares of the result are added up. `known_rows` has
// the rows of flat operands as far as they are known.
Answer convolution_over_channels(const Question& question,
                                 const std::vector<std::optional<int64_t>>& known_rows);
// Returns the letters of an einsum: of each operand, then of the result. Empty where it has an
// ellipsis or repeats a letter in one operand.
std::vector<std::string> letters_of_einsum(const Question& question);
// Slices every operand of an einsum along a letter. Flat operand 0 is the equation.
Answer along_letter(const Question& question, const std::vector<std::string>& letters, char letter);
// Returns the dimensions over which operand 0 is reduced; all of them where none are named.
std::optional<Sizes> reduced_dimensions(const Question& question);

inline bool contains(const Sizes& dimensions, int64_t dimension) {
  return std::find(dimensions.begin(), dimensions.end(), dimension) != dimensions.end();
}

}  // namespace aten_recompute
