// What a plan was made for, as far as memory depends on it.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace aten_recompute {

// How many shapes a region or a method keeps plans for; the one not used for longest goes.
inline constexpr size_t kMaxPlans = 8;

// Sizes and element widths of the tensors among some inputs.
class InputShapes {
 public:
  InputShapes() = default;
  // Inputs with `ignored[i]` are left out: parameters do not change from call to call.
  explicit InputShapes(const std::vector<c10::IValue>& inputs,
                       const std::vector<bool>& ignored = {});

  // No tensor of `other` is larger than its counterpart here, in any dimension. Then a plan made
  // for these keeps its peak in bytes for those: every value is at most as large.
  bool cover(const InputShapes& other) const;
  bool operator==(const InputShapes&) const = default;

 private:
  // Per tensor: dimensions, bytes of an element, sizes. Other inputs have no dimensions: -1.
  std::vector<int64_t> numbers_;
};

}  // namespace aten_recompute
