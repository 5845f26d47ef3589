#include "backend/autograd/handed_value.h"

#include <c10/util/Exception.h>

#include <utility>

namespace aten_recompute {

HandedValue::HandedValue(const at::Tensor& tensor, std::function<at::Tensor()> make)
    : tensor_(tensor.getIntrusivePtr()),
      counter_(tensor.unsafeGetTensorImpl()->version_counter()),
      version_(counter_.current_version()),
      make_(std::move(make)) {}

void HandedValue::check() const {
  TORCH_CHECK(counter_.current_version() == version_,
              "one of the variables needed for gradient computation has been modified by an "
              "inplace operation: it is at version ",
              counter_.current_version(), "; expected version ", version_, " instead");
}

at::Tensor HandedValue::find() {
  if (made_.defined())
    return made_;
  if (failure_ != nullptr)
    std::rethrow_exception(failure_);
  check();
  auto alive = tensor_.lock();
  made_ = alive ? at::Tensor(std::move(alive)) : make_();
  return made_;
}

at::Tensor HandedValue::get() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return find();
}

at::Tensor HandedValue::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto tensor = find();
  made_.reset();
  is_taken_ = true;
  return tensor;
}

void HandedValue::let_go() {
  const std::lock_guard<std::mutex> lock(mutex_);
  made_.reset();
  is_taken_ = true;
}

void HandedValue::make_now() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_taken_)
    return;
  try {
    find();
  } catch (const std::exception&) {
    failure_ = std::current_exception();
  }
}

}  // namespace aten_recompute
