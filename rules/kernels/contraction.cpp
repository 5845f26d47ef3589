// Gradients of einsum and tensordot, and einsum itself. ATen composes both of rearrangements, sums
// and products. Which ones depends on sizes, so the composition is made again when the backward
// runs, without its last product, of which only the sizes matter.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/contraction.h"
#include "rules/kernels/matrix.h"
#include "rules/kernels/operators.h"
#include "rules/kernels/plain_operands.h"
#include "rules/kernels/stand_in.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using Dims = Contraction::Dims;
using Ints = std::vector<int64_t>;
using Labels = c10::SmallVector<size_t, 8>;
using Value = Contraction::Value;

// ---- einsum (Linear.cpp) ----

// Letters are numbered in the order A to Z, a to z, in which labels are put that the output does
// not have.
constexpr size_t kNumLabels = 53;
constexpr size_t kEllipsis = 52;

Labels labels_of(std::string_view text) {
  Labels labels;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '.') {
      labels.push_back(kEllipsis);
      i += 2;
    } else if (std::isupper(c) != 0) {
      labels.push_back(c - 'A');
    } else if (std::islower(c) != 0) {
      labels.push_back(c - 'a' + 26U);
    }
  }
  return labels;
}

// A parsed equation of einsum. It is valid, because the forward has checked it.
struct Equation {
  c10::SmallVector<Labels, 2> operands;
  std::optional<Labels> output;

  explicit Equation(std::string_view text) {
    const auto arrow = text.find("->");
    if (arrow != std::string_view::npos)
      output = labels_of(text.substr(arrow + 2));
    auto rest = text.substr(0, arrow);
    for (auto comma = rest.find(','); comma != std::string_view::npos; comma = rest.find(',')) {
      operands.push_back(labels_of(rest.substr(0, comma)));
      rest.remove_prefix(comma + 1);
    }
    operands.push_back(labels_of(rest));
  }
};

// The dimension of each label when all operands are aligned: labels of the output come first, then
// those that are summed over.
struct Alignment {
  std::array<int64_t, kNumLabels> position{};  // that of the ellipsis: its first dimension
  int64_t ellipsis_rank = 0;
  int64_t num_output = 0;
  int64_t rank = 0;

  Alignment(const Equation& equation, const std::vector<Tensor>& operands) {
    position.fill(-1);
    std::array<int64_t, kNumLabels> count{};
    for (size_t i = 0; i < operands.size(); ++i) {
      for (const auto label : equation.operands[i]) {
        ++count[label];
        if (label == kEllipsis)
          ellipsis_rank = std::max(ellipsis_rank, covered_by_ellipsis(equation, operands, i));
      }
    }
    if (equation.output) {
      for (const auto label : *equation.output)
        place(label);
    } else {
      place(kEllipsis);
      for (size_t label = 0; label < kEllipsis; ++label) {
        if (count[label] == 1)
          place(label);
      }
    }
    num_output = rank;
    if (position[kEllipsis] < 0)
      place(kEllipsis);
    for (size_t label = 0; label < kEllipsis; ++label) {
      if (count[label] > 0 && position[label] < 0)
        place(label);
    }
  }

  static int64_t covered_by_ellipsis(const Equation& equation, const std::vector<Tensor>& operands,
                                     size_t operand) {
    return operands[operand].dim() - std::ssize(equation.operands[operand]) + 1;
  }

 private:
  void place(size_t label) {
    position[label] = rank;
    rank += label == kEllipsis ? ellipsis_rank : 1;
  }
};

class Einsum {
 public:
  // Each operand that `needs_gradient` gets one from backward().
  Einsum(const std::string& equation, const std::vector<Tensor>& operands,
         const std::vector<bool>& needs_gradient, bool computes_result = false)
      : equation_(equation),
        operands_(operands),
        at_(equation_, operands),
        used_(static_cast<size_t>(at_.rank), 0),
        work_(operands.size() - 1, computes_result) {
    for (size_t i = 0; i < operands.size(); ++i)
      work_.add_operand(operands[i], needs_gradient.empty() || needs_gradient[i]);
  }

  std::vector<Tensor> backward(const Tensor& grad, const std::optional<Ints>& path) {
    compose(path);
    return std::move(work_).gradients(grad, operands_.size());
  }

