#include "runtime/sliced.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/symbols.h"
#include "runtime/meta_memory.h"
#include "runtime/out_of_memory.h"
#include "runtime/path_check.h"
#include "runtime/program.h"
#include "runtime/undefined_gradients.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Node;
using torch::jit::Stack;

// Returns the tensor in memory that nothing else refers to: results of an operator are tensors of
// their own, and a sum is added to.
at::Tensor in_own_memory(at::Tensor tensor) {
  const bool is_own = tensor.use_count() == 1 && tensor.has_storage() &&
                      tensor.storage().use_count() == 1 && tensor.is_non_overlapping_and_dense();
  return is_own ? std::move(tensor) : tensor.clone();
}

using Strides = std::vector<int64_t>;
// Per result; empty where it is not known, or the result has gaps or overlaps.
using StridesOfResults = std::vector<std::optional<Strides>>;

// Returns numbers that are the same for operands of which an operator makes results with the same
// strides. Returns nothing where there is an operand of another kind.
std::optional<std::vector<int64_t>> describe(const std::vector<IValue>& operands) {
  std::vector<int64_t> words;
  enum Kind : int64_t { kNone = -1, kInt = -2, kBool = -3, kList = -4 };  // types are not negative
  const auto add_all = [&](at::IntArrayRef values) {
    words.push_back(static_cast<int64_t>(values.size()));
    words.insert(words.end(), values.begin(), values.end());
  };
  for (const auto& operand : operands) {
    if (operand.isTensor() && operand.toTensor().defined()) {
      const auto& tensor = operand.toTensor();
      words.push_back(static_cast<int64_t>(tensor.scalar_type()));
      add_all(tensor.sizes());
      add_all(tensor.strides());
    } else if (operand.isInt()) {
      words.insert(words.end(), {kInt, operand.toInt()});
    } else if (operand.isBool()) {
      words.insert(words.end(), {kBool, operand.toBool() ? 1 : 0});
    } else if (operand.isIntList()) {
      words.push_back(kList);
      add_all(operand.toIntVector());
    } else if (operand.isNone() || operand.isTensor()) {
      words.push_back(kNone);
    } else {
      return std::nullopt;
    }
  }
  return words;
}

// The strides of the results for the operands that were seen last, and what undefined gradients
// leave out. Thread-safe.
class KnownResults {
 public:
  std::optional<StridesOfResults> find(const std::vector<int64_t>& operands) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return operands == operands_ ? std::optional(strides_) : std::nullopt;
  }
  void set(std::vector<int64_t> operands, StridesOfResults strides) {
    const std::lock_guard<std::mutex> lock(mutex_);
    operands_ = std::move(operands);
    strides_ = std::move(strides);
  }
  std::shared_ptr<const UndefinedGradients> undefined(const std::vector<bool>& defined,
                                                      const Program& program,
                                                      const std::vector<size_t>& gradients) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& slot = undefined_[defined];
    if (slot == nullptr)
      slot = std::make_shared<UndefinedGradients>(
          find_undefined_gradients(program, gradients, defined));
    return slot;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int64_t> operands_;
  StridesOfResults strides_;
  std::map<std::vector<bool>, std::shared_ptr<const UndefinedGradients>> undefined_;
};

// Returns memory for slices like this one. Dimensions lie in memory in the order that `strides` of
// the whole say or, without these, in which those of the slice do.
at::Tensor whole_for(const at::Tensor& slice, int64_t dimension, int64_t rows,
                     const std::optional<Strides>& strides) {
  auto sizes = slice.sizes().vec();
  sizes[dimension] = rows;
  if (strides && strides->size() == sizes.size())
    return at::empty_strided(sizes, *strides, slice.options());
  std::vector<int64_t> order(sizes.size()), place(sizes.size()), in_memory;
  std::iota(order.begin(), order.end(), 0);
  if (!slice.is_contiguous() && slice.is_non_overlapping_and_dense())
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return slice.stride(a) > slice.stride(b); });
  for (size_t i = 0; i < order.size(); ++i) {
    in_memory.push_back(sizes[order[i]]);
    place[order[i]] = static_cast<int64_t>(i);
  }
  return at::empty(in_memory, slice.options()).permute(place);
}

