#include "passes/region/row_stretch.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "ir/check_blocks.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"
#include "rules/recomputability.h"
#include "runtime/sliced.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool has_tensor_result(const Node* node) {
  const auto outputs = node->outputs();
  return std::any_of(outputs.begin(), outputs.end(),
                     [](const Value* output) { return contains_tensor(*output->type()); });
}

// Returns whether the node draws no random numbers. Attention is tagged as an operator that does,
// for its dropout.
bool is_deterministic(const Node* node) {
  if (!draws_random_numbers(node))
    return true;
  static const auto attention = c10::Symbol::fromQualString("aten::scaled_dot_product_attention");
  if (node->kind() != attention)
    return false;
  const auto* dropout =
      node->input(static_cast<size_t>(*node->schema().argumentIndexWithName("dropout_p")));
  return torch::jit::constant_as<double>(dropout).value_or(1.0) == 0.0;
}

// Returns whether a norm has no running statistics, which it would update, or read although they
// may change before the backward.
bool has_no_statistics(const Node* norm) {
  for (const char* name : {"running_mean", "running_var"}) {
    const auto index = norm->schema().argumentIndexWithName(name);
    if (index && !norm->input(static_cast<size_t>(*index))->mustBeNone())
      return false;
  }
  return true;
}

// Returns whether the node may run in slices as far as effects are concerned, and once more in the
// backward.
bool may_be_sliced(const Node* node) {
  if (!node->blocks().empty() || !is_deterministic(node) ||
      node->hasAttribute(symbols::kWithoutGraph) || node->hasAttribute(symbols::kFreed) ||
      node->hasAttribute(symbols::kCachedCast))
    return false;
  return updates_statistics_only(node) ? has_no_statistics(node)
                                       : recompute_veto(node) == RecomputeVeto::kNone;
}

// Returns whether the node may raise an error that the program has written down.
bool may_raise(Node* node) {
  const auto blocks = node->blocks();
  return raises_or_warns(node) ||
         (!blocks.empty() && std::all_of(blocks.begin(), blocks.end(), only_raises_or_warns));
}

bool lists_sizes(const Node* node) {
  return node->kind() == c10::aten::size && node->inputs().size() == 1;
}

// Returns the dimension whose size the node reads, if it reads one.
std::optional<int64_t> read_dimension(const Node* node, const KnownTensors& known) {
  const auto* value = measured_value(node);
  if (value == nullptr)
    return std::nullopt;
  const auto dimension = torch::jit::constant_as<int64_t>(node->input(1));
  const auto* sizes = sizes_of(value, known);
  if (!dimension || sizes == nullptr)
    return std::nullopt;
  return *dimension < 0 ? *dimension + static_cast<int64_t>(sizes->size()) : *dimension;
}

// A size that view() or the like is given.
struct ListedSize {
  std::optional<int64_t> constant;
  const Value* value = nullptr;  // nullptr: it is not given by itself
  // The size was read off this value, in this dimension; null: it was not.
  const Value* read_of = nullptr;
  int64_t read_dimension = kWhole;
};

// Returns the sizes in a list; an empty list where they are not known one by one.
std::vector<ListedSize> listed_sizes(const Value* list, const KnownTensors& known) {
  std::vector<ListedSize> sizes;
  if (lists_sizes(list->node())) {
    const auto* value = list->node()->input();
    const auto* known_sizes = sizes_of(value, known);
    const auto rank = known_sizes == nullptr ? 0 : static_cast<int64_t>(known_sizes->size());
    for (int64_t i = 0; i < rank; ++i)
      sizes.push_back({.constant = std::nullopt, .read_of = value, .read_dimension = i});
    return sizes;
  }
  if (const auto constant = torch::jit::toIValue(list)) {
    for (const auto size : constant->toIntVector())
      sizes.push_back({.constant = size});
  } else if (list->node()->kind() == c10::prim::ListConstruct) {
    for (const auto* value : list->node()->inputs()) {
      ListedSize size{.constant = torch::jit::constant_as<int64_t>(value), .value = value};
      if (const auto dimension = read_dimension(value->node(), known)) {
        size.read_of = measured_value(value->node());
        size.read_dimension = *dimension;
      }
      sizes.push_back(size);
    }
  }
  return sizes;
}

class StretchFinder {
 public:
  StretchFinder(const OrderedNodes& nodes, const StretchBounds& bounds, const KnownTensors& known)
      : nodes_(nodes), bounds_(bounds), known_(known) {}

