// The differences between LibTorch 2.11 and 2.15 that matter here: the pointer type of autograd
// nodes, which is another one from 2.13 on, and gradients at bounds.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <memory>
#include <utility>

namespace aten_recompute {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13)
template <class T>
using NodePtr = c10::intrusive_ptr<T>;

template <class T>
using WeakNodePtr = c10::weak_intrusive_ptr<T>;

template <class T, class... Args>
NodePtr<T> make_node(Args&&... args) {
  return c10::make_intrusive<T>(std::forward<Args>(args)...);
}
#else
template <class T>
using NodePtr = std::shared_ptr<T>;

template <class T>
using WeakNodePtr = std::weak_ptr<T>;

// Autograd nodes need the engine's deleter: without it, a long graph is freed recursively and
// overflows the stack.
template <class T, class... Args>
NodePtr<T> make_node(Args&&... args) {
  return NodePtr<T>(new T(std::forward<Args>(args)...), torch::autograd::deleteNode);
}
#endif

// From 2.14 on, clamp() to numbers passes no gradient on at a bound, and operators that choose one
// of two tensors give each of two equal elements half of it.
inline constexpr bool kSplitsGradientsAtBounds = TORCH_VERSION_MAJOR > 2 ||
                                                 (TORCH_VERSION_MAJOR == 2 &&
                                                  TORCH_VERSION_MINOR >= 14);

}  // namespace aten_recompute