// Returns whether results of the operator on meta tensors may lie in memory otherwise than those on
// the CPU, where another kernel chooses.
bool has_layout_of_kernel(const Node* node) {
  const std::string name = node->kind().toQualString();
  return name.rfind("aten::conv", 0) == 0 || name == "aten::group_norm" ||
         name == "aten::instance_norm" || name == "aten::batch_norm" ||
         name == "aten::scaled_dot_product_attention";
}

// Returns whether a run of the graph on meta tensors shows how results lie in memory.
bool shows_layouts_on_meta(const torch::jit::Graph& graph) {
  const auto nodes = graph.nodes();
  return std::all_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return (node->kind().is_aten() && !has_layout_of_kernel(node)) || node->kind().is_prim() ||
           node->kind() == symbols::kCheckPath;
  });
}

// For so few slices, each may have one row: there are as few channels.
constexpr int64_t kFew = 3;

class Sliced {
 public:
  explicit Sliced(const Node* node)
      : program_(std::make_shared<const Program>(node->g(c10::attr::Subgraph))),
        slices_(node->i(symbols::kSlices)),
        operand_rows_(node->is(symbols::kOperandRows)),
        result_rows_(node->is(symbols::kResultRows)),
        broadcasts_(node->is(symbols::kBroadcasts)),
        gradients_(gradient_operands_of(node)),
        shows_layouts_(shows_layouts_on_meta(*node->g(c10::attr::Subgraph))),
        may_fail_early_(node->hasAttribute(kMayFailEarly)) {}

  void operator()(Stack& stack) const {
    const auto operands = torch::jit::pop(stack, operand_rows_.size());
    const auto undefined = undefined_gradients(operands);
    const auto rows = number_of_rows(operands);
    auto results = rows ? run_in_slices(operands, *rows, undefined.get()) : std::nullopt;
    if (!results)
      results = run_as_a_whole_in_order(operands, undefined.get());
    std::move(results->begin(), results->end(), std::back_inserter(stack));
  }

 private:
  static std::vector<size_t> gradient_operands_of(const Node* node) {
    if (!node->hasAttribute(kGradientOperands))
      return {};
    const auto& given = node->is(kGradientOperands);
    return {given.begin(), given.end()};
  }

  // Returns what does not run because gradients are undefined; nullptr if all are defined.
  std::shared_ptr<const UndefinedGradients> undefined_gradients(
      const std::vector<IValue>& operands) const {
    std::vector<bool> defined;
    for (const auto gradient : gradients_)
      defined.push_back(!operands[gradient].isNone());
    if (std::find(defined.begin(), defined.end(), false) == defined.end())
      return nullptr;
    return known_->undefined(defined, *program_, gradients_);
  }

  bool is_undefined_gradient(const std::vector<IValue>& operands, size_t i) const {
    return operands[i].isNone() &&
           std::find(gradients_.begin(), gradients_.end(), i) != gradients_.end();
  }

  // Returns into how many slices so many rows are divided. A slice of one row does not show where
  // the rows of a gradient lie in memory, so slices have two, unless the stretch was divided for
  // very few.
  int64_t number_of_slices(int64_t rows) const {
    return std::min(slices_, slices_ <= kFew ? rows : rows / 2);
  }