  Tensor result(const std::optional<Ints>& path) { return work_.tensor(compose(path)); }

 private:
  Value compose(const std::optional<Ints>& path) {
    c10::SmallVector<Value, 4> values;
    for (size_t i = 0; i < operands_.size(); ++i)
      values.push_back(aligned(i));
    for (size_t step = 0; values.size() > 1; ++step) {
      size_t first = 0;
      size_t second = 1;
      if (path) {
        first = static_cast<size_t>(std::min((*path)[2 * step], (*path)[2 * step + 1]));
        second = static_cast<size_t>(std::max((*path)[2 * step], (*path)[2 * step + 1]));
      }
      const auto left = values[first];
      const auto right = values[second];
      values.erase(values.begin() + static_cast<std::ptrdiff_t>(second));
      values.erase(values.begin() + static_cast<std::ptrdiff_t>(first));
      const auto product = contract(left, right);
      if (path)
        values.push_back(product);
      else
        values.insert(values.begin(), product);
    }
    return without_summed(values[0]);
  }

  // Brings an operand into the common order of dimensions, with size 1 where it lacks one. Counts
  // in `used_` how many operands have more than one element in each dimension.
  Value aligned(size_t operand) {
    Value value = operand;
    Dims order(used_.size(), -1);
    int64_t dim = 0;
    const auto take = [&](int64_t position) {
      const auto index = static_cast<size_t>(position);
      if (work_.size(value, dim) != 1)
        ++used_[index];
      order[index] = dim++;
    };
    for (const auto label : equation_.operands[operand]) {
      const auto position = at_.position[label];
      if (label == kEllipsis) {
        const auto covered = Alignment::covered_by_ellipsis(equation_, operands_, operand);
        for (auto i = at_.ellipsis_rank - covered; i < at_.ellipsis_rank; ++i)
          take(position + i);
      } else if (const auto earlier = order[static_cast<size_t>(position)]; earlier >= 0) {
        value = work_.diagonal(value, earlier, dim);
      } else {
        take(position);
      }
    }
    return work_.arrange(value, order);
  }

  bool extends(Value value, int64_t dim) const { return work_.size(value, dim) != 1; }

  // Multiplies two operands, and sums over those dimensions that no other operand has.
  Value contract(Value left, Value right) {
    Dims both;
    Dims only_left;
    Dims only_right;
    for (auto dim = at_.num_output; dim < at_.rank; ++dim) {
      auto& used = used_[static_cast<size_t>(dim)];
      const bool in_left = extends(left, dim);
      const bool in_right = extends(right, dim);
      if (in_left && in_right)
        --used;
      if (used != 1 || (!in_left && !in_right))
        continue;
      used = 0;
      (in_left && in_right ? both : in_left ? only_left : only_right).push_back(dim);
    }
    if (!only_left.empty())
      left = work_.sum(left, only_left);
    if (!only_right.empty())
      right = work_.sum(right, only_right);
    return both.empty() ? work_.mul(left, right) : summed_product(left, right, both);
  }

  // Multiplies two operands that have the dimensions `summed`, and sums over these: a batched
  // matrix product.
  Value summed_product(Value left, Value right, const Dims& summed) {
    Dims batch;
    Dims of_left;
    Dims of_right;
    for (int64_t dim = 0; dim < at_.rank; ++dim) {
      if (std::find(summed.begin(), summed.end(), dim) != summed.end())
        continue;
      const bool in_left = extends(left, dim);
      (in_left && extends(right, dim) ? batch : in_left ? of_left : of_right).push_back(dim);
    }
    if (exchanges_operands() && !of_left.empty() && !of_right.empty() &&
        of_right.back() < of_left.front()) {
      std::swap(left, right);
      std::swap(of_left, of_right);
    }
    const auto joined = [](std::initializer_list<Dims> lists) {
      Dims all;
      for (const auto& list : lists)
        all.append(list.begin(), list.end());
      return all;
    };
    const auto numel = [this](Value value, const Dims& dims) {
      return std::accumulate(dims.begin(), dims.end(), int64_t{1}, [&](int64_t count, int64_t dim) {
        return count * work_.size(value, dim);
      });
    };
    const auto num_batch = numel(left, batch);
    const auto num_left = numel(left, of_left);
    const auto num_right = numel(right, of_right);
    const auto num_summed = numel(left, summed);
    Dims sizes;
    for (const auto dim : joined({batch, of_left}))
      sizes.push_back(work_.size(left, dim));
    sizes.append(summed.size(), 1);
    for (const auto dim : of_right)
      sizes.push_back(work_.size(right, dim));
    left = work_.permute(left, joined({batch, of_left, summed, of_right}));
    left = work_.reshape(left, {num_batch, num_left, num_summed});
    right = work_.permute(right, joined({batch, summed, of_right, of_left}));
    right = work_.reshape(right, {num_batch, num_summed, num_right});
    const auto product = work_.reshape(work_.bmm(left, right), sizes);
    return work_.permute(product,
                         Contraction::inverse_of(joined({batch, of_left, summed, of_right})));
  }