  std::optional<RowStretch> find() {
    const auto rows = rows_of_seed();
    if (!rows || *rows < 2)
      return std::nullopt;
    stretch_.rows = *rows;
    if (!add_with_operands(bounds_.seed, bounds_.dimension))
      return std::nullopt;
    for (size_t i = first_; i < bounds_.end; ++i) {
      if (!visit(i)) {
        obstacle_ = obstacle_to(i);
        return std::nullopt;
      }
    }
    for (size_t i = first_; i < bounds_.end; ++i) {
      if (members_.count(i) != 0)
        stretch_.nodes.push_back(i);
    }
    return keep_what_follows() && has_no_open_list() ? std::optional(std::move(stretch_))
                                                     : std::nullopt;
  }

  // Returns the index of the node because of which there is no stretch, if there is one: the first
  // of those that can only run after the stretch though it needs them, or one whose result has
  // other rows than the stretch needs, such as a sum over all of them.
  std::optional<size_t> obstacle() const { return obstacle_; }

 private:
  // Returns the number of rows.
  std::optional<int64_t> rows_of_seed() const {
    const auto* seed = nodes_[bounds_.seed];
    if (bounds_.dimension == kSummed) {
      const auto operands = flat_operands(seed);
      const auto rows = needed_rows(seed, kSummed);
      for (size_t i = 0; rows && i < operands.size(); ++i) {
        if ((*rows)[i] != kWhole)
          return sizes_of(operands[i], known_)->at((*rows)[i]);
      }
      return std::nullopt;
    }
    const auto* sizes = sizes_of(seed->outputs()[0], known_);
    // Of nothing, no rows are known: other sizes of such a call may be zero by chance.
    if (sizes == nullptr || bounds_.dimension >= static_cast<int64_t>(sizes->size()) ||
        std::find(sizes->begin(), sizes->end(), 0) != sizes->end())
      return std::nullopt;
    return (*sizes)[bounds_.dimension];
  }

  // Returns the rows of a node's operands for a slice of its result along `dimension`, or for
  // results that are summed.
  std::optional<std::vector<int64_t>> needed_rows(const Node* node, int64_t dimension) const {
    if (dimension != kSummed)
      return rows_of_operands(node, dimension, known_);
    const std::vector<std::optional<int64_t>> any(flat_operands(node).size());
    return rows_that_are_summed(node, any, known_);
  }

  bool is_made(const Value* value) const { return stretch_.made.count(value) != 0; }

  bool may_be_member(size_t index) const {
    return index >= bounds_.begin && index < bounds_.end && may_be_sliced(nodes_[index]);
  }

