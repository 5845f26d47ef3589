#include "passes/region/build_sliced.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ir/node_place.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "runtime/path_check.h"
#include "runtime/sliced.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

class SlicedBuilder {
 public:
  SlicedBuilder(Graph& graph, const OrderedNodes& nodes, const RowStretch& stretch, int64_t slices,
                KnownTensors& known)
      : graph_(graph), stretch_(stretch), slices_(slices), known_(known) {
    for (const auto index : stretch.nodes)
      members_.push_back(nodes[index]);
    std::vector<size_t> copied;
    std::merge(stretch.nodes.begin(), stretch.nodes.end(), stretch.checks.begin(),
               stretch.checks.end(), std::back_inserter(copied));
    for (const auto index : copied)
      copied_.push_back(nodes[index]);
  }

  Node* build() {
    for (auto* node : copied_) {
      if (is_member(node))
        copy(node);
      else
        copy_check(node);
    }
    redirect_length_reads();
    count_rows_of_lists();
    const auto results = values_read_outside();
    auto* sliced = create(results);
    sliced->insertAfter(members_.back());
    auto* behind = sliced;
    for (auto* node : stretch_.after) {
      node->moveAfter(behind);
      behind = node;
    }
    // What is inserted now stands before the nodes that were moved.
    list_sizes_outside(sliced);
    for (size_t i = 0; i < results.size(); ++i)
      replace(results[i], sliced->output(i));
    destroy_members();
    return sliced;
  }

 private:
  // ---- inside ----

  // Returns what stands for a value of the graph in the stretch: a slice of it along `row`, or all.
  Value* inner(Value* value, int64_t row) {
    if (const auto found = copies_.find(value); found != copies_.end())
      return found->second;
    if (value->node()->kind() == c10::prim::Constant) {
      auto* constant = subgraph_->insertNode(
          subgraph_->createClone(value->node(), [](Value* each) { return each; }));
      return copies_[value] = constant->output();
    }
    return input_for(value, row);
  }

  Value* input_for(Value* value, int64_t row) {
    auto& input = inputs_[{value, row}];
    if (input == nullptr) {
      input = subgraph_->addInput()->setType(value->type());
      operands_.push_back(value);
      operand_rows_.push_back(row);
    }
    return input;
  }

  // Returns the list of sizes of a view() or the like, of which one is that of the slice.
  Value* inner_sizes(const Node* node) {
    auto* list = const_cast<Node*>(node)->input(sizes_operand(node).value());
    const auto row = static_cast<size_t>(stretch_.made.at(node->outputs()[0]));
    const auto rank = sizes_of(node->outputs()[0], known_)->size();
    std::vector<Value*> sizes;
    for (size_t i = 0; i < rank; ++i)
      sizes.push_back(i == row ? nullptr : inner_element(list, i));
    const auto operand_row = stretch_.operand_rows.at(node)[0];
    const auto size =
        size_of_slice(node, static_cast<int64_t>(row), operand_row, stretch_.made, known_);
    if (size == SliceSize::kRead) {
      auto* measured = const_cast<Value*>(measured_value(list, row));
      const auto found = stretch_.made.find(measured);
      const auto dimension = found == stretch_.made.end() ? operand_row : found->second;
      sizes[row] = subgraph_->insert(c10::aten::size, {inner(measured, dimension), dimension});
    } else if (size == SliceSize::kRowCount) {
      sizes[row] = row_count(list, row);
    } else {
      sizes[row] = subgraph_->insertConstant(int64_t{-1});
    }
    return subgraph_->insertNode(subgraph_->createList(c10::IntType::get(), sizes))->output();
  }

  // Returns what stands for an element of a list of sizes that is the number of rows.
  Value* row_count(Value* list, size_t index) {
    const auto element = static_cast<int64_t>(index);
    Value* written = nullptr;
    const torch::jit::WithInsertPoint guard(list->node()->next());
    if (const auto constant = torch::jit::toIValue(list))
      written = graph_.insertConstant(constant->toIntVector().at(index));
    else if (list->node()->kind() == c10::prim::ListConstruct)
      written = list->node()->input(index);
    else
      written = graph_.insert(c10::aten::__getitem__, {list, element});
    return input_for(written, kRowCount);
  }

  // Returns what stands for an element of a list of sizes in the stretch.
  Value* inner_element(Value* list, size_t index) {
    const auto element = static_cast<int64_t>(index);
    if (const auto constant = torch::jit::toIValue(list))
      return subgraph_->insertConstant(constant->toIntVector().at(index));
    if (list->node()->kind() == c10::prim::ListConstruct)
      return inner(list->node()->input(index), kWhole);
    if (stretch_.made.count(list) != 0)
      return subgraph_->insert(c10::aten::__getitem__, {copies_.at(list), element});
    const torch::jit::WithInsertPoint guard(list->node()->next());
    return inner(graph_.insert(c10::aten::__getitem__, {list, element}), kWhole);
  }

