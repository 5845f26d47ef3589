// The planning problem as plain data: what runs, what it reads, what it costs. It does not depend
// on LibTorch, so planners can be tested, measured and compared with a solver on graphs of any
// origin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace aten_recompute {

// Lists of integers, stored one after the other in one array.
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

// Where a node comes from in the program, as indices of Problem::layers and Problem::sources; -1:
// not known. Thousands of nodes share few texts.
struct NodePlace {
  int32_t layer = -1;
  int32_t source = -1;
};

// A forward and a backward over one set of nodes, values and storages, each known by its index.
// planner/model/problem_builder.h builds one node by node.
//
//   nodes     [0, num_forward) are the forward and [num_forward, num_nodes) the backward, in the
//             order in which they run. The alternatives come last; they run where a plan chooses
//             them
//   values    what nodes read and write: tensors, or containers and views of tensors
//   storages  memory. A view has the storages of what it views; a new tensor has one of its own
//
// The forward runs once. Before each backward node runs, forward values that it reads and that are
// no longer in memory are recomputed. The same is done for the last nodes of the forward if they
// are a gradient that the method asks for, such as forces: values of an energy may be dropped
// before it, and both are part of what the backward may recompute.
//
//   [0, first_served())               run once, one after the other                slot 0
//   [first_served(), num_forward)     each of them is served; run before the loss  slots 1, 2, ...
//   [num_forward, num_nodes)          each of them is served; run after the loss   the slots after
//
// A slot is what runs for one served node: what is recomputed for it, then the node.
struct Problem {
  size_t num_forward = 0;
  size_t num_served_forward = 0;  // of these, the last ones that are served
  size_t num_nodes = 0;           // without alternatives
  // The backward runs in the program of the forward, and may overwrite what that has made.
  bool is_one_program = false;

  // ---- per node, alternatives included ----
  std::vector<std::string> node_names;
  JaggedArray inputs;      // values
  JaggedArray outputs;     // values
  JaggedArray overwrites;  // inputs whose memory output 0 may take over, if this read is the last
  std::vector<double> seconds;           // of one run
  std::vector<double> flops;             // floating-point operations of one run
  std::vector<int64_t> workspace_bytes;  // needed while it runs, beyond inputs and outputs
  // The state of the random generator: kept from the node's run in the forward to its last run in
  // the backward, if it runs there.
  std::vector<int64_t> replay_bytes;
  std::vector<uint8_t> recomputable;  // 0: runs once, because it has side effects or control flow
  std::vector<uint8_t> is_view;       // its outputs own no memory
  JaggedArray alternatives;           // nodes that can run in its place
  // Forward nodes that run only if something reads their outputs, such as the packing of a mask.
  std::vector<uint8_t> optional;
  // The node that runs in the backward in place of a forward node, always; -1: the node itself. Its
  // outputs are dropped at the end of the forward or never: once made again, they stay to their
  // last read. Such nodes stand among the alternatives. Empty: there are none.
  std::vector<int32_t> again;
  std::vector<NodePlace> places;  // for messages; empty: no place is known

  // ---- per text in `places` ----
  std::vector<std::string> layers;   // paths of modules from the root: "layer3.0"
  std::vector<std::string> sources;  // lines of the program: "resnet.py:52"

  // ---- per value ----
  std::vector<std::string> value_names;
  std::vector<int32_t> producer;  // node; -1: given, such as a region input or incoming gradient
  JaggedArray storages;

  // Requests of the program (passes/strategy/tags.h): values that must be kept, and values that
  // must be dropped at the end of the forward. Empty: there are none.
  std::vector<uint8_t> must_save;
  std::vector<uint8_t> must_recompute;

  // ---- per storage ----
  std::vector<int64_t> bytes;
  // The caller's memory, such as parameters and inputs: never counted and never freed.
  std::vector<uint8_t> held;

