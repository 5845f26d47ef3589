// A contraction of tensors, as einsum and tensordot are composed of, with its gradients.
#pragma once

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "rules/kernels/matrix.h"
#include "rules/kernels/short_rows.h"
#include "rules/kernels/short_sums.h"
#include "rules/kernels/small_products.h"
#include "rules/kernels/stand_in.h"
#include "rules/kernels/views.h"

namespace aten_recompute {

// A computation in which each value is read once, with the gradient of each operation. Operations
// that rearrange a value make no tensor.
class Contraction {
 public:
  using Dims = at::DimVector;
  // The index of a value.
  using Value = size_t;

  // Returns the permutation that undoes a permutation.
  static Dims inverse_of(at::IntArrayRef permutation) {
    Dims inverse(permutation.size());
    for (size_t i = 0; i < permutation.size(); ++i)
      inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
    return inverse;
  }

  // `num_products`: how many products there will be. `computes_last` says whether the last one is
  // computed, too; gradients do not read it.
  explicit Contraction(size_t num_products, bool computes_last = false)
      : products_left_(num_products), computes_last_(computes_last) {
    values_.reserve(2 + 8 * num_products);  // as many as most equations have
    steps_.reserve(values_.capacity());
  }

  Value add_operand(const at::Tensor& tensor, bool needs_gradient) {
    return add(LazyView(tensor), needs_gradient);
  }

  int64_t dim(Value value) const { return values_[value].view.dim(); }
  int64_t size(Value value, int64_t dim) const { return values_[value].view.size(dim); }
  at::IntArrayRef sizes(Value value) const { return values_[value].view.sizes(); }
  const at::Tensor& tensor(Value value) { return values_[value].view.tensor(); }

  Value permute(Value from, at::IntArrayRef dims) {
    auto view = values_[from].view;
    view.permute(dims);
    return step(from, std::move(view), Step::Kind::kPermute, inverse_of(dims));
  }

  // Dimension i of the result is dimension `order[i]`; where that is -1, it is a new one of size 1.
  Value arrange(Value from, at::IntArrayRef order) {
    auto view = values_[from].view;
    view.arrange(order);
    return step(from, std::move(view), Step::Kind::kArrange, Dims(order));
  }

  Value reshape(Value from, at::IntArrayRef sizes) {
    auto view = values_[from].view;
    view.reshape(sizes);
    return step(from, std::move(view), Step::Kind::kReshape, Dims(values_[from].view.sizes()));
  }

  // Takes the diagonal of two dimensions, which takes the place of the first one.
  Value diagonal(Value from, int64_t first, int64_t second) {
    const auto& tensor = this->tensor(from);
    return step(from, tensor.diagonal(0, first, second).movedim(-1, first),
                [=, sizes = tensor.sizes().vec()](const at::Tensor& g) {
                  return at::diagonal_backward(g.movedim(first, -1), sizes, 0, first, second);
                });
  }

  // Keeps the dimensions that it sums over.
  Value sum(Value from, at::IntArrayRef dims) {
    return step(from, tensor(from).sum(dims, /*keepdim=*/true), expand_to(from));
  }

  // Sums over the last dimensions, from `first` on, and drops them.
  Value sum_last(Value from, int64_t first) {
    std::vector<int64_t> dims(static_cast<size_t>(dim(from) - first));
    std::iota(dims.begin(), dims.end(), first);
    return step(from, tensor(from).sum(dims), [expand = expand_to(from), dims](at::Tensor g) {
      for (const auto dim : dims)
        g = g.unsqueeze(dim);
      return expand(g);
    });
  }

  Value mul(Value left, Value right) {
    const ProductGradient gradient = [](const at::Tensor& g, const at::Tensor& other,
                                        const Layout& operand) {
      if (!g.is_complex() && !other.is_complex() && g.sizes() != at::IntArrayRef(operand.sizes))
        return in_type(sum_product_to(g, other, operand.sizes), operand.type);
      return gradient_for(aten_recompute::mul(g, aten_recompute::conjugate(other)), operand);
    };
    return product(
        left, right, at::infer_size_dimvector(sizes(left), sizes(right)),
        [](const at::Tensor& a, const at::Tensor& b) { return aten_recompute::mul(a, b); },
        gradient, gradient);
  }

  Value bmm(Value left, Value right) {
    return product(
        left, right, {size(left, 0), size(left, 1), size(right, 2)},
        [](const at::Tensor& a, const at::Tensor& b) { return aten_recompute::bmm(a, b); },
        [](const at::Tensor& g, const at::Tensor& b, const Layout&) {
          return aten_recompute::bmm(g,
                                     aten_recompute::conjugate(aten_recompute::transpose(b, 1, 2)));
        },
        [](const at::Tensor& g, const at::Tensor& a, const Layout&) {
          return aten_recompute::bmm(aten_recompute::conjugate(aten_recompute::transpose(a, 1, 2)),
                                     g);
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
    std::vector<std::optional<LazyView>> gradients(values_.size());
    gradients.back().emplace(of_result);
    values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(num_operands), values_.end());
    for (; !steps_.empty(); steps_.pop_back()) {
      auto& step = steps_.back();
      if (step.is_last_of_result) {
        gradients[step.from] = step.back(*std::exchange(gradients[step.to], std::nullopt));
      } else {
        gradients[step.from] = step.back(*gradients[step.to]);
      }
    }
    std::vector<at::Tensor> tensors;
    tensors.reserve(num_operands);
    for (size_t i = 0; i < num_operands; ++i)
      tensors.push_back(gradients[i] ? gradients[i]->tensor() : zeros_without_memory(tensor(i)));
    return tensors;
  }

 private:
  using Gradient = std::function<at::Tensor(const at::Tensor&)>;

  // What the gradient of an operand reads of it.
  struct Layout {
    Dims sizes, strides;
    at::ScalarType type = at::kFloat;
  };

  using Product = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
  // The gradient of one operand, given that of the product and the other operand.
  using ProductGradient = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const Layout&);

