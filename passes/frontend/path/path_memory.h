// Which values of a recorded path share memory, so that writes to views become functional.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

namespace aten_recompute {

// The tensors of a path that are views of one another, as trees: a tensor, its views, and theirs.
// After a write to one of them, the tensor that all others are views of is the old one with the new
// part put in (slice_scatter and its like), and the views are made from it again when they are read
// next. Tensors that nothing reads again cost nothing, because the nodes have no effects.
//
// Pieces of a list (chunk) cannot be put in. A write to one of them leaves the others as they are,
// and the tensor that they are pieces of cannot be read any more. What was written has gaps between
// its rows where the piece had some.
//
// Only tensors that the path made itself may be noted here, and copies of attributes that it writes
// back (PathAttributes).
class PathMemory {
 public:
  // `insert` appends a node to the graph.
  PathMemory(torch::jit::Graph& graph, std::function<void(torch::jit::Node*)> insert)
      : graph_(graph), insert_(std::move(insert)) {}

  // Notes that the result is a view of the operand, or the operand itself, made by the result's
  // node. A node that returns a view in this call, and may return a copy in another (reshape, to),
  // cannot be made again after a write.
  void note_view(torch::jit::Value* result, torch::jit::Value* operand);
  // Notes that the result is another name of the same tensor, in every call.
  void note_same(torch::jit::Value* result, torch::jit::Value* operand);
  // Notes that the list holds pieces of the operand, which do not overlap.
  void note_list(torch::jit::Value* list, torch::jit::Value* operand);
  // Notes that the result is an element of a list. Throws NotRecordable if its memory was written
  // to since the list was made.
  void note_element(torch::jit::Value* result, torch::jit::Value* list);

  bool is_view(torch::jit::Value* value) const;
  // Returns whether a write to the value puts the new content into a larger tensor, whose layout is
  // kept.
  bool is_put_in(torch::jit::Value* value) const;
  // Returns whether the value still holds what the tensor holds.
  bool is_current(torch::jit::Value* value) const;
  // Returns the value that holds what the tensor holds at this point of the path. May append nodes.
  // Throws NotRecordable if it cannot be made.
  torch::jit::Value* current(torch::jit::Value* value);
  // Notes that the tensor now holds `content`, which has its sizes. May append nodes. Returns what
  // the tensor that it is a view of holds now, or `content`. Throws NotRecordable as current()
  // does.
  torch::jit::Value* write(torch::jit::Value* value, torch::jit::Value* content);
  // Notes that `name` stands for the tensor from now on, and holds what it holds. Names of its
  // views stay.
  void replace_name(torch::jit::Value* value, torch::jit::Value* name) {
    set_content(get(value), name);
  }
  // Notes that the tensor, which is no view, is also what `name` stands for from now on.
  void rename(torch::jit::Value* value, torch::jit::Value* name);
  // Returns `content` with gaps in memory where `part`, of a larger tensor, has some. How operators
  // round depends on gaps, and which random numbers they draw. Appends nodes.
  torch::jit::Value* with_gaps_of(torch::jit::Value* content, torch::jit::Value* part);

 private:
  struct Tensor {
    torch::jit::Value* value = nullptr;
    Tensor* base = nullptr;             // of which it is a view
    torch::jit::Node* view = nullptr;   // the node that made it
    torch::jit::Value* list = nullptr;  // of which it is an element
    size_t operand = 0;                 // of the node: the base
    std::vector<Tensor*> views;
    size_t version = 0;        // counts its contents
    bool is_outdated = false;  // to be made again from its base
    bool is_lost = false;      // cannot be made any more
  };

  // A value of the graph, which holds one content of a tensor.
  struct Name {
    Tensor* tensor;
    size_t version;
  };

  Tensor* find(torch::jit::Value* value) const;
  void set_content(Tensor& tensor, torch::jit::Value* content);
  Tensor& get(torch::jit::Value* value);
  Tensor& add_view(torch::jit::Value* result, Tensor& base);
  torch::jit::Value* refresh(Tensor& tensor);
  torch::jit::Value* make_again(const Tensor& view, torch::jit::Value* base);
  static void outdate(Tensor& tensor);
  static void outdate_views(Tensor& tensor, const Tensor* except);
  // Returns whether there is an operator for put_in().
  static bool can_put_in(const Tensor& view);
  // Returns `base` with the content of a view of it put in.
  torch::jit::Value* put_in(torch::jit::Value* base, const Tensor& view,
                            torch::jit::Value* content);
  // The same for narrow(base, dim, start, length).
  torch::jit::Value* put_in_narrow(torch::jit::Value* base, torch::jit::Value* content,
                                   torch::jit::Value* dim, torch::jit::Value* start,
                                   torch::jit::Value* length);
  torch::jit::Value* append(c10::Symbol kind, at::ArrayRef<torch::jit::Value*> inputs);

  torch::jit::Graph& graph_;
  std::function<void(torch::jit::Node*)> insert_;
  std::list<Tensor> tensors_;
  std::unordered_map<torch::jit::Value*, Name> names_;
  struct Pieces {
    Tensor* base;
    torch::jit::Value* value;  // of the base when the list was made
  };
  std::unordered_map<torch::jit::Value*, Pieces> lists_;
};

}  // namespace aten_recompute
