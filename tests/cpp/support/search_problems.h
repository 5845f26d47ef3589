// Problems for tests of the search, which are larger than what somebody would write node by node.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute::test {

// Numbers that are the same with every implementation of the standard library.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 2654435761U + 1) {}
  int64_t between(int64_t least, int64_t greatest) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return least +
           static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(greatest - least + 1));
  }

 private:
  uint64_t state_;
};

// A chain of `length` nodes, and a backward that reads each value once or twice:
//   v0 = f(x)   v1 = f(v0)   ...   g(n-1) = g(gn, v(n-1), v(n-2))   ...
inline Problem chain(int length, uint64_t seed) {
  Numbers numbers(seed);
  SmallProblemBuilder b;
  auto value = b.held("x", 1000);
  std::vector<int32_t> values;
  for (int i = 0; i < length; ++i) {
    value = b.fresh("v" + std::to_string(i), {value}, numbers.between(1, 20));
    b.seconds(static_cast<double>(numbers.between(1, 9)));
    values.push_back(value);
  }
  b.result(b.fresh("y", {value}, 1));
  b.start_backward();
  auto gradient = b.incoming("dy", 1);
  for (int i = length; i-- > 0;) {
    std::vector<int32_t> reads{gradient, values[i]};
    if (i > 0 && numbers.between(0, 1) == 1)
      reads.push_back(values[i - 1]);
    gradient = b.fresh("g" + std::to_string(i), reads, numbers.between(1, 20));
    b.workspace(numbers.between(0, 5));
  }
  b.result(gradient);
  return b.build();
}

// A chain in which each value has a second branch.
inline Problem ladder(int length) {
  Numbers numbers(7);
  SmallProblemBuilder b;
  auto value = b.held("x", 100000);
  std::vector<std::pair<int32_t, int32_t>> rungs;
  for (int i = 0; i < length; ++i) {
    const auto name = std::to_string(i);
    const auto branch = b.fresh("a" + name, {value}, numbers.between(10, 200));
    b.seconds(static_cast<double>(numbers.between(1, 50)));
    value = b.fresh("b" + name, {value, branch}, numbers.between(10, 200));
    b.seconds(static_cast<double>(numbers.between(1, 50)));
    rungs.emplace_back(branch, value);
  }
  b.result(b.fresh("y", {value}, 1));
  b.start_backward();
  auto gradient = b.incoming("dy", 1);
  for (int i = length; i-- > 0;) {
    const auto name = std::to_string(i);
    const auto first = b.fresh("gb" + name, {gradient, rungs[i].second}, numbers.between(10, 200));
    gradient = b.fresh("ga" + name, {first, rungs[i].first}, numbers.between(10, 200));
  }
  b.result(gradient);
  return b.build();
}

// Blocks as of a network with residuals: each adds to a stream, in place in every second block,
// what a wide value, a dropout and a view of it make. The backward reads most of them, some as
// views.
inline Problem residuals(int blocks, uint64_t seed) {
  Numbers numbers(seed);
  SmallProblemBuilder b;
  auto stream = b.held("x", 500);
  struct Block {
    int32_t wide, dropped, shaped, stream;
  };
  std::vector<Block> made;
  for (int i = 0; i < blocks; ++i) {
    const auto name = std::to_string(i);
    const auto bytes = numbers.between(20, 60);
    const auto wide = b.fresh("w" + name, {stream}, 4 * bytes);
    b.seconds(static_cast<double>(numbers.between(5, 40)));
    b.workspace(numbers.between(0, 30));
    const auto dropped = b.fresh("d" + name, {wide}, bytes);
    b.seconds(static_cast<double>(numbers.between(1, 3)));
    b.replay(8);
    const auto shaped = b.view("s" + name, {dropped});
    stream = b.fresh("r" + name, {stream, shaped}, bytes);
    if (i % 2 == 1)
      b.overwrites({shaped});
    made.push_back({wide, dropped, shaped, stream});
  }
  b.result(b.fresh("y", {stream}, 1));
  b.start_backward();
  auto gradient = b.incoming("dy", 1);
  for (int i = blocks; i-- > 0;) {
    const auto name = std::to_string(i);
    const auto& block = made[static_cast<size_t>(i)];
    const auto inner = b.fresh("gd" + name, {gradient, block.shaped, block.stream}, 50);
    gradient = b.fresh("gw" + name, {inner, block.wide}, numbers.between(20, 200));
    b.workspace(numbers.between(0, 50));
    if (i % 3 == 0)
      b.overwrites({inner});
  }
  b.result(gradient);
  return b.build();
}

}  // namespace aten_recompute::test
