// The planning problem as plain data: what runs, what it reads, what it costs. No LibTorch here, so
// planners can be tested, measured and compared with a solver on graphs of any origin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace aten_recompute {

// Lists of ints, one after the other in one array.
class JaggedArray {
 public:
  size_t size() const { return begin_.size() - 1; }
  std::span<const int32_t> operator[](size_t row) const {
    return {items_.data() + begin_[row], items_.data() + begin_[row + 1]};
  }
  void push_back(std::span<const int32_t> row) {
    items_.insert(items_.end(), row.begin(), row.end());
    begin_.push_back(static_cast<int32_t>(items_.size()));
  }
  void push_back(std::initializer_list<int32_t> row) {
    push_back(std::span<const int32_t>(row.begin(), row.size()));
  }

 private:
  std::vector<int32_t> begin_{0};
  std::vector<int32_t> items_;
};

// A forward and a backward over one set of nodes, values and storages, each known by its index.
//
//   nodes     [0, num_forward) the forward, [num_forward, num_nodes) the backward, in the order in
//             which they run; behind them the alternatives, which run where a plan chooses them
//   values    what nodes read and write: tensors, or containers and views of tensors
//   storages  memory. A view has the storages of what it views; a fresh tensor has one of its own
//
// The forward runs once. Before each backward node runs, forward values that it reads and that are
// gone are computed again.
struct Problem {
  size_t num_forward = 0;
  size_t num_nodes = 0;  // alternatives not counted

  // ---- per node, alternatives included ----
  std::vector<std::string> node_names;
  JaggedArray inputs;           // values
  JaggedArray outputs;          // values
  JaggedArray overwrites;       // inputs whose memory output 0 may take over, if they die here
  std::vector<double> seconds;  // of one run
  std::vector<double> flops;    // floating-point operations of one run
  std::vector<int64_t> workspace_bytes;  // alive while it runs, beyond inputs and outputs
  // Kept from its run in the forward to its last in the backward, if it runs there: the state of
  // the random generator. Empty: nothing.
  std::vector<int64_t> replay_bytes;
  std::vector<uint8_t> recomputable;  // 0: runs once, as it writes to something, or is control flow
  std::vector<uint8_t> is_view;       // its outputs own no memory
  JaggedArray alternatives;           // nodes that can run in its place
  // Forward nodes that run only if something reads what they make: the packing of a mask.
  std::vector<uint8_t> optional;

  // ---- per value ----
  std::vector<std::string> value_names;
  std::vector<int32_t> producer;  // node; -1: given (a region input, an incoming gradient)
  JaggedArray storages;

  // What the program says itself (passes/strategy/tags.h): values that stay, and values that go at
  // the end of the forward. Empty: none.
  std::vector<uint8_t> must_save;
  std::vector<uint8_t> must_recompute;

  // ---- per storage ----
  std::vector<int64_t> bytes;
  std::vector<uint8_t> held;  // the caller's: parameters and inputs; never counted, never freed

  // Values that stay alive to the end of the step once made: what the caller holds, and gradients.
  std::vector<int32_t> results;
  // Of those, outputs that are gone once the loss has read them: the backward begins without them.
  std::vector<int32_t> freed_before_backward;
  // Given values that come into being with the backward: incoming gradients.
  std::vector<int32_t> incoming;

  // What happens between forward and backward is the caller's. A loss is taken to need as much
  // again as the outputs that it reads while it makes their gradients: a mean squared error keeps a
  // full tensor behind its scalar, a cross entropy the logarithms of the probabilities.
  int64_t loss_bytes = 0;
  // What the caller made for the loss and holds to the end of the backward: the value of
  // torch.nn.functional.mse_loss, say, lies in memory for all elements of the output.
  int64_t held_by_caller = 0;

  size_t num_values() const { return producer.size(); }
  size_t num_storages() const { return bytes.size(); }
  size_t num_all_nodes() const { return seconds.size(); }
  size_t num_backward() const { return num_nodes - num_forward; }
  bool in_forward(int32_t node) const { return static_cast<size_t>(node) < num_forward; }

  bool is_must_save(int32_t value) const { return !must_save.empty() && must_save[value] != 0; }
  bool is_must_recompute(int32_t value) const {
    return !must_recompute.empty() && must_recompute[value] != 0;
  }

  // Bytes that keeping `value` alone keeps alive.
  int64_t value_bytes(int32_t value) const;
  // Time of forward and backward with nothing computed again.
  double base_seconds() const;
};

// Per value, the values that plans decide about in its place: of a view, what it views, as making a
// view again costs nothing (a list of tensors has several); of every other value, itself.
JaggedArray base_values(const Problem& problem);

// Per value: a backward node reads it, or a view of it. `roots` are the problem's.
std::vector<uint8_t> read_by_backward(const Problem& problem, const JaggedArray& base_values);

// Both ways, for tools, tests and solvers. `from_json` throws std::invalid_argument naming what is
// wrong.
std::string to_json(const Problem& problem);
Problem problem_from_json(const std::string& text);

}  // namespace aten_recompute