  // Values that stay alive to the end of the step: outputs that the caller holds, and gradients.
  std::vector<int32_t> results;
  // Results that are freed once the loss has read them, before the backward begins.
  std::vector<int32_t> freed_before_backward;
  // Given values that exist only from the start of the backward: incoming gradients.
  std::vector<int32_t> incoming;

  // The bytes that the caller's loss needs between forward and backward. Unless measured, this is
  // incoming_bytes(): a mean squared error saves a full tensor for its own backward, a cross
  // entropy the logarithms of the probabilities.
  int64_t loss_bytes = 0;
  // The bytes that the caller allocated for the loss and holds to the end of the backward, such as
  // the unreduced value of torch.nn.functional.mse_loss.
  int64_t held_by_caller = 0;
  // The number of other calls that the caller makes before the first of their backwards, as a
  // siamese network does. Each keeps what this call keeps; one that keeps less is a part of a call.
  // Their backwards follow each other.
  double other_calls = 0.0;
  // Results of the backward that are added to those of other backwards: gradients of parameters.
  std::vector<int32_t> added_results;
  // The backward leaves what it has read in memory, for another one.
  bool retains_graph = false;
  // There is another one, which finds the gradients of the first.
  bool repeats_backward = false;

  size_t num_values() const { return producer.size(); }
  size_t num_storages() const { return bytes.size(); }
  size_t num_all_nodes() const { return seconds.size(); }
  size_t num_backward() const { return num_nodes - num_forward; }
  size_t first_served() const { return num_forward - num_served_forward; }
  size_t num_slots() const { return num_nodes - first_served() + 1; }
  // Returns the slot of a node that is no alternative; 0 for one that is not served.
  int32_t slot_of(size_t node) const {
    return node < first_served() ? 0 : static_cast<int32_t>(node - first_served()) + 1;
  }
  // Returns the node that a slot from 1 on serves.
  int32_t node_of(size_t slot) const { return static_cast<int32_t>(first_served() + slot - 1); }
  // Returns whether a slot comes before the loss.
  bool is_before_loss(int32_t slot) const {
    return static_cast<size_t>(slot) <= num_served_forward;
  }
  // Returns whether a node that runs in a slot has run before, in the forward.
  bool runs_again(int32_t node, int32_t slot) const {
    return slot > 0 && in_forward(node) && node != node_of(static_cast<size_t>(slot));
  }
  bool in_forward(int32_t node) const { return static_cast<size_t>(node) < num_forward; }

  bool is_must_save(int32_t value) const { return !must_save.empty() && must_save[value] != 0; }
  bool is_must_recompute(int32_t value) const {
    return !must_recompute.empty() && must_recompute[value] != 0;
  }

  // Returns the node that makes the outputs of a forward node again.
  int32_t again_of(int32_t node) const {
    return again.empty() || again[node] < 0 ? node : again[node];
  }

  // Return the layer and the source line of a node; "" if it is not known.
  const std::string& layer_of(int32_t node) const;
  const std::string& source_of(int32_t node) const;

  // Returns the bytes that keeping `value` alone keeps alive.
  int64_t value_bytes(int32_t value) const;
  // Returns the bytes of all incoming gradients together.
  int64_t incoming_bytes() const;
  // Returns the seconds of forward and backward without recomputation.
  double base_seconds() const;
};

// Returns, per value, its base values: those that plans decide about in its place. For a view they
// are what it views, because making a view again costs nothing; a list of tensors has several.
// Every other value is its own base value.
JaggedArray base_values(const Problem& problem);

// Returns, per value, whether a backward node reads it or a view of it. `base_values` are those of
// the problem.
std::vector<uint8_t> read_by_backward(const Problem& problem, const JaggedArray& base_values);

// Returns, per value, the last slot before the loss that makes or reads it or a view of it: where
// to drop a value of the forward that only the backward should recompute.
std::vector<int32_t> last_slots_of_forward(const Problem& problem, const JaggedArray& base_values);

}  // namespace aten_recompute