  // Returns a value of the stretch that does not have the rows that the node needs of it; nullptr
  // where there is none.
  const Value* disagreeing(const Node* node, const std::vector<int64_t>& rows) const {
    const auto operands = flat_operands(node);
    const auto of_sizes = sizes_operand(node);
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto found = stretch_.made.find(operands[i]);
      const bool is_listed = of_sizes && i == *of_sizes;  // size_of_slice() looks at these
      if (found != stretch_.made.end() && found->second != rows[i] && !is_listed)
        return operands[i];
    }
    return nullptr;
  }

  bool agree(const Node* node, const std::vector<int64_t>& rows) const {
    return disagreeing(node, rows) == nullptr;
  }

  void add(size_t index, int64_t dimension, std::vector<int64_t> rows) {
    stretch_.operand_rows[nodes_[index]] = std::move(rows);
    members_.insert(index);
    first_ = std::min(first_, index);
    for (const auto* output : nodes_[index]->outputs())
      stretch_.made[output] = dimension;
  }

  // Adds a node, and to `open`, if a slice of its result along `row` needs slices of its operands
  // alone.
  void add_if_possible(size_t index, int64_t row, std::vector<size_t>& open) {
    const auto* node = nodes_[index];
    auto rows = may_be_member(index) ? needed_rows(node, row) : std::nullopt;
    if (!rows)
      return;
    const auto has_size = [&] {
      return size_of_slice(node, row, (*rows)[0], stretch_.made, known_) != SliceSize::kNone;
    };
    if (!has_size()) {
      add_measured(node, row, open);
      if (!has_size())
        return;
    }
    add(index, row, std::move(*rows));
    open.push_back(index);
  }

  // Adds the node that makes the value off which the size of the rows of `node` is read: the size
  // of a slice can be read off a slice of it.
  void add_measured(const Node* node, int64_t row, std::vector<size_t>& open) {
    const auto sizes = listed_sizes(node->input(sizes_operand(node).value()), known_);
    if (row >= static_cast<int64_t>(sizes.size()) || sizes[row].read_of == nullptr ||
        is_made(sizes[row].read_of))
      return;
    const auto maker = nodes_.index_of(sizes[row].read_of->node());
    if (maker && *maker < *nodes_.index_of(node))
      add_if_possible(*maker, sizes[row].read_dimension, open);
  }

  // Adds a node and those from which its operands' rows come. Returns false where it does not work
  // row by row.
  bool add_with_operands(size_t index, int64_t dimension) {
    std::vector<size_t> open;
    add_if_possible(index, dimension, open);
    while (!open.empty()) {
      // Whether an operand can be made may depend on another one, whose sizes it has.
      for (const auto member : std::exchange(open, {})) {
        const auto* node = nodes_[member];
        const auto operands = flat_operands(node);
        const auto rows = stretch_.operand_rows.at(node);
        for (size_t i = 0; i < operands.size(); ++i) {
          const auto maker = nodes_.index_of(operands[i]->node());
          if (rows[i] != kWhole && !is_made(operands[i]) && maker)
            add_if_possible(*maker, rows[i], open);
        }
      }
      if (!open.empty())
        open.assign(members_.begin(), members_.end());
    }
    return members_.count(index) != 0;
  }

  // Returns the index of the first node on which the node depends and that runs after the stretch.
  std::optional<size_t> first_after(Node* node) const {
    std::optional<size_t> first;
    for (const auto* operand : free_values(node)) {
      if (const auto found = after_.find(operand); found != after_.end())
        first = std::min(first.value_or(found->second), found->second);
    }
    return first;
  }

  size_t obstacle_to(size_t member) const {
    auto* node = nodes_[member];
    if (const auto first = first_after(node))
      return *first;
    const auto* value = disagreeing(node, stretch_.operand_rows.at(node));
    return value == nullptr ? member : nodes_.index_of(value->node()).value_or(member);
  }

  // Returns whether the node reads what is made after the stretch.
  bool depends_on_after(Node* node) const { return first_after(node).has_value(); }

  // Decides what becomes of the node. Returns false where a node that belongs to the stretch cannot
  // run in it.
  bool visit(size_t index) {
    auto* node = nodes_[index];
    if (node->kind() == c10::prim::Constant)
      return true;
    if (members_.count(index) != 0)
      return !depends_on_after(node) && agree(node, stretch_.operand_rows.at(node));
    if (!depends_on_after(node) && !reads_stretch(node))
      return true;
    if (becomes_length_read(node) || becomes_member(index))
      return true;
    stretch_.after.push_back(node);
    // A list of tensors is made again where the stretch reads it.
    const bool is_list = node->kind() == c10::prim::ListConstruct && has_tensor_result(node);
    const auto first = first_after(node);
    if (!is_list || first) {
      for (const auto* output : node->outputs())
        after_[output] = first.value_or(index);
    }
    return true;
  }

  bool reads_stretch(Node* node) const {
    const auto operands = node->blocks().empty() ? flat_operands(node) : free_values(node);
    return std::any_of(operands.begin(), operands.end(),
                       [&](const Value* operand) { return is_made(operand); });
  }

  bool becomes_length_read(Node* node) {
    const auto dimension = read_dimension(node, known_);
    if (!dimension)
      return false;
    const auto found = stretch_.made.find(measured_value(node));
    if (found == stretch_.made.end() || found->second != *dimension)
      return false;
    stretch_.length_reads.push_back(node);
    return true;
  }

  bool becomes_member(size_t index) {
    auto* node = nodes_[index];
    if (!may_be_member(index) || depends_on_after(node))
      return false;
    if (!has_tensor_result(node))
      return becomes_number(index);
    const auto operands = flat_operands(node);
    // Lists of tensors are made where they are read.
    if (node->kind() == c10::prim::ListConstruct)
      return false;
    if (becomes_zeros(index))
      return true;
    const auto* sizes = sizes_of(node->outputs()[0], known_);
    if (sizes == nullptr)
      return false;
    for (int64_t i = 0; i < static_cast<int64_t>(sizes->size()); ++i) {
      if ((*sizes)[i] != stretch_.rows)
        continue;
      const auto rows = rows_of_operands(node, i, known_);
      if (rows && agree(node, *rows) && reads_rows(operands, *rows) &&
          size_of_slice(node, i, (*rows)[0], stretch_.made, known_) != SliceSize::kNone) {
        add(index, i, *rows);
        return true;
      }
    }
    return becomes_sum(index, operands);
  }

  // Returns whether one of the operands that are sliced, or a list of their sizes, is made by the
  // stretch.
  bool reads_rows(const std::vector<Value*>& operands, const std::vector<int64_t>& rows) const {
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto found = stretch_.made.find(operands[i]);
      if (found != stretch_.made.end() && (rows[i] != kWhole || found->second == kSizesOfSlice))
        return true;
    }
    return false;
  }

  bool becomes_sum(size_t index, const std::vector<Value*>& operands) {
    std::vector<std::optional<int64_t>> assigned;
    for (const auto* operand : operands) {
      const auto found = stretch_.made.find(operand);
      assigned.push_back(found == stretch_.made.end() ? std::nullopt
                                                      : std::optional(found->second));
    }
    const auto rows = rows_that_are_summed(nodes_[index], assigned, known_);
    if (!rows || !agree(nodes_[index], *rows) || !reads_rows(operands, *rows))
      return false;
    for (size_t i = 0; i < operands.size(); ++i) {
      if ((*rows)[i] != kWhole && (*sizes_of(operands[i], known_))[(*rows)[i]] != stretch_.rows)
        return false;
    }
    add(index, kSummed, *rows);
    return true;
  }

  // Zeros of which only type, device and sizes that are the same in each slice are those of a value
  // of the stretch.
  bool becomes_zeros(size_t index) {
    static const auto new_zeros = c10::Symbol::fromQualString("aten::new_zeros");
    const auto* node = nodes_[index];
    if (node->kind() != new_zeros && node->kind() != c10::aten::zeros)
      return false;
    const auto inputs = node->inputs();
    if (node->kind() == c10::aten::zeros && inputs[1]->mustBeNone())
      return false;  // the default type may be another one later
    std::vector<int64_t> rows(inputs.size(), kWhole);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto found = stretch_.made.find(inputs[i]);
      if (found == stretch_.made.end())
        continue;
      if (i == 0 && node->kind() == new_zeros)
        rows[0] = found->second;
      else if (found->second != kWhole)
        return false;
    }
    add(index, kWhole, std::move(rows));
    return true;
  }

  // A size, or what is computed from sizes, that is the same in each slice.
  bool becomes_number(size_t index) {
    auto* node = nodes_[index];
    if (node->outputs().empty())
      return false;  // a check
    if (lists_sizes(node) && stretch_.made.at(node->input()) >= 0) {
      add(index, kSizesOfSlice, {stretch_.made.at(node->input())});
      return true;
    }
    for (const auto* operand : node->inputs()) {
      const auto found = stretch_.made.find(operand);
      if (found == stretch_.made.end() || found->second == kWhole)
        continue;
      // The dimension of the rows was answered before.
      const bool is_alike = read_dimension(node, known_) || node->kind() == c10::aten::len ||
                            has_fact(node, Fact::kFollowsFromType);
      if (!is_alike || found->second == kSummed)
        return false;
    }
    add(index, kWhole, std::vector<int64_t>(node->inputs().size(), kWhole));
    return true;
  }

  // A list of tensors has to be taken apart where it is made.
  bool has_no_open_list() const {
    return std::all_of(stretch_.nodes.begin(), stretch_.nodes.end(), [&](size_t index) {
      const auto* list = nodes_[index]->outputs()[0];
      return list->type()->kind() != c10::TypeKind::ListType || !contains_tensor(*list->type()) ||
             std::all_of(list->uses().begin(), list->uses().end(), [&](const auto& use) {
               return stretch_.operand_rows.count(use.user) != 0;
             });
    });
  }

  // Returns whether the node checks the path by numbers that are the same in each slice.
  bool is_check_of_slices(Node* node) const {
    const auto operands = node->inputs();
    return node->kind() == symbols::kCheckPath && !depends_on_after(node) &&
           std::all_of(operands.begin(), operands.end(), [&](const Value* operand) {
             const auto found = stretch_.made.find(operand);
             return found == stretch_.made.end() || found->second == kWhole;
           });
  }

  // Keeps of `after` what stands between nodes of the stretch: it will be moved behind it, which
  // must not change the order of effects.
  bool keep_what_follows() {
    const auto last = stretch_.nodes.back();
    std::erase_if(stretch_.after, [&](const Node* node) { return *nodes_.index_of(node) > last; });
    for (auto* node : stretch_.after) {
      if (is_check_of_slices(node))
        stretch_.checks.push_back(*nodes_.index_of(node));
      else if (may_raise(node))
        stretch_.may_fail_early = true;
    }
    return std::none_of(stretch_.after.begin(), stretch_.after.end(),
                        [](const Node* node) { return has_effect(node); });
  }

  const OrderedNodes& nodes_;
  const StretchBounds& bounds_;
  const KnownTensors& known_;
  RowStretch stretch_;
  std::unordered_set<size_t> members_;
  // By value that a node makes which runs after the stretch: the first such node that it needs.
  std::unordered_map<const Value*, size_t> after_;
  size_t first_ = static_cast<size_t>(-1);
  std::optional<size_t> obstacle_;
};

}  // namespace