  // The dimensions that are summed over come last. After products they all have size 1.
  Value without_summed(Value value) {
    if (at_.rank == at_.num_output)
      return value;
    if (operands_.size() == 1)
      return work_.sum_last(value, at_.num_output);
    const Dims sizes(work_.sizes(value).slice(0, static_cast<size_t>(at_.num_output)));
    return work_.reshape(value, sizes);
  }

  // Newer versions of ATen exchange the operands of a product if its result then has the order of
  // the output in memory.
  static bool exchanges_operands() {
    static const bool result =
        at::einsum("ij,jk->ki", {at::ones({2, 2}), at::ones({2, 2})}).is_contiguous();
    return result;
  }

  Equation equation_;
  const std::vector<Tensor>& operands_;
  Alignment at_;
  std::vector<int64_t> used_;
  Contraction work_;
};

// Returns whether two operands fit an equation that consists of letters, a comma and perhaps an
// arrow, with no letter twice in one place.
bool fits_plain_pair(std::string_view text, const std::vector<Tensor>& operands) {
  std::array<int64_t, kNumLabels> sizes{};  // 0: no operand has the label
  const auto arrow = text.find("->");
  const auto inputs = text.substr(0, arrow);
  const auto comma = inputs.find(',');
  if (comma == std::string_view::npos)
    return false;
  const std::array<std::string_view, 2> of_operand{inputs.substr(0, comma),
                                                   inputs.substr(comma + 1)};
  const auto are_distinct_letters = [](std::string_view labels) {
    uint64_t seen = 0;
    for (const auto label : labels_of(labels))
      seen |= uint64_t{1} << label;
    return std::popcount(seen) == static_cast<int>(labels.size());
  };
  for (size_t i = 0; i < 2; ++i) {
    const auto labels = labels_of(of_operand[i]);
    if (!are_distinct_letters(of_operand[i]) || std::ssize(labels) != operands[i].dim())
      return false;
    for (size_t dim = 0; dim < labels.size(); ++dim) {
      auto& size = sizes[labels[dim]];
      const auto of_dim = operands[i].size(static_cast<int64_t>(dim));
      if (of_dim == 0 || (size > 1 && of_dim != 1 && of_dim != size))
        return false;
      size = std::max(size, of_dim);
    }
  }
  if (arrow == std::string_view::npos)
    return true;
  const auto output = text.substr(arrow + 2);
  const auto labels = labels_of(output);
  return are_distinct_letters(output) &&
         std::all_of(labels.begin(), labels.end(), [&](size_t label) { return sizes[label] > 0; });
}

// at::einsum. A product of two operands that autograd does not record is composed here, because
// this project multiplies small matrices faster. Throws what at::einsum throws.
Tensor einsum(std::string equation, std::vector<Tensor> operands, std::optional<Ints> path) {
  const auto is_plain = [&](const Tensor& operand) {
    return is_plain_operand(operand) && operand.scalar_type() == operands[0].scalar_type();
  };
  if (operands.size() != 2 || path || !is_plain(operands[0]) || !is_plain(operands[1]) ||
      !fits_plain_pair(equation, operands))
    return at::einsum(equation, operands, path ? at::OptionalIntArrayRef(*path) : std::nullopt);
  return Einsum(equation, operands, {false, false}, /*computes_result=*/true).result(path);
}