  void copy(Node* node) {
    const auto& rows = stretch_.operand_rows.at(node);
    const bool is_row_result = stretch_.made.at(node->outputs()[0]) >= 0;
    const auto of_sizes = is_row_result ? sizes_operand(node) : std::nullopt;
    std::vector<Value*> operands;
    size_t flat = 0;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      auto* operand = node->input(i);
      if (of_sizes && i == *of_sizes) {
        operands.push_back(inner_sizes(node));
        ++flat;
      } else if (stands_as_elements(operand)) {
        operands.push_back(copy_list(operand->node(), rows, flat));
      } else {
        operands.push_back(inner(operand, rows[flat++]));
      }
    }
    if (const auto once = added_once(node); once && !is_zeros(node->input(*once)))
      operands[*once] = is_convolution(node)
                            ? subgraph_->insertConstant(c10::IValue())
                            : subgraph_->insert(c10::aten::zeros_like, {operands[*once]});
    set_groups(node, operands);
    note_broadcasts(node);
    auto* added = subgraph_->insertNode(
        node->kind() == c10::aten::zeros ? zeros_beside_operands(operands) : clone(node, operands));
    for (size_t i = 0; i < node->outputs().size(); ++i)
      copies_[node->output(i)] = added->output(i);
  }

  Node* clone(Node* node, const std::vector<Value*>& operands) {
    size_t next = 0;
    return subgraph_->createClone(node, [&](Value*) { return operands[next++]; });
  }

  // Returns zeros() as new_zeros() of an operand, so that a run on meta tensors stays on meta.
  Node* zeros_beside_operands(const std::vector<Value*>& operands) {
    static const auto new_zeros = c10::Symbol::fromQualString("aten::new_zeros");
    const auto sliced = std::find_if(operand_rows_.begin(), operand_rows_.end(),
                                     [](int64_t row) { return row >= 0; });
    auto* beside = subgraph_->inputs()[sliced - operand_rows_.begin()];
    auto* zeros = subgraph_->create(new_zeros, {beside, operands[0], operands[1], operands[2]});
    zeros->addInput(subgraph_->insertConstant(c10::IValue()));  // the device of that operand
    zeros->addInput(operands[4]);
    return zeros;
  }

  // The node itself stays behind the stretch, so that this runs in the forward in any case.
  void copy_check(Node* node) {
    subgraph_->insertNode(
        subgraph_->createClone(node, [&](Value* each) { return inner(each, kWhole); }));
  }

  // Notes which operands of the stretch have to be of size 1 along the rows in each call.
  void note_broadcasts(const Node* node) {
    const auto values = flat_operands(node);
    for (const auto& [operand, dimension] :
         broadcast_along_rows(node, stretch_.made.at(node->outputs()[0]), known_)) {
      const auto found = inputs_.find({values[operand], kWhole});
      if (found != inputs_.end() && found->second != nullptr)
        broadcasts_.insert({found->second, dimension});
    }
  }

  static bool stands_as_elements(const Value* value) {
    return value->node()->kind() == c10::prim::ListConstruct && contains_tensor(*value->type());
  }

  Value* copy_list(Node* list, const std::vector<int64_t>& rows, size_t& flat) {
    auto* added = subgraph_->create(c10::prim::ListConstruct);
    for (auto* element : list->inputs())
      added->addInput(inner(element, rows[flat++]));
    added->output()->setType(list->output()->type());
    return subgraph_->insertNode(added)->output();
  }

  static bool is_zeros(const Value* value) {
    static const auto new_zeros = c10::Symbol::fromQualString("aten::new_zeros");
    const auto kind = value->node()->kind();
    return kind == new_zeros || kind == c10::aten::zeros || kind == c10::aten::zeros_like;
  }

  // Returns the operand that is added to the sum over slices once, behind it: what index_add() adds
  // to, and the bias of a convolution.
  std::optional<size_t> added_once(const Node* node) const {
    static const auto index_add = c10::Symbol::fromQualString("aten::index_add");
    static const auto scatter_add = c10::Symbol::fromQualString("aten::scatter_add");
    if (stretch_.made.at(node->outputs()[0]) != kSummed)
      return std::nullopt;
    if (node->kind() == index_add || node->kind() == scatter_add)
      return 0;
    const bool has_bias = is_convolution(node) && !node->input(2)->mustBeNone();
    return has_bias ? std::optional<size_t>(2) : std::nullopt;
  }

  // A slice of a convolution that has a group for each channel has fewer groups.
  void set_groups(const Node* node, std::vector<Value*>& operands) {
    if (!is_convolution(node) || stretch_.operand_rows.at(node)[0] != 1 ||
        stretch_.made.at(node->outputs()[0]) != 1)
      return;
    const auto groups = static_cast<size_t>(*node->schema().argumentIndexWithName("groups"));
    operands[groups] = subgraph_->insert(c10::aten::size, {operands[0], 1});
  }

  // ---- outside ----

  bool is_member(const Node* node) const { return stretch_.operand_rows.count(node) != 0; }

  // Returns whether only nodes of the stretch read the list.
  bool is_list_of_stretch(const Node* node) const {
    if (node->kind() != c10::prim::ListConstruct || is_member(node))
      return false;
    const auto& uses = node->outputs()[0]->uses();
    return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const torch::jit::Use& use) {
      return is_member(use.user);
    });
  }

  std::vector<Value*> values_read_outside() const {
    std::vector<Value*> values;
    for (auto* node : members_) {
      for (auto* output : node->outputs()) {
        const auto& uses = output->uses();
        if (std::any_of(uses.begin(), uses.end(),
                        [&](const torch::jit::Use& use) {
                          return !is_member(use.user) && !is_list_of_stretch(use.user);
                        }) &&
            stretch_.made.at(output) != kSizesOfSlice)
          values.push_back(output);
      }
    }
    return values;
  }

  // Adds the values outside of the stretch, and their dimensions, that have the rows of `value` or
  // are broadcast to them.
  void add_origins_of_rows(Value* value, int64_t row, std::set<const Value*>& seen,
                           std::vector<std::pair<Value*, int64_t>>& origins) const {
    if (!seen.insert(value).second)
      return;
    if (stretch_.made.count(value) == 0) {
      origins.emplace_back(value, row);
      return;
    }
    const auto operands = flat_operands(value->node());
    const auto& rows = stretch_.operand_rows.at(value->node());
    for (size_t i = 0; i < operands.size(); ++i) {
      if (rows[i] >= 0)
        add_origins_of_rows(operands[i], rows[i], seen, origins);
    }
  }

  // Inserts what computes the number of rows of `value`, whatever broadcasts in a later call.
  Value* insert_row_count(Value* value) {
    static const auto broadcast_size =
        c10::Symbol::fromQualString("aten_recompute::broadcast_size");
    std::set<const Value*> seen;
    std::vector<std::pair<Value*, int64_t>> origins;
    add_origins_of_rows(value, stretch_.made.at(value), seen, origins);
    Value* count = nullptr;
    for (const auto& [origin, row] : origins) {
      auto* size = graph_.insert(c10::aten::size, {origin, row});
      count = count == nullptr ? size : graph_.insert(broadcast_size, {count, size});
    }
    return count;
  }

  // Has the stretch check that `value` has so many rows: a view in it may make others in a later
  // call. Then the call runs as it was scripted, because `count` is read outside.
  void check_row_count(Value* value, Value* count) {
    auto* rows = subgraph_->insert(c10::aten::size, {copies_.at(value), stretch_.made.at(value)});
    auto* is_right = subgraph_->insert(c10::aten::eq, {rows, input_for(count, kRowCount)});
    subgraph_->insert(symbols::kCheckPath, {is_right, true, kRunAsScripted});
  }

  bool is_read_outside(const Value* value) const {
    const auto& uses = value->uses();
    return std::any_of(uses.begin(), uses.end(),
                       [&](const torch::jit::Use& use) { return !is_member(use.user); });
  }

  // Counts the rows for lists of sizes that are read outside of the stretch.
  void count_rows_of_lists() {
    for (auto* node : members_) {
      auto* list = node->outputs()[0];
      if (stretch_.made.at(list) != kSizesOfSlice || !is_read_outside(list))
        continue;
      const torch::jit::WithInsertPoint guard(node);
      auto* count = insert_row_count(node->input());
      check_row_count(node->input(), count);
      counts_of_lists_[list] = count;
    }
  }

  void redirect_length_reads() {
    for (auto* read : stretch_.length_reads) {
      const torch::jit::WithInsertPoint guard(read);
      auto* measured = const_cast<Value*>(measured_value(read));
      auto* length = insert_row_count(measured);
      check_row_count(measured, length);
      length->node()->copyMetadata(read);
      std::replace(operands_.begin(), operands_.end(), read->output(), length);
      read->output()->replaceAllUsesWith(length);
      read->destroy();
    }
  }

  Node* create(const std::vector<Value*>& results) {
    auto* sliced = graph_.create(symbols::kSliced, operands_, results.size());
    std::vector<int64_t> result_rows;
    for (size_t i = 0; i < results.size(); ++i) {
      subgraph_->registerOutput(copies_.at(results[i]));
      result_rows.push_back(stretch_.made.at(results[i]));
      sliced->output(i)->setType(results[i]->type());
    }
    sliced->g_(c10::attr::Subgraph, subgraph_)
        ->is_(symbols::kOperandRows, operand_rows_)
        ->is_(symbols::kResultRows, std::move(result_rows))
        ->i_(symbols::kSlices, slices_);
    if (stretch_.may_fail_early)
      sliced->i_(kMayFailEarly, 1);
    std::vector<int64_t> broadcasts;
    for (const auto& [input, dimension] : broadcasts_) {
      broadcasts.push_back(static_cast<int64_t>(input->offset()));
      broadcasts.push_back(dimension);
    }
    sliced->is_(symbols::kBroadcasts, std::move(broadcasts));
    copy_place(members_.back(), sliced);
    sliced->setSourceRange(members_.back()->sourceRange());
    return sliced;
  }

  // Makes lists of sizes that are read outside of the stretch: those sizes that are the same in
  // each slice are results of it.
  void list_sizes_outside(Node* sliced) {
    for (auto* node : members_) {
      auto* list = node->outputs()[0];
      const auto count = counts_of_lists_.find(list);
      if (count == counts_of_lists_.end())
        continue;
      auto* measured = node->input();
      const auto row = stretch_.made.at(measured);
      auto result_rows = sliced->is(symbols::kResultRows);
      std::vector<Value*> sizes;
      const auto rank = static_cast<int64_t>(sizes_of(measured, known_)->size());
      for (int64_t i = 0; i < rank; ++i) {
        if (i == row) {
          sizes.push_back(nullptr);
          continue;
        }
        subgraph_->registerOutput(subgraph_->insert(c10::aten::size, {copies_.at(measured), i}));
        sizes.push_back(sliced->addOutput()->setType(c10::IntType::get()));
        result_rows.push_back(kWhole);
      }
      sliced->is_(symbols::kResultRows, std::move(result_rows));
      const torch::jit::WithInsertPoint guard(sliced->next());
      sizes[row] = count->second;
      auto* outside = graph_.insertNode(graph_.createList(c10::IntType::get(), sizes));
      list->replaceAllUsesWith(outside->output());
    }
  }

  void replace(Value* value, Value* result) {
    auto* stands_for = result;
    if (const auto once = added_once(value->node());
        once && !is_zeros(value->node()->input(*once))) {
      const torch::jit::WithInsertPoint guard(result->node()->next());
      auto* addend = value->node()->input(*once);
      if (is_convolution(value->node()))
        addend = graph_.insert(c10::aten::reshape, {addend, channels_of(value->node())});
      stands_for = graph_.insert(c10::aten::add, {result, addend});
      copy_place(value->node(), stands_for->node());
      if (const auto found = known_.find(value->unique()); found != known_.end())
        known_[stands_for->unique()] = found->second;
    }
    if (const auto found = known_.find(value->unique()); found != known_.end())
      known_[result->unique()] = found->second;
    if (value->hasDebugName())
      stands_for->setDebugName(value->debugNameBase());
    value->replaceAllUsesWith(stands_for);
  }

  // The sizes of a bias that is added to the result of a convolution.
  std::vector<int64_t> channels_of(const Node* convolution) const {
    std::vector<int64_t> sizes(sizes_of(convolution->input(1), known_)->size(), 1);
    sizes[1] = -1;
    return sizes;
  }

  void destroy_members() {
    std::vector<Node*> lists;
    for (auto* node : stretch_.after) {
      if (is_list_of_stretch(node))
        lists.push_back(node);
    }
    for (auto* node : members_)
      node->removeAllInputs();
    for (auto* list : lists)
      list->destroy();
    for (auto* node : members_)
      node->destroy();
  }

  Graph& graph_;
  const RowStretch& stretch_;
  const int64_t slices_;
  KnownTensors& known_;
  std::vector<Node*> members_;
  std::vector<Node*> copied_;  // members and checks, in order
  std::shared_ptr<Graph> subgraph_ = std::make_shared<Graph>();
  std::unordered_map<Value*, Value*> copies_;
  std::map<std::pair<Value*, int64_t>, Value*> inputs_;
  std::vector<Value*> operands_;
  std::vector<int64_t> operand_rows_;
  std::unordered_map<Value*, Value*> counts_of_lists_;
  std::set<std::pair<Value*, int64_t>> broadcasts_;  // inputs of the subgraph
};

}  // namespace

Node* build_sliced(Graph& graph, const OrderedNodes& nodes, const RowStretch& stretch,
                   int64_t slices, KnownTensors& known) {
  return SlicedBuilder(graph, nodes, stretch, slices, known).build();
}

}  // namespace aten_recompute
