#include "runtime/sliced.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "ir/symbols.h"
#include "runtime/out_of_memory.h"
#include "runtime/program.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Node;
using torch::jit::Stack;

// Returns the tensor in memory that nothing else refers to: results of an operator are tensors of
// their own, and a sum is added to.
at::Tensor in_own_memory(at::Tensor tensor) {
  const bool is_own =
      tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1;
  return is_own ? std::move(tensor) : tensor.clone();
}

// Returns memory for slices like this one. Dimensions lie in memory in the order in which those of
// the slice do, as they would if everything had run as a whole.
at::Tensor whole_for(const at::Tensor& slice, int64_t dimension, int64_t rows) {
  auto sizes = slice.sizes().vec();
  sizes[dimension] = rows;
  std::vector<int64_t> order(sizes.size()), place(sizes.size()), in_memory;
  std::iota(order.begin(), order.end(), 0);
  if (slice.is_non_overlapping_and_dense())
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return slice.stride(a) > slice.stride(b); });
  for (size_t i = 0; i < order.size(); ++i) {
    in_memory.push_back(sizes[order[i]]);
    place[order[i]] = static_cast<int64_t>(i);
  }
  return at::empty(in_memory, slice.options()).permute(place);
}

class Sliced {
 public:
  explicit Sliced(const Node* node)
      : program_(std::make_shared<const Program>(node->g(c10::attr::Subgraph))),
        slices_(node->i(symbols::kSlices)),
        operand_rows_(node->is(symbols::kOperandRows)),
        result_rows_(node->is(symbols::kResultRows)) {}

  void operator()(Stack& stack) const {
    const auto operands = torch::jit::pop(stack, operand_rows_.size());
    const auto rows = number_of_rows(operands);
    auto results = rows ? run_in_slices(operands, *rows) : std::nullopt;
    if (!results)
      results = run_as_a_whole(operands);
    std::move(results->begin(), results->end(), std::back_inserter(stack));
  }

 private:
  // Returns the number of rows where there are several and all sliced operands have as many.
  std::optional<int64_t> number_of_rows(const std::vector<IValue>& operands) const {
    std::optional<int64_t> rows;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operand_rows_[i] < 0)
        continue;
      if (!operands[i].isTensor() || !operands[i].toTensor().defined() ||
          operands[i].toTensor().dim() <= operand_rows_[i])
        return std::nullopt;
      const auto size = operands[i].toTensor().size(operand_rows_[i]);
      if (rows && *rows != size)
        return std::nullopt;
      rows = size;
    }
    return rows && *rows > 1 ? rows : std::nullopt;
  }

  std::vector<IValue> run(std::vector<IValue> operands) const {
    auto registers = program_->start(std::move(operands));
    program_->run(registers, 0, program_->instructions().size());
    std::vector<IValue> results;
    for (size_t i = 0; i < result_rows_.size(); ++i)
      results.push_back(program_->take_output(registers, i));
    return results;
  }

  std::vector<IValue> run_as_a_whole(const std::vector<IValue>& operands) const {
    auto results = run(operands);
    for (auto& result : results) {
      if (result.isTensor() && result.toTensor().defined())
        result = in_own_memory(std::move(result).toTensor());
    }
    return results;
  }

  // Returns nothing where a slice does not have the results that it should have.
  std::optional<std::vector<IValue>> run_in_slices(const std::vector<IValue>& operands,
                                                   int64_t rows) const {
    const auto length = (rows + slices_ - 1) / slices_;
    std::vector<IValue> results(result_rows_.size());
    for (int64_t begin = 0; begin < rows; begin += length) {
      const auto size = std::min(length, rows - begin);
      auto slice = operands;
      for (size_t i = 0; i < operands.size(); ++i) {
        if (operand_rows_[i] >= 0)
          slice[i] = operands[i].toTensor().narrow(operand_rows_[i], begin, size);
      }
      std::vector<IValue> parts;
      try {
        parts = run(std::move(slice));
      } catch (const std::exception& error) {
        // Sizes that a program has written down need not fit a slice; the whole will tell.
        if (is_out_of_memory(error))
          throw;
        return std::nullopt;
      }
      for (size_t i = 0; i < parts.size(); ++i) {
        if (!add_part(results[i], std::move(parts[i]), result_rows_[i], {begin, size, rows}))
          return std::nullopt;
      }
    }
    return results;
  }

  struct Place {
    int64_t begin = 0;  // first row
    int64_t size = 0;
    int64_t rows = 0;  // of all slices
  };

  // Returns whether the part is what a slice should give.
  static bool add_part(IValue& result, IValue part, int64_t dimension, const Place& place) {
    if (dimension == kWhole) {
      result = std::move(part);
      return true;
    }
    if (!part.isTensor() || !part.toTensor().defined())
      return false;
    auto tensor = std::move(part).toTensor();
    if (dimension == kSummed) {
      if (result.isNone())
        result = in_own_memory(std::move(tensor));
      else
        result.toTensor().add_(tensor);
      return true;
    }
    if (tensor.dim() <= dimension || tensor.size(dimension) != place.size)
      return false;
    if (result.isNone())
      result = whole_for(tensor, dimension, place.rows);
    result.toTensor().narrow(dimension, place.begin, place.size).copy_(tensor);
    return true;
  }

  std::shared_ptr<const Program> program_;
  int64_t slices_;
  std::vector<int64_t> operand_rows_;
  std::vector<int64_t> result_rows_;
};

}  // namespace

void register_sliced_operator() {
  static const torch::jit::RegisterOperators registered({torch::jit::Operator(
      symbols::kSliced, [](const Node* node) -> torch::jit::Operation { return Sliced(node); },
      c10::AliasAnalysisKind::PURE_FUNCTION)});
}

}  // namespace aten_recompute
