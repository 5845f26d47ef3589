// A contraction of tensors, as einsum and tensordot are composed of, with its gradients.
#pragma once

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "rules/kernels/matrix.h"
#include "rules/kernels/short_rows.h"
#include "rules/kernels/short_sums.h"
#include "rules/kernels/small_products.h"
#include "rules/kernels/stand_in.h"
#include "rules/kernels/views.h"

namespace aten_recompute {

// A computation in which each value is read once, with the gradient of each operation.
class Contraction {
 public:
  using Dims = std::vector<int64_t>;
  // The index of a value.
  using Value = size_t;

  // Returns the permutation that undoes a permutation.
  static Dims inverse_of(const Dims& permutation) {
    Dims inverse(permutation.size());
    for (size_t i = 0; i < permutation.size(); ++i)
      inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
    return inverse;
  }

  // `num_products`: how many products there will be. `computes_last` says whether the last one is
  // computed, too; gradients do not read it.
  explicit Contraction(size_t num_products, bool computes_last = false)
      : products_left_(num_products), computes_last_(computes_last) {}

  Value add_operand(const at::Tensor& tensor, bool needs_gradient) {
    return add(tensor, needs_gradient);
  }

  int64_t size(Value value, int64_t dim) const { return values_[value].size(dim); }
  const at::Tensor& tensor(Value value) const { return values_[value]; }

  Value permute(Value from, const Dims& dims) {
    return step(from, aten_recompute::permute(values_[from], dims),
                [inverse = inverse_of(dims)](const at::Tensor& g) {
                  return aten_recompute::permute(g, inverse);
                });
  }

  Value unsqueeze(Value from, int64_t dim) {
    return step(from, aten_recompute::unsqueeze(values_[from], dim),
                [dim](const at::Tensor& g) { return g.squeeze(dim); });
  }

  // Takes the diagonal of two dimensions, which takes the place of the first one.
  Value diagonal(Value from, int64_t first, int64_t second) {
    const auto& tensor = values_[from];
    return step(from, tensor.diagonal(0, first, second).movedim(-1, first),
                [=, sizes = tensor.sizes().vec()](const at::Tensor& g) {
                  return at::diagonal_backward(g.movedim(first, -1), sizes, 0, first, second);
                });
  }

  // Keeps the dimensions that it sums over.
  Value sum(Value from, const Dims& dims) {
    return step(from, values_[from].sum(dims, /*keepdim=*/true), expand_to(from));
  }

  // Sums over the last dimensions, from `first` on, and drops them.
  Value sum_last(Value from, int64_t first) {
    const auto rank = values_[from].dim();
    Dims dims(static_cast<size_t>(rank - first));
    std::iota(dims.begin(), dims.end(), first);
    return step(from, values_[from].sum(dims), [expand = expand_to(from), dims](at::Tensor g) {
      for (const auto dim : dims)
        g = g.unsqueeze(dim);
      return expand(g);
    });
  }

  Value reshape(Value from, const Dims& sizes) {
    return step(from, aten_recompute::reshape(values_[from], sizes),
                [from_sizes = values_[from].sizes().vec()](const at::Tensor& g) {
                  return aten_recompute::reshape(g, from_sizes);
                });
  }

  Value mul(Value left, Value right) {
    const auto sizes = at::infer_size(values_[left].sizes(), values_[right].sizes());
    const ProductGradient gradient = [](const at::Tensor& g, const at::Tensor& other,
                                        const Layout& operand) {
      if (!g.is_complex() && !other.is_complex() && g.sizes() != operand.sizes)
        return sum_product_to(g, other, operand.sizes).to(operand.type);
      return gradient_for(aten_recompute::mul(g, other.conj()), operand);
    };
    return product(
        left, right, sizes,
        [](const at::Tensor& a, const at::Tensor& b) { return aten_recompute::mul(a, b); },
        gradient, gradient);
  }

  Value bmm(Value left, Value right) {
    return product(
        left, right, {size(left, 0), size(left, 1), size(right, 2)},
        [](const at::Tensor& a, const at::Tensor& b) { return aten_recompute::bmm(a, b); },
        [](const at::Tensor& g, const at::Tensor& b, const Layout&) {
          return aten_recompute::bmm(g, b.transpose(1, 2).conj());
        },
        [](const at::Tensor& g, const at::Tensor& a, const Layout&) {
          return aten_recompute::bmm(a.transpose(1, 2).conj(), g);
        });
  }

  Value dot(Value left, Value right) {
    const ProductGradient gradient = [](const at::Tensor& g, const at::Tensor& other,
                                        const Layout&) { return g * other.conj(); };
    return product(
        left, right, {}, [](const at::Tensor& a, const at::Tensor& b) { return at::dot(a, b); },
        gradient, gradient);
  }

