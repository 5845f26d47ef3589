// The shapes of inputs that a plan was made for, as far as memory depends on them.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

namespace aten_recompute {

// Number of shapes that a region or a method keeps plans for. Beyond it, the least recently used
// plan is dropped.
inline constexpr size_t kMaxPlans = 8;

// Sizes and element widths in bytes of the tensors among a call's inputs, and the numbers among
// them that decide sizes.
class InputShapes {
 public:
  InputShapes() = default;
  // Leaves out inputs with `ignored[i]`, such as parameters, which do not change between calls.
  // Counts a number with `decides_sizes[i]` as the length of a tensor, ignored or not. Both lists
  // may be shorter than `inputs`.
  explicit InputShapes(const std::vector<c10::IValue>& inputs,
                       const std::vector<bool>& ignored = {},
                       const std::vector<bool>& decides_sizes = {});

  // Returns whether no tensor of `other` is larger in any dimension than its counterpart here. A
  // plan made for these shapes then keeps its peak in bytes for `other`, because every value is at
  // most as large.
  // With room, tensors may also be larger, as long as memory that grows with the cube of each
  // dimension has room.
  bool cover(const InputShapes& other) const;
  bool operator==(const InputShapes& other) const { return numbers_ == other.numbers_; }
  bool operator!=(const InputShapes& other) const { return !(*this == other); }

  // Returns these shapes with `room` times the memory of these inputs for a call; at least 1.
  InputShapes with_room(double room) const {
    auto shapes = *this;
    shapes.room_ = room;
    return shapes;
  }

  // Returns, for people, the first tensor of `other` that is larger than its counterpart here, or
  // another one: "x [16, 64] instead of [8, 64]". `names` has one for each input.
  std::string difference(const InputShapes& other, const std::vector<std::string>& names) const;

 private:
  // Per tensor: its rank, the bytes of an element, its sizes. Other inputs have -1 only.
  std::vector<int64_t> numbers_;
  double room_ = 1.0;
};

}  // namespace aten_recompute