const Value* measured_value(const Node* read) {
  if (read->inputs().size() != 2)
    return nullptr;
  if (read->kind() == c10::aten::size)
    return read->input(0);
  const bool is_element =
      read->kind() == c10::aten::__getitem__ && lists_sizes(read->input(0)->node());
  return is_element ? read->input(0)->node()->input() : nullptr;
}

const Value* measured_value(const Value* list, size_t element) {
  if (lists_sizes(list->node()))
    return list->node()->input();
  return list->node()->kind() == c10::prim::ListConstruct
             ? measured_value(list->node()->input(element)->node())
             : nullptr;
}

SliceSize size_of_slice(const Node* node, int64_t dimension, int64_t operand_row,
                        const std::unordered_map<const Value*, int64_t>& made,
                        const KnownTensors& known) {
  const auto index = sizes_operand(node);
  if (!index)
    return SliceSize::kAsWritten;
  const auto sizes = listed_sizes(node->input(*index), known);
  if (dimension >= static_cast<int64_t>(sizes.size()))
    return SliceSize::kNone;
  const auto& size = sizes[dimension];
  const bool is_expand = node->kind() == c10::aten::expand;
  // The dimensions before that of the rows have to be the operand's, whatever the sizes are. A
  // slice of the first one has the elements of its part of the result in any case.
  const bool is_of_first = dimension == 0 && operand_row == 0;
  bool keeps_first = operand_row == dimension;
  for (int64_t i = 0; i < dimension; ++i)
    keeps_first = keeps_first && sizes[i].read_of == node->input(0) && sizes[i].read_dimension == i;
  if (!is_expand && !is_of_first && !keeps_first)
    return SliceSize::kNone;
  if (size.constant == -1)
    return SliceSize::kAsWritten;
  if (size.read_of != nullptr) {
    const auto found = made.find(size.read_of);
    const auto row = found != made.end()              ? found->second
                     : size.read_of == node->input(0) ? operand_row
                                                      : kWhole;
    if (row == size.read_dimension)
      return SliceSize::kRead;
  }
  const bool is_followed =
      std::any_of(sizes.begin(), sizes.end(), [](const auto& each) { return each.constant == -1; });
  // What the stretch makes is the same in each slice.
  const bool is_made =
      made.count(size.value) != 0 || (size.value == nullptr && made.count(size.read_of) != 0);
  return is_expand || is_followed || is_made ? SliceSize::kNone : SliceSize::kRowCount;
}

OrderedNodes::OrderedNodes(torch::jit::Graph& graph) {
  for (auto* node : graph.nodes()) {
    index_[node] = nodes_.size();
    nodes_.push_back(node);
  }
}

std::optional<size_t> OrderedNodes::index_of(const Node* node) const {
  const auto found = index_.find(node);
  return found == index_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<RowStretch> find_stretch(const OrderedNodes& nodes, StretchBounds bounds,
                                       const KnownTensors& known) {
  while (true) {
    StretchFinder finder(nodes, bounds, known);
    if (auto stretch = finder.find())
      return stretch;
    const auto obstacle = finder.obstacle();
    if (!obstacle || *obstacle >= bounds.seed)
      return std::nullopt;
    bounds.begin = *obstacle + 1;
  }
}

}  // namespace aten_recompute