  // What takes the gradient of a value to that of the value that it was made of.
  struct Step {
    enum class Kind : uint8_t { kPermute, kArrange, kReshape, kProduct, kOther };

    Kind kind;
    Value from, to;
    Dims dims{};       // kPermute: the inverse; kArrange: the order; kReshape: the sizes of `from`
    Layout operand{};  // kProduct: that of `from`
    at::Tensor other{};                    // kProduct: the other operand
    ProductGradient of_product = nullptr;  // kProduct
    Gradient gradient{};                   // kOther
    bool is_last_of_result = true;         // no step after this one reads the gradient of `to`

    LazyView back(LazyView g) const {
      switch (kind) {
        case Kind::kPermute:
          g.permute(dims);
          return g;
        case Kind::kArrange:
          g.undo_arrange(dims);
          return g;
        case Kind::kReshape:
          g.reshape(dims);
          return g;
        case Kind::kProduct:
          return LazyView(of_product(g.tensor(), other, operand));
        case Kind::kOther:
          break;
      }
      return LazyView(gradient(g.tensor()));
    }
  };

  struct Entry {
    LazyView view;
    bool is_needed;
  };

  static at::Tensor in_type(at::Tensor tensor, at::ScalarType type) {
    return tensor.scalar_type() == type ? std::move(tensor) : tensor.to(type);
  }

  // The engine sums a gradient over broadcast dimensions and gives it the type of the operand.
  static at::Tensor gradient_for(at::Tensor gradient, const Layout& operand) {
    if (gradient.is_complex() && !at::isComplexType(operand.type))
      gradient = at::real(gradient);
    if (gradient.sizes() != at::IntArrayRef(operand.sizes))
      gradient = aten_recompute::sum_to(std::move(gradient), operand.sizes);
    return in_type(std::move(gradient), operand.type);
  }

  Value add(LazyView view, bool is_needed) {
    values_.push_back({std::move(view), is_needed});
    return values_.size() - 1;
  }

  Value step(Value from, LazyView result, Step::Kind kind, Dims dims) {
    const auto to = add(std::move(result), values_[from].is_needed);
    if (values_[from].is_needed)
      steps_.push_back({.kind = kind, .from = from, .to = to, .dims = std::move(dims)});
    return to;
  }

  Value step(Value from, at::Tensor result, Gradient gradient) {
    const auto to = add(LazyView(std::move(result)), values_[from].is_needed);
    if (values_[from].is_needed) {
      steps_.push_back(
          {.kind = Step::Kind::kOther, .from = from, .to = to, .gradient = std::move(gradient)});
    }
    return to;
  }

  Gradient expand_to(Value value) const {
    return [sizes = sizes(value).vec()](const at::Tensor& g) {
      return aten_recompute::expand(g, sizes);
    };
  }

  Value product(Value left, Value right, const Dims& sizes, Product compute,
                ProductGradient of_left, ProductGradient of_right) {
    const auto a = tensor(left);
    const auto b = tensor(right);
    const bool needs_left = values_[left].is_needed;
    const bool needs_right = values_[right].is_needed;
    const bool is_computed = --products_left_ > 0 || computes_last_;
    const auto to =
        add(is_computed ? LazyView(compute(a, b)) : LazyView(sizes, a), needs_left || needs_right);
    const auto add_step = [&](bool is_of_left, bool is_last) {
      const auto& operand = is_of_left ? a : b;
      steps_.push_back(
          {.kind = Step::Kind::kProduct,
           .from = is_of_left ? left : right,
           .to = to,
           .operand = {Dims(operand.sizes()), Dims(operand.strides()), operand.scalar_type()},
           .other = is_of_left ? b : a,
           .of_product = is_of_left ? of_left : of_right,
           .is_last_of_result = is_last});
    };
    // The smaller gradient is computed first, so that what only it reads is gone by the time when
    // the larger one is there. Steps are taken from the last one to the first one.
    const bool is_left_first = a.numel() < b.numel();
    if (is_left_first ? needs_right : needs_left)
      add_step(!is_left_first, true);
    if (is_left_first ? needs_left : needs_right)
      add_step(is_left_first, !(needs_left && needs_right));
    return to;
  }

  size_t products_left_;
  bool computes_last_;
  std::vector<Entry> values_;
  std::vector<Step> steps_;  // taken from the last one to the first one
};

}  // namespace aten_recompute