  // Returns the number of rows where there are several and all sliced operands have as many.
  std::optional<int64_t> number_of_rows(const std::vector<IValue>& operands) const {
    std::optional<int64_t> rows;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operand_rows_[i] < 0 || is_undefined_gradient(operands, i))
        continue;
      if (!operands[i].isTensor() || !operands[i].toTensor().defined() ||
          operands[i].toTensor().dim() <= operand_rows_[i])
        return std::nullopt;
      const auto size = operands[i].toTensor().size(operand_rows_[i]);
      if (rows && *rows != size)
        return std::nullopt;
      rows = size;
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operand_rows_[i] == kRowCount && (!rows || operands[i].toInt() != *rows))
        return std::nullopt;
    }
    for (size_t i = 0; i + 1 < broadcasts_.size(); i += 2) {
      const auto& operand = operands[static_cast<size_t>(broadcasts_[i])];
      const auto dimension = broadcasts_[i + 1];
      if (!operand.isTensor() || !operand.toTensor().defined() ||
          operand.toTensor().dim() <= dimension || operand.toTensor().size(dimension) != 1)
        return std::nullopt;
    }
    return rows && number_of_slices(*rows) > 1 ? rows : std::nullopt;
  }

  std::vector<IValue> run(std::vector<IValue> operands, const UndefinedGradients* undefined) const {
    auto registers = program_->start(std::move(operands));
    program_->run(registers, 0, program_->instructions().size(),
                  undefined != nullptr ? &undefined->skip : nullptr);
    std::vector<IValue> results(result_rows_.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (undefined == nullptr || !undefined->undefined[i])
        results[i] = program_->take_output(registers, i);
    }
    return results;
  }

  std::vector<IValue> run_as_a_whole_in_order(const std::vector<IValue>& operands,
                                              const UndefinedGradients* undefined) const {
    try {
      return run_as_a_whole(operands, undefined);
    } catch (const std::exception& error) {
      if (may_fail_early_ && !is_out_of_memory(error))
        note_all_paths_left("an operator that runs slice by slice failed before a check");
      throw;
    }
  }

  std::vector<IValue> run_as_a_whole(const std::vector<IValue>& operands,
                                     const UndefinedGradients* undefined) const {
    auto results = run(operands, undefined);
    for (auto& result : results) {
      if (result.isTensor() && result.toTensor().defined())
        result = in_own_memory(std::move(result).toTensor());
    }
    return results;
  }

  // Returns how the results would lie in memory if the stretch ran as a whole.
  StridesOfResults strides_of_whole(const std::vector<IValue>& operands,
                                    const UndefinedGradients* undefined) const {
    if (!shows_layouts_)
      return StridesOfResults(result_rows_.size());
    auto description = describe(operands);
    if (description) {
      if (auto known = known_->find(*description))
        return *std::move(known);
    }
    auto strides = strides_on_meta(operands, undefined);
    if (description)
      known_->set(*std::move(description), strides);
    return strides;
  }

  StridesOfResults strides_on_meta(const std::vector<IValue>& operands,
                                   const UndefinedGradients* undefined) const {
    const PauseMetaMemory pause;  // an estimate counts what slices need
    StridesOfResults strides(result_rows_.size());
    std::vector<IValue> on_meta;
    for (const auto& operand : operands) {
      const bool is_tensor = operand.isTensor() && operand.toTensor().defined();
      on_meta.push_back(
          is_tensor ? at::empty_strided(operand.toTensor().sizes(), operand.toTensor().strides(),
                                        operand.toTensor().options().device(at::kMeta))
                    : operand);
    }
    try {
      const auto results = run(std::move(on_meta), undefined);
      for (size_t i = 0; i < results.size(); ++i) {
        if (results[i].isTensor() && results[i].toTensor().is_non_overlapping_and_dense())
          strides[i] = results[i].toTensor().strides().vec();
      }
    } catch (const std::exception&) {
      return StridesOfResults(result_rows_.size());
    }
    return strides;
  }

  // Returns nothing where a slice does not have the results that it should have.
  std::optional<std::vector<IValue>> run_in_slices(const std::vector<IValue>& operands,
                                                   int64_t rows,
                                                   const UndefinedGradients* undefined) const {
    const auto slices = number_of_slices(rows);
    std::vector<IValue> results(result_rows_.size());
    std::vector<at::ScalarType> types(result_rows_.size());
    const auto strides = strides_of_whole(operands, undefined);
    // The first slices are the longer ones.
    const auto begin_of = [&](int64_t number) { return (number * rows + slices - 1) / slices; };
    // Without elements, three slices show what all of them need: the first and longest, one that
    // finds the results in memory, and the last, which may be shorter.
    const bool has_elements = !is_on_meta(operands);
    for (int64_t number = 0; number < slices; ++number) {
      if (!has_elements && number > 1 && number + 1 < slices)
        continue;
      const auto begin = begin_of(number);
      const auto size = begin_of(number + 1) - begin;
      auto slice = operands;
      for (size_t i = 0; i < operands.size(); ++i) {
        if (operand_rows_[i] >= 0 && !is_undefined_gradient(operands, i))
          slice[i] = operands[i].toTensor().narrow(operand_rows_[i], begin, size);
        else if (operand_rows_[i] == kRowCount)
          slice[i] = size;
      }
      std::vector<IValue> parts;
      try {
        parts = run(std::move(slice), undefined);
      } catch (const std::exception& error) {
        // Sizes that a program has written down need not fit a slice; the whole will tell.
        if (is_out_of_memory(error))
          throw;
        return std::nullopt;
      }
      for (size_t i = 0; i < parts.size(); ++i) {
        const bool is_left_out = undefined != nullptr && undefined->undefined[i];
        if (parts[i].isTensor() && parts[i].toTensor().defined())
          types[i] = parts[i].toTensor().scalar_type();
        if (!is_left_out && !add_part(results[i], std::move(parts[i]), result_rows_[i],
                                      {begin, size, rows, strides[i]}))
          return std::nullopt;
      }
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (result_rows_[i] == kSummed && results[i].isTensor())
        results[i] = std::move(results[i]).toTensor().to(types[i]);
    }
    return results;
  }

  bool is_on_meta(const std::vector<IValue>& operands) const {
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operand_rows_[i] >= 0 && operands[i].isTensor())
        return operands[i].toTensor().is_meta();
    }
    return false;
  }

  // Adds to a sum, which is in single precision where the parts have less: as a whole, kernels add
  // up in single precision and round once.
  static void add_to_sum(IValue& sum, at::Tensor part) {
    if (!sum.isNone())
      sum.toTensor().add_(part);
    else if (at::isReducedFloatingType(part.scalar_type()))
      sum = part.to(at::kFloat);
    else
      sum = in_own_memory(std::move(part));
  }

  struct Place {
    int64_t begin = 0;  // first row
    int64_t size = 0;
    int64_t rows = 0;                       // of all slices
    const std::optional<Strides>& strides;  // of the whole
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
      add_to_sum(result, std::move(tensor));
      return true;
    }
    if (tensor.dim() <= dimension || tensor.size(dimension) != place.size)
      return false;
    if (result.isNone())
      result = whole_for(tensor, dimension, place.rows, place.strides);
    result.toTensor().narrow(dimension, place.begin, place.size).copy_(tensor);
    return true;
  }

  std::shared_ptr<const Program> program_;
  int64_t slices_;
  std::vector<int64_t> operand_rows_;
  std::vector<int64_t> result_rows_;
  std::vector<int64_t> broadcasts_;
  std::vector<size_t> gradients_;  // operands that are gradients
  bool shows_layouts_;
  std::shared_ptr<KnownResults> known_ = std::make_shared<KnownResults>();
  bool may_fail_early_;
};

}  // namespace

void register_sliced_operator() {
  static const torch::jit::RegisterOperators registered(
      {torch::jit::Operator(
           symbols::kSliced, [](const Node* node) -> torch::jit::Operation { return Sliced(node); },
           c10::AliasAnalysisKind::PURE_FUNCTION),
       torch::jit::Operator(
           "aten_recompute::broadcast_size(int first, int second) -> int",
           [](Stack& stack) {
             const auto second = torch::jit::pop(stack).toInt();
             const auto first = torch::jit::pop(stack).toInt();
             stack.emplace_back(first == 1 ? second : first);
           },
           c10::AliasAnalysisKind::FROM_SCHEMA)});
}

}  // namespace aten_recompute
