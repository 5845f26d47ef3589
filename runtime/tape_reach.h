// Which values of a region require grad in a call that runs operators on the tape.
//
// What a region's inputs require is known when it is compiled, and rules say which results have a
// gradient then. What an operator on the tape does is known only after it has run: a branch that
// data decide (runtime/branch.h) may return what requires no grad.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace aten_recompute {

// What decides whether the values of a region require grad (passes/autodiff/tape_sources.h).
//
//   a = linear(x, w)       // w requires grad:      kAlways
//   b, t = tape_forward[branch](a, y)   // y: kNever; values[0] is {tape 0, output 0}
//   c = relu(b)            // values[1] is {of: 0}
//
//   operands = {{kAlways, kNever}}
//   outputs = {1}          // if c is the only output of the region that may require grad
struct TapeSources {
  // An index into `values`, or one of these.
  using Source = int32_t;
  static constexpr Source kAlways = -1;
  static constexpr Source kNever = -2;

  struct Value {
    int32_t tape =
        -1;  // it is result `output` of this tape; -1: it requires grad if one of `of` does
    int32_t output = 0;
    std::vector<Source> of;
  };

  // The values of which only a call tells it, in the order in which they are computed.
  std::vector<Value> values;
  std::vector<std::vector<Source>> operands;  // per tape and operand
  std::vector<Source> outputs;  // per output of the region that may require grad, as in df's order

  // Returns whether a call has to tell something.
  bool is_needed() const;
};

// Collects it in one call. Tapes that run on this thread while the object exists report to it.
class TapeReach {
 public:
  // With nullptr, nothing is collected, and nothing reports to an object that exists already.
  explicit TapeReach(const TapeSources* sources);
  ~TapeReach();
  TapeReach(const TapeReach&) = delete;
  TapeReach& operator=(const TapeReach&) = delete;

  // Returns the object that exists on this thread; nullptr if there is none.
  static TapeReach* current();

  // Notes that the gradient of result `output` of a tape reaches its operand `operand`.
  void note(size_t tape, size_t output, size_t operand);

  // Returns, for each output of the region that may require grad, whether it does. An empty list
  // says that all of them do. Needs the region's forward to have run.
  std::vector<bool> outputs() const;

 private:
  const TapeSources* sources_;
  TapeReach* before_;
  // Per tape: pairs of a result and an operand that its gradient reaches.
  std::vector<std::vector<std::pair<size_t, size_t>>> reached_;
};

}  // namespace aten_recompute