std::vector<Tensor> einsum_backward(Tensor grad, std::string equation, std::vector<Tensor> operands,
                                    std::optional<Ints> path, std::vector<bool> needs_gradient) {
  return Einsum(equation, operands, needs_gradient).backward(grad, path);
}

// The same for two operands.
std::tuple<Tensor, Tensor> einsum_pair_backward(Tensor grad, std::string equation, Tensor first,
                                                Tensor second, bool has_first, bool has_second) {
  const auto gradients =
      einsum_backward(std::move(grad), std::move(equation), {std::move(first), std::move(second)},
                      std::nullopt, {has_first, has_second});
  return {gradients[0], gradients[1]};
}

// Returns the gradients of einsum_backward()'s gradient and operands. Its result k is linear in all
// operands but k: the product with `grads[k]` is that of `gradient` with an einsum that has
// `grads[k]` in place of operand k.
std::tuple<Tensor, std::vector<Tensor>> einsum_double_backward(
    std::vector<std::optional<Tensor>> grads, Tensor gradient, std::string equation,
    std::vector<Tensor> operands, std::optional<Ints> path, std::vector<bool> has_result,
    std::vector<bool> needs_gradient) {
  Tensor of_gradient;
  std::vector<Tensor> of_operands(operands.size());
  const auto add = [](Tensor& sum, const Tensor& term) { sum = sum.defined() ? sum + term : term; };
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!has_result[k] || !grads[k].has_value() || !grads[k]->defined())
      continue;
    auto replaced = operands;
    replaced[k] = *grads[k];
    add(of_gradient, einsum(equation, replaced, path));
    auto needs = needs_gradient;
    needs[k] = false;
    if (std::find(needs.begin(), needs.end(), true) == needs.end())
      continue;
    const auto terms = einsum_backward(gradient, equation, replaced, path, needs);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (needs[i])
        add(of_operands[i], terms[i]);
    }
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!of_operands[i].defined())
      of_operands[i] = at::zeros_like(operands[i]);
  }
  return {of_gradient.defined() ? of_gradient : at::zeros_like(gradient), of_operands};
}

// ---- tensordot (Linear.cpp) ----

// Returns the value whose elements are the products, summed, of two values of the same elements, as
// newer versions of ATen compute it. (Only with complex numbers is this not the same as mm.)
Value full_contraction(Contraction& work, Value left, Value right) {
  if (work.tensor(left).is_contiguous() && work.tensor(right).is_contiguous()) {
    const auto numel = work.tensor(left).numel();
    return work.dot(work.reshape(left, {numel}), work.reshape(right, {numel}));
  }
  left = work.reshape(left, Dims(work.tensor(left).squeeze().sizes()));
  right = work.reshape(right, Dims(work.tensor(right).squeeze().sizes()));
  return work.sum_last(work.mul(left, right), 0);
}

// Composes what at::tensordot() does of the two operands of `work`.
Value compose_tensordot(Contraction& work, Value left, Value right, Ints dims_self,
                        Ints dims_other) {
  const auto self = work.tensor(left);
  const auto other = work.tensor(right);
  int64_t num_summed = 1;
  for (size_t i = 0; i < dims_self.size(); ++i) {
    dims_self[i] = at::maybe_wrap_dim(dims_self[i], self.dim());
    dims_other[i] = at::maybe_wrap_dim(dims_other[i], other.dim());
    if (other.size(dims_other[i]) == 1)
      left = work.sum(left, {dims_self[i]});
    else if (self.size(dims_self[i]) == 1)
      right = work.sum(right, {dims_other[i]});
    else
      num_summed *= self.size(dims_self[i]);
  }
  const auto others = [](const Tensor& tensor, const Ints& dims) {
    Dims rest;
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
      if (std::find(dims.begin(), dims.end(), dim) == dims.end())
        rest.push_back(dim);
    }
    return rest;
  };
  auto order_self = others(self, dims_self);
  const auto rest_other = others(other, dims_other);
  Dims sizes;
  int64_t num_left = 1;
  int64_t num_right = 1;
  for (const auto dim : order_self) {
    sizes.push_back(self.size(dim));
    num_left *= self.size(dim);
  }
  for (const auto dim : rest_other) {
    sizes.push_back(other.size(dim));
    num_right *= other.size(dim);
  }
  order_self.append(dims_self.begin(), dims_self.end());
  Dims order_other(dims_other.begin(), dims_other.end());
  order_other.append(rest_other.begin(), rest_other.end());
  left = work.permute(left, order_self);
  right = work.permute(right, order_other);
  if (num_left == 1 && num_right == 1)
    return work.reshape(full_contraction(work, left, right), sizes);
  left = work.reshape(left, {num_left, num_summed});
  right = work.reshape(right, {num_summed, num_right});
  return work.reshape(work.mm(left, right), sizes);
}

