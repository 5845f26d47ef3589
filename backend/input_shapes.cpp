#include "backend/input_shapes.h"

namespace aten_recompute {

InputShapes::InputShapes(const std::vector<c10::IValue>& inputs, const std::vector<bool>& ignored) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i < ignored.size() && ignored[i])
      continue;
    if (!inputs[i].isTensor() || !inputs[i].toTensor().defined()) {
      numbers_.push_back(-1);
      continue;
    }
    const auto& tensor = inputs[i].toTensor();
    numbers_.push_back(tensor.dim());
    numbers_.push_back(static_cast<int64_t>(tensor.element_size()));
    numbers_.insert(numbers_.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
}

bool InputShapes::cover(const InputShapes& other) const {
  if (numbers_.size() != other.numbers_.size())
    return false;
  for (size_t i = 0; i < numbers_.size();) {
    const auto dimensions = numbers_[i];
    if (other.numbers_[i] != dimensions)
      return false;
    ++i;
    for (int64_t k = 0; k <= dimensions; ++k, ++i) {  // the element's width comes first
      if (other.numbers_[i] > numbers_[i])
        return false;
    }
  }
  return true;
}

}  // namespace aten_recompute
