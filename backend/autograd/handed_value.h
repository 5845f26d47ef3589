// An input of a region that an earlier region of the same call made, and that is not kept for the
// backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

namespace aten_recompute {

// Finds the tensor where somebody else holds it, and has it made again where nobody does. From then
// on it is kept until the region has read it. Thread-safe.
class HandedValue {
 public:
  // `make` makes the tensor again, with its history. It may be called by any thread.
  HandedValue(const at::Tensor& tensor, std::function<at::Tensor()> make);

  // Throws c10::Error if the tensor was changed in place.
  void check() const;
  // Returns the tensor, with its history. Throws as check() does, and what making it again throws.
  at::Tensor get();
  // As get(), for the last time.
  at::Tensor take();
  // Notes that the tensor will not be read.
  void let_go();
  // Makes the tensor again if it may still be read. What that throws, get() throws.
  void make_now();

 private:
  // Needs mutex_ to be held. Throws as get() does.
  at::Tensor find();

  c10::weak_intrusive_ptr<c10::TensorImpl> tensor_;
  c10::VariableVersion counter_;
  uint32_t version_;
  std::function<at::Tensor()> make_;
  std::mutex mutex_;
  at::Tensor made_;  // undefined until the tensor is wanted
  bool is_taken_ = false;
  std::exception_ptr failure_;
};

}  // namespace aten_recompute