// Returns whether at::tensordot() makes one matrix product of these operands: distinct dimensions
// of the same sizes are summed over, and others are left.
bool is_matrix_product(const Tensor& self, const Tensor& other, const Ints& dims_self,
                       const Ints& dims_other) {
  if (dims_self.size() != dims_other.size() || self.dim() > 63 || other.dim() > 63)
    return false;
  uint64_t seen_self = 0;
  uint64_t seen_other = 0;
  int64_t num_summed = 1;
  const auto sees = [](const Tensor& tensor, int64_t dim, uint64_t& seen) {
    if (dim < -tensor.dim() || dim >= tensor.dim())
      return false;
    const auto bit = uint64_t{1} << static_cast<uint64_t>(at::maybe_wrap_dim(dim, tensor.dim()));
    const bool is_new = (seen & bit) == 0;
    seen |= bit;
    return is_new;
  };
  for (size_t i = 0; i < dims_self.size(); ++i) {
    if (!sees(self, dims_self[i], seen_self) || !sees(other, dims_other[i], seen_other) ||
        self.size(dims_self[i]) != other.size(dims_other[i]))
      return false;
    num_summed *= self.size(dims_self[i]);
  }
  return self.numel() > num_summed || other.numel() > num_summed;
}

// at::tensordot. Throws what that throws.
Tensor tensordot(Tensor self, Tensor other, Ints dims_self, Ints dims_other) {
  if (!is_plain_operand(self) || !is_plain_operand(other) ||
      self.scalar_type() != other.scalar_type() ||
      !is_matrix_product(self, other, dims_self, dims_other))
    return at::tensordot(self, other, dims_self, dims_other);
  Contraction work(1, /*computes_last=*/true);
  const auto left = work.add_operand(self, false);
  const auto right = work.add_operand(other, false);
  return work.tensor(
      compose_tensordot(work, left, right, std::move(dims_self), std::move(dims_other)));
}

std::tuple<Tensor, Tensor> tensordot_backward(Tensor grad, Tensor self, Tensor other,
                                              Ints dims_self, Ints dims_other, bool has_self,
                                              bool has_other) {
  Contraction work(1);
  const auto left = work.add_operand(self, has_self);
  const auto right = work.add_operand(other, has_other);
  compose_tensordot(work, left, right, std::move(dims_self), std::move(dims_other));
  auto gradients = std::move(work).gradients(grad, 2);
  return {gradients[0], gradients[1]};
}

}  // namespace

void register_contraction_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator(
          "aten_recompute::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor",
          &einsum),
      pure_operator(
          "aten_recompute::einsum_backward(Tensor gradient, str equation, Tensor[] tensors, "
          "int[]? path, bool[] has_result) -> Tensor[]",
          &einsum_backward),
      pure_operator("aten_recompute::einsum_pair_backward(Tensor gradient, str equation, Tensor "
                    "first, Tensor second, bool has_first, bool has_second) -> (Tensor, Tensor)",
                    &einsum_pair_backward),
      pure_operator("aten_recompute::einsum_double_backward(Tensor?[] grads, Tensor gradient, str "
                    "equation, Tensor[] tensors, int[]? path, bool[] has_result, bool[] "
                    "needs_gradient) -> (Tensor, Tensor[])",
                    &einsum_double_backward),
      pure_operator("aten_recompute::tensordot(Tensor self, Tensor other, int[] dims_self, int[] "
                    "dims_other) -> Tensor",
                    &tensordot),
      pure_operator("aten_recompute::tensordot_backward(Tensor gradient, Tensor self, Tensor "
                    "other, int[] dims_self, int[] dims_other, bool has_self, bool has_other) "
                    "-> (Tensor, Tensor)",
                    &tensordot_backward),
  });
}

}  // namespace aten_recompute