  Value mm(Value left, Value right) {
    return product(
        left, right, {size(left, 0), size(right, 1)},
        [](const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b); },
        [](const at::Tensor& g, const at::Tensor& b, const Layout& a) {
          return mm_grad_self(g, b, a.sizes, a.strides, 1);
        },
        [](const at::Tensor& g, const at::Tensor& a, const Layout& b) {
          return mm_grad_mat2(g, a, b.sizes, b.strides, 1);
        });
  }

  // Returns the gradients of the operands, which were added first, given that of the last value. An
  // operand that needs none gets zeros without memory. Each copy of an operand is released with the
  // last gradient that reads it.
  std::vector<at::Tensor> gradients(const at::Tensor& of_result, size_t num_operands) && {
    std::vector<at::Tensor> gradients(values_.size());
    gradients.back() = of_result;
    values_.resize(num_operands);
    for (; !steps_.empty(); steps_.pop_back()) {
      const auto& step = steps_.back();
      if (needed_[step.from])
        gradients[step.from] = step.gradient(gradients[step.to]);
      if (step.is_last_of_result)
        gradients[step.to].reset();
    }
    gradients.resize(num_operands);
    for (size_t i = 0; i < num_operands; ++i) {
      if (!gradients[i].defined())
        gradients[i] = zeros_without_memory(values_[i]);
    }
    return gradients;
  }

 private:
  using Gradient = std::function<at::Tensor(const at::Tensor&)>;

  // What the gradient of an operand reads of it.
  struct Layout {
    Dims sizes, strides;
    at::ScalarType type;
  };

  // The engine sums a gradient over broadcast dimensions and gives it the type of the operand.
  static at::Tensor gradient_for(at::Tensor gradient, const Layout& operand) {
    if (gradient.is_complex() && !at::isComplexType(operand.type))
      gradient = at::real(gradient);
    if (gradient.sizes() != operand.sizes)
      gradient = aten_recompute::sum_to(std::move(gradient), operand.sizes);
    return gradient.to(operand.type);
  }

  using Product = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
  // The gradient of one operand, given that of the product and the other operand.
  using ProductGradient = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const Layout&);

  // Steps back are taken from the last one to the first one.
  struct Step {
    Value from, to;
    Gradient gradient;
    bool is_last_of_result = true;  // no step after this one reads the gradient of `to`
  };

  Value add(at::Tensor tensor, bool needed) {
    values_.push_back(std::move(tensor));
    needed_.push_back(needed);
    return values_.size() - 1;
  }

  Value step(Value from, at::Tensor result, Gradient gradient) {
    const auto to = add(std::move(result), needed_[from]);
    if (needed_[from])
      steps_.push_back({from, to, std::move(gradient)});
    return to;
  }

  Gradient expand_to(Value value) const {
    return [sizes = values_[value].sizes().vec()](const at::Tensor& g) {
      return aten_recompute::expand(g, sizes);
    };
  }

  Value product(Value left, Value right, const Dims& sizes, Product compute,
                ProductGradient of_left, ProductGradient of_right) {
    const auto a = values_[left];
    const auto b = values_[right];
    const bool is_computed = --products_left_ > 0 || computes_last_;
    const bool is_needed = needed_[left] || needed_[right];
    const auto to = add(is_computed ? compute(a, b) : without_elements(sizes, a), is_needed);
    if (!is_needed)
      return to;
    Step of_a{left, to,
              [=, like = layout_of(a)](const at::Tensor& g) { return of_left(g, b, like); }};
    Step of_b{right, to,
              [=, like = layout_of(b)](const at::Tensor& g) { return of_right(g, a, like); }};
    // The smaller gradient is computed first, so that what only it reads is gone by the time when
    // the larger one is there.
    auto& first = a.numel() < b.numel() ? of_a : of_b;
    auto& second = a.numel() < b.numel() ? of_b : of_a;
    first.is_last_of_result = false;
    steps_.push_back(std::move(second));
    steps_.push_back(std::move(first));
    return to;
  }

  static Layout layout_of(const at::Tensor& tensor) {
    return {tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
  }

  static at::Tensor without_elements(const Dims& sizes, const at::Tensor& like) {
    Dims strides(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;)
      strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
    return stand_in(sizes, strides, like.scalar_type(), like.device());
  }

  size_t products_left_;
  bool computes_last_;
  std::vector<at::Tensor> values_;
  std::vector<bool> needed_;
  std::vector<Step> steps_;
};

}  // namespace aten_recompute
