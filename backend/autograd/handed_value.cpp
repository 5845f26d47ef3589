#include "backend/autograd/handed_value.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "backend/autograd/region_call.h"
#include "backend/autograd/stage_node.h"

namespace aten_recompute {

HandedValue::HandedValue(const at::Tensor& tensor)
    : tensor_(tensor.getIntrusivePtr()),
      counter_(tensor.unsafeGetTensorImpl()->version_counter()),
      version_(counter_.current_version()),
      maker_(torch::autograd::impl::gradient_edge(tensor)) {}

std::shared_ptr<HandedValue> HandedValue::of(const at::Tensor& tensor) {
  auto* const maker = dynamic_cast<StageNode*>(tensor.grad_fn().get());
  if (maker == nullptr)
    return nullptr;
  std::shared_ptr<HandedValue> value(new HandedValue(tensor));
  maker->call().add_reader(value);
  return value;
}

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
  if (auto alive = tensor_.lock()) {
    made_ = at::Tensor(std::move(alive));
  } else {
    auto& maker = dynamic_cast<StageNode&>(*maker_.function);
    made_ = maker.call().replay_output(maker_.input_nr, maker_.function);
  }
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
