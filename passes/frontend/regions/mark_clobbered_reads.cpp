#include "passes/frontend/regions/mark_clobbered_reads.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/memory_base.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Tells which values may share memory. Joins values that control flow passes on, and repeated reads
// of the same attribute.
class MemoryGroups {
 public:
  explicit MemoryGroups(Graph& graph) {
    for_each_node(graph.block(), [&](Node* node) {
      if (node->kind() == prim::If)
        join_branches(node);
      else if (node->kind() == prim::Loop)
        join_iterations(node);
      else if (node->kind() == prim::GetAttr)
        join_attribute(node);
    });
  }

  // Returns representatives of the memory that `value` may be in; several for a list.
  std::unordered_set<const Value*> of(const Value* value) {
    std::unordered_set<const Value*> found;
    std::unordered_set<const Value*> seen;
    collect(value, found, seen);
    return found;
  }

 private:
  void collect(const Value* value, std::unordered_set<const Value*>& found,
               std::unordered_set<const Value*>& seen) {
    value = base_of(value);
    if (!seen.insert(value).second)
      return;
    if (value->node()->kind() != prim::ListConstruct) {
      found.insert(representative(value));
      return;
    }
    for (const auto* element : value->node()->inputs())
      collect(element, found, seen);
  }

  static const Value* base_of(const Value* value) { return memory_base(value, Aliasing::kOfAten); }

  const Value* representative(const Value* value) {
    auto found = parent_.find(value);
    while (found != parent_.end() && found->second != value) {
      value = found->second;
      found = parent_.find(value);
    }
    return value;
  }

  void join(const Value* a, const Value* b) {
    if (!contains_tensor(*a->type()))
      return;
    a = representative(base_of(a));
    b = representative(base_of(b));
    parent_.emplace(b, b);
    parent_[a] = b;
  }

  void join_branches(Node* node) {
    for (auto* block : node->blocks()) {
      for (size_t i = 0; i < node->outputs().size(); ++i)
        join(node->output(i), block->outputs()[i]);
    }
  }

  // A node Loop(count, condition, carried...) has a block with the inputs (i, carried...) and the
  // outputs (condition, carried...).
  void join_iterations(Node* node) {
    auto* block = node->blocks()[0];
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      auto* carried = block->inputs()[i + 1];
      join(carried, node->input(i + 2));
      join(carried, block->outputs()[i + 1]);
      join(carried, node->output(i));
    }
  }

  void join_attribute(Node* node) {
    if (!contains_tensor(*node->output()->type()))
      return;
    std::string path;
    const Value* holder = node->output();
    for (; holder->node()->kind() == prim::GetAttr; holder = holder->node()->input(0))
      path += "." + holder->node()->s(c10::attr::name);
    const auto [first, is_new] =
        attributes_.emplace(std::to_string(holder->unique()) + path, node->output());
    if (!is_new)
      join(node->output(), first->second);
  }

  std::unordered_map<const Value*, const Value*> parent_;
  std::unordered_map<std::string, const Value*> attributes_;  // the first read, by path
};

}  // namespace

void mark_clobbered_reads(Graph& graph) {
  std::vector<Node*> nodes;
  std::vector<Node*> writers;
  for_each_node(graph.block(), [&](Node* node) { nodes.push_back(node); });
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(writers), mutates_an_argument);
  if (writers.empty())
    return;
  MemoryGroups groups(graph);
  std::unordered_map<const Value*, std::vector<const Node*>> writers_of;
  for (const auto* writer : writers) {
    for (const auto* written : groups.of(writer->input(0)))
      writers_of[written].push_back(writer);
  }
  const auto is_written_later = [&](const Node* node, const Value* read) {
    const auto found = writers_of.find(read);
    return found != writers_of.end() &&
           std::any_of(found->second.begin(), found->second.end(),
                       [&](const Node* writer) { return writer->isAfter(node); });
  };
  for (auto* node : nodes) {
    if (!node->blocks().empty() || node->maybeSchema() == nullptr || is_pure_view(node) ||
        mutates_an_argument(node))
      continue;
    const bool in_a_loop = is_in_a_loop(node);
    const bool marked =
        std::any_of(node->inputs().begin(), node->inputs().end(), [&](const Value* input) {
          if (!contains_tensor(*input->type()))
            return false;
          const auto read = groups.of(input);
          return std::any_of(read.begin(), read.end(), [&](const Value* each) {
            return in_a_loop ? writers_of.count(each) != 0 : is_written_later(node, each);
          });
        });
    if (marked)
      node->i_(symbols::kReadsWritten, 1);
  }
}

}  // namespace aten_recompute
