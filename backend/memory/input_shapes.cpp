#include "backend/memory/input_shapes.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace aten_recompute {

InputShapes::InputShapes(const std::vector<c10::IValue>& inputs, const std::vector<bool>& ignored,
                         const std::vector<bool>& decides_sizes) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i < decides_sizes.size() && decides_sizes[i] && inputs[i].isScalar()) {
      const auto number = std::ceil(inputs[i].toScalar().toDouble());
      constexpr double kLargest = 1e15;  // not a number, and what is no size, count as this
      numbers_.insert(numbers_.end(),
                      {1, sizeof(int64_t),
                       static_cast<int64_t>(std::abs(number) < kLargest ? number : kLargest)});
      continue;
    }
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
  std::set<std::pair<int64_t, int64_t>> grown;  // one dimension may be that of several tensors
  for (size_t i = 0; i < numbers_.size();) {
    const auto dimensions = numbers_[i];
    if (other.numbers_[i] != dimensions ||
        (dimensions >= 0 && other.numbers_[i + 1] > numbers_[i + 1]))
      return false;
    i += dimensions < 0 ? 1 : 2;  // the element's width comes before the sizes
    for (int64_t k = 0; k < dimensions; ++k, ++i) {
      if (other.numbers_[i] > numbers_[i])
        grown.emplace(numbers_[i], other.numbers_[i]);
    }
  }
  double growth = 1.0;
  for (const auto& [before, now] : grown)
    growth *= before == 0 ? std::numeric_limits<double>::infinity()
                          : std::pow(static_cast<double>(now) / static_cast<double>(before), 3);
  return growth <= room_;
}

std::string InputShapes::difference(const InputShapes& other,
                                    const std::vector<std::string>& names) const {
  const auto sizes_at = [](const InputShapes& shapes, size_t place) {
    std::string text = "[";
    for (int64_t k = 0; k < shapes.numbers_[place]; ++k)
      text += (k == 0 ? "" : ", ") + std::to_string(shapes.numbers_[place + 2 + k]);
    return text + ']';
  };
  const auto next = [](const InputShapes& shapes, size_t place) {
    return place +
           (shapes.numbers_[place] < 0 ? 1 : static_cast<size_t>(shapes.numbers_[place]) + 2);
  };
  for (size_t a = 0, b = 0, input = 0; a < numbers_.size() && b < other.numbers_.size(); ++input) {
    const auto rank = numbers_[a];
    bool is_larger = other.numbers_[b] != rank;
    for (int64_t k = 1; !is_larger && rank >= 0 && k <= rank + 1; ++k)
      is_larger = other.numbers_[b + k] > numbers_[a + k];
    if (is_larger) {
      const auto name = input < names.size() ? names[input] : "input " + std::to_string(input);
      return name + ' ' + sizes_at(other, b) + " instead of " + sizes_at(*this, a);
    }
    a = next(*this, a);
    b = next(other, b);
  }
  return "other inputs";
}

}  // namespace aten_recompute
