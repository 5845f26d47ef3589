#include "passes/frontend/regions/form_regions.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/jit_log.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/dead_code.h"
#include "ir/functionalize.h"
#include "ir/memory_base.h"
#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/frontend/regions/mark_clobbered_reads.h"
#include "passes/frontend/regions/region_eligibility.h"
#include "passes/frontend/regions/whole_gradients.h"
#include "passes/frontend/rewrites/fold_attributes.h"
#include "passes/manager/pass_manager.h"
#include "runtime/inner_gradient.h"

namespace aten_recompute {
namespace {

using torch::jit::AliasDb;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Returns whether the node can be repeated after the region, from the values it reads, at no cost.
// The cast behind the functional form of an in-place operator cannot: autograd would differentiate
// it there.
bool can_stand_after(const Node* node) {
  return (may_alias_an_argument(node) && !node->hasAttribute(kKeepsType)) ||
         node->kind() == prim::ListConstruct || node->kind() == prim::ListUnpack ||
         node->kind() == prim::unchecked_cast ||
         (node->kind() == c10::aten::__getitem__ && !mutates_an_argument(node));
}

// Returns whether the node reads an attribute, or an element of one.
bool is_read_from_module(const Node* node) {
  while (node->kind() == c10::aten::__getitem__)
    node = node->input(0)->node();
  return node->kind() == prim::GetAttr;
}

// Returns whether the node takes elements from a list that only the region can make, such as that
// of unsafe_chunk. They leave the region one by one, because no gradient passes through a list that
// leaves it.
bool takes_from_list_made_in(const std::unordered_set<Node*>& region, const Node* node) {
  if (node->kind() != prim::ListUnpack && node->kind() != c10::aten::__getitem__)
    return false;
  auto* maker = node->input(0)->node();
  return region.count(maker) != 0 && !can_stand_after(maker);
}

// Builds the subgraph of a region's node, and its inputs and outputs.
class SubgraphBuilder {
 public:
  explicit SubgraphBuilder(Node* region) : region_(region), subgraph_(std::make_shared<Graph>()) {}

  // Adds a copy of the node. What the copy reads and the subgraph does not make becomes an input,
  // or a copy where it is a constant.
  void add(Node* node) {
    auto* copy =
        subgraph_->appendNode(subgraph_->createClone(node, [&](Value* v) { return map(v); }));
    for (size_t i = 0; i < node->outputs().size(); ++i)
      inner_[node->output(i)] = copy->output(i);
  }

  // Makes the copy of a value an output; returns that output of the region's node.
  Value* add_output(Value* value) {
    subgraph_->registerOutput(inner_.at(value));
    auto* result = region_->addOutput()->copyMetadata(value);
    return result->setType(value->type());
  }

  // Removes what nothing needs. Returns false, and destroys the region's node, if nothing is left.
  bool finish() {
    remove_dead_code(subgraph_->block());
    remove_unused_inputs();
    if (std::all_of(subgraph_->nodes().begin(), subgraph_->nodes().end(),
                    [](const Node* node) { return node->kind() == prim::Constant; }) &&
        region_->outputs().empty()) {
      region_->destroy();
      return false;
    }
    region_->g_(c10::attr::Subgraph, subgraph_)->is_(symbols::kIsAttribute, is_attribute_);
    return true;
  }

 private:
  Value* map(Value* value) {
    if (const auto found = inner_.find(value); found != inner_.end())
      return found->second;
    if (value->node()->kind() == prim::Constant) {
      const torch::jit::WithInsertPoint guard(subgraph_->block()->param_node()->next());
      auto* constant =
          subgraph_->insertNode(subgraph_->createClone(value->node(), [](Value* v) { return v; }));
      return inner_[value] = constant->output();
    }
    region_->addInput(value);
    is_attribute_.push_back(is_read_from_module(value->node()) ? 1 : 0);
    auto* input = subgraph_->addInput()->setType(value->type());
    input->copyMetadata(value);
    return inner_[value] = input;
  }

  // Inputs that only views have read which are now made outside.
  void remove_unused_inputs() {
    for (size_t i = subgraph_->inputs().size(); i-- > 0;) {
      if (subgraph_->inputs()[i]->hasUses())
        continue;
      subgraph_->eraseInput(i);
      region_->removeInput(i);
      is_attribute_.erase(is_attribute_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  Node* region_;
  std::shared_ptr<Graph> subgraph_;
  std::unordered_map<Value*, Value*> inner_;  // by value outside of the subgraph
  std::vector<int64_t> is_attribute_;         // per input
};

class BlockFormer {
 public:
  BlockFormer(Block* block, const RegionFacts& facts, Regions& regions)
      : block_(block),
        graph_(*block->owningGraph()),
        regions_(regions),
        facts_(facts),
        checker_(block, facts, in_region_) {}

  void run() {
    std::vector<Node*> nodes(block_->nodes().begin(), block_->nodes().end());
    for (auto* node : nodes) {
      if (node->kind() == prim::Constant || node->kind() == symbols::kDifferentiableGraph)
        continue;
      place(node);
    }
    close(block_->return_node());
  }

 private:
  // Adds the node to the present region, moves it before or after that, or ends the region with it.
  void place(Node* node) {
    if (makes_gradient_target_) {
      pending_break_ = RegionBreak{qualified_operator_name(region_.back()),
                                   "the method asks for its gradient", location_of(region_.back())};
      close(node);
    }
    auto eligibility = checker_.check(node);
    if (eligibility.place == Place::kRegion && reads_any(node, after_))
      close(node);
    switch (eligibility.place) {
      case Place::kRegion:
        region_.push_back(node);
        in_region_.insert(node);
        makes_gradient_target_ = std::any_of(
            node->outputs().begin(), node->outputs().end(),
            [&](const Value* output) { return facts_.gradient_targets.count(output) != 0; });
        return;
      case Place::kOutside:
        if (reads_any(node, in_region_) || reads_any(node, after_)) {
          after_.insert(node);
          after_order_.push_back(node);
        } else if (!region_.empty()) {
          // It reads nothing of the region, so it can stand before it.
          node->moveBefore(region_.front());
        }
        return;
      case Place::kBreak:
        if (!region_.empty()) {
          pending_break_ =
              RegionBreak{qualified_operator_name(node), eligibility.reason, location_of(node)};
        }
        close(node);
        return;
    }
  }

  static bool reads_any(Node* node, const std::unordered_set<Node*>& producers) {
    if (producers.empty())
      return false;
    for (auto* input : node->inputs()) {
      if (producers.count(input->node()) != 0)
        return true;
    }
    for (auto* block : node->blocks()) {
      for (auto* inner : block->nodes()) {
        if (reads_any(inner, producers))
          return true;
      }
      if (reads_any(block->return_node(), producers))
        return true;
    }
    return false;
  }

  // ---- closing a region ----

  // Ends the present region, if any, before the node `cut`.
  void close(Node* cut) {
    const bool has_tensors = std::any_of(region_.begin(), region_.end(), [](Node* node) {
      return std::any_of(node->outputs().begin(), node->outputs().end(),
                         [](Value* v) { return contains_tensor(*v->type()); });
    });
    if (has_tensors && emit(cut)) {
      if (pending_last_break_)
        regions_.breaks.push_back(*pending_last_break_);
      pending_last_break_.reset();
      has_region_ = true;
    }
    if (pending_break_ && has_region_)
      pending_last_break_ = std::move(pending_break_);
    pending_break_.reset();
    region_.clear();
    in_region_.clear();
    makes_gradient_target_ = false;
    after_.clear();
    after_order_.clear();
  }

  bool is_used_outside(Value* value) const {
    for (const auto& use : value->uses()) {
      Node* user = use.user;
      while (user->owningBlock() != block_ && user->owningBlock()->owningNode() != nullptr)
        user = user->owningBlock()->owningNode();
      if (in_region_.count(user) == 0)
        return true;
    }
    return false;
  }

  void replace_outside_uses(Value* value, Value* replacement) const {
    // The loop changes the uses.  NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
    const std::vector<torch::jit::Use> uses(value->uses());
    for (const auto& use : uses) {
      Node* user = use.user;
      while (user->owningBlock() != block_ && user->owningBlock()->owningNode() != nullptr)
        user = user->owningBlock()->owningNode();
      if (in_region_.count(user) == 0)
        use.user->replaceInput(use.offset, replacement);
    }
  }

  // Returns whether an operator of the region computes with the value or with a view of it.
  bool is_computed_with_inside(const Value* value) const {
    return std::any_of(value->uses().begin(), value->uses().end(), [&](const torch::jit::Use& use) {
      const auto outputs = use.user->outputs();
      return in_region_.count(use.user) != 0 &&
             std::any_of(outputs.begin(), outputs.end(), [&](const Value* output) {
               return contains_tensor(*output->type()) &&
                      (!can_stand_after(use.user) || is_computed_with_inside(output));
             });
    });
  }

  // Returns whether operators after the region compute with the value or with views of it, and
  // nothing else is done with them, so that nobody can tell whether it is a view.
  bool is_only_computed_with_outside(const Value* value) const {
    return std::all_of(value->uses().begin(), value->uses().end(), [&](const torch::jit::Use& use) {
      const auto* user = use.user;
      if (in_region_.count(use.user) != 0)
        return true;
      if (user->owningBlock() != block_ || mutates_an_argument(user) || asks_autograd(user) ||
          runs_autograd(user))
        return false;
      if (can_stand_after(user)) {
        const auto outputs = user->outputs();
        return std::all_of(outputs.begin(), outputs.end(), [&](const Value* output) {
          return is_only_computed_with_outside(output);
        });
      }
      return user->blocks().empty() && user->maybeOperator() != nullptr;
    });
  }

  // Returns whether the results of a view of the region's own memory leave the region as they are.
  // Both the region and what comes after it add to their gradients then, which eager adds one by
  // one before they pass through the view.
  bool leaves_as_it_is(Node* node) const {
    const auto outputs = node->outputs();
    return std::all_of(outputs.begin(), outputs.end(),
                       [&](Value* output) {
                         auto* base = memory_base(output);
                         return output->type()->kind() == c10::TypeKind::TensorType &&
                                in_region_.count(base->node()) != 0 && makes_new_tensor(base) &&
                                !facts_.aliases.hasWriters(output) &&
                                is_only_computed_with_outside(output);
                       }) &&
           std::any_of(outputs.begin(), outputs.end(), [&](Value* output) {
             return is_used_outside(output) && is_computed_with_inside(output);
           });
  }

  // Returns whether the node detaches what the region makes, and nothing after the region reads
  // that itself or views of it. The region returns the detached tensor then: no gradient comes for
  // it.
  bool detaches_only_result(Node* node) const {
    if (node->kind() != c10::aten::detach || facts_.aliases.hasWriters(node->output()))
      return false;
    auto* base = memory_base(node->output());
    return in_region_.count(base->node()) != 0 && makes_new_tensor(base) &&
           std::all_of(region_.begin(), region_.end(), [&](Node* other) {
             const auto outputs = other->outputs();
             return other == node ||
                    std::all_of(outputs.begin(), outputs.end(), [&](Value* output) {
                      return !is_used_outside(output) || memory_base(output) != base;
                    });
           });
  }

  // Returns whether the node can stand before the region, with what it reads of that: other views,
  // and numbers. Appends what has to stand there to `nodes`, in order.
  bool can_stand_before(Node* node, std::vector<Node*>& nodes) const {
    if (in_region_.count(node) == 0 || std::find(nodes.begin(), nodes.end(), node) != nodes.end())
      return true;
    const auto outputs = node->outputs();
    const bool makes_tensors = std::any_of(outputs.begin(), outputs.end(), [](const Value* output) {
      return contains_tensor(*output->type());
    });
    if (!node->blocks().empty() || mutates_an_argument(node) ||
        (makes_tensors && !can_stand_after(node)))
      return false;
    const auto inputs = node->inputs();
    if (!std::all_of(inputs.begin(), inputs.end(),
                     [&](Value* input) { return can_stand_before(input->node(), nodes); }))
      return false;
    nodes.push_back(node);
    return true;
  }

  // Makes views of what the region is given before it where both the region computes with a view
  // and something outside sees it. Eager adds the gradients of both before they pass through it.
  void make_shared_views_before() const {
    const auto asks = [](const Node* node) { return node->kind() == symbols::kGradient; };
    if (std::any_of(region_.begin(), region_.end(), asks))
      return;
    std::unordered_map<Value*, Value*> before;
    // Returns what a copy reads in place of a value. A constant may stand behind the first node.
    const auto replacement_of = [&](Value* value) {
      auto* maker = value->node();
      if (maker->kind() == prim::Constant && region_.front()->isBefore(maker))
        maker->moveBefore(region_.front());
      const auto found = before.find(value);
      return found == before.end() ? value : found->second;
    };
    for (auto* node : region_) {
      const auto outputs = node->outputs();
      std::vector<Node*> nodes;
      if (!can_stand_after(node) || outputs.size() != 1 ||
          outputs[0]->type()->kind() != c10::TypeKind::TensorType || !is_used_outside(outputs[0]) ||
          !is_computed_with_inside(outputs[0]) || !can_stand_before(node, nodes))
        continue;
      for (auto* each : nodes) {
        if (each->outputs().empty() || before.count(each->output(0)) != 0)
          continue;
        auto* copy = graph_.createClone(each, replacement_of)->insertBefore(region_.front());
        for (size_t i = 0; i < each->outputs().size(); ++i) {
          copy->output(i)->copyMetadata(each->output(i));
          before.emplace(each->output(i), copy->output(i));
        }
      }
      node->output()->replaceAllUsesWith(before.at(node->output()));
    }
  }

  // Moves the nodes of the region into a new node before `cut`. Returns false if nothing outside
  // reads what they make: then there is no region.
  bool emit(Node* cut) {
    for (auto* node : after_order_)
      node->moveBefore(cut);
    make_shared_views_before();
    auto* first_after = copy_views_seen_outside(after_order_.empty() ? cut : after_order_.front());
    auto* region = graph_.create(symbols::kDifferentiableGraph, /*num_outputs=*/0);
    region->insertBefore(first_after);
    region->setSourceRange(region_.front()->sourceRange());

    SubgraphBuilder builder(region);
    for (auto* node : region_)
      builder.add(node);
    for (auto* node : region_) {
      for (auto* output : node->outputs()) {
        if (is_used_outside(output))
          replace_outside_uses(output, builder.add_output(output));
      }
    }
    for (auto it = region_.rbegin(); it != region_.rend(); ++it)
      (*it)->destroy();
    if (!builder.finish())
      return false;
    regions_.nodes.push_back(region);
    return true;
  }

  // Makes the views and lists that are seen outside of the region again after it, from the values
  // that they are made of, unless they may leave it as they are. Returns the first of these copies,
  // or `first_after` if there are none; copies are inserted before that.
  Node* copy_views_seen_outside(Node* first_after) const {
    for (auto it = region_.rbegin(); it != region_.rend(); ++it) {
      Node* node = *it;
      if (!can_stand_after(node) || takes_from_list_made_in(in_region_, node) ||
          leaves_as_it_is(node))
        continue;
      const bool seen = std::any_of(node->outputs().begin(), node->outputs().end(),
                                    [&](Value* v) { return is_used_outside(v); });
      if (!seen || detaches_only_result(node))
        continue;
      auto* copy = graph_.createClone(node, [](Value* v) { return v; });
      copy->insertBefore(first_after);
      for (size_t i = 0; i < node->outputs().size(); ++i) {
        replace_outside_uses(node->output(i), copy->output(i));
        if (node->output(i)->hasDebugName())
          copy->output(i)->setDebugName(node->output(i)->debugNameBase());
      }
      first_after = copy;
    }
    return first_after;
  }

  Block* block_;
  Graph& graph_;
  Regions& regions_;
  const RegionFacts& facts_;
  EligibilityChecker checker_;
  std::vector<Node*> region_;
  std::unordered_set<Node*> in_region_;
  bool makes_gradient_target_ = false;  // the last node of the region
  std::unordered_set<Node*> after_;
  std::vector<Node*> after_order_;
  bool has_region_ = false;                        // in this block
  std::optional<RegionBreak> pending_break_;       // ends the region that is being closed
  std::optional<RegionBreak> pending_last_break_;  // reported once another region follows it
};

// Keeps nodes out of regions that make a list of tensors which would have to leave the region. Only
// lists that can be made after it may do so.
void exclude_list_makers(Block* block, std::unordered_set<const Node*>& excluded) {
  for (auto* node : block->nodes()) {
    for (auto* inner : node->blocks())
      exclude_list_makers(inner, excluded);
    if (can_stand_after(node) || !node->blocks().empty())
      continue;
    for (auto* output : node->outputs()) {
      if (!is_list_with_tensors(*output->type()))
        continue;
      for (const auto& use : output->uses()) {
        if (use.user->kind() != prim::ListUnpack && use.user->kind() != c10::aten::__getitem__ &&
            use.user->kind() != c10::aten::cat && use.user->kind() != c10::aten::stack &&
            use.user->kind() != c10::aten::len) {
          excluded.insert(node);
        }
      }
    }
  }
}

// Finds values whose gradient the method itself asks for: inputs of autograd.grad(), and values
// that retain_grad() is called on.
void find_gradient_targets(Graph& graph, std::unordered_set<const Value*>& gradient_targets) {
  const auto add = [&](const Value* value) {
    while (is_cast(value->node())) {
      gradient_targets.insert(value);
      value = value->node()->input(0);
    }
    gradient_targets.insert(value);
  };
  for_each_node(graph.block(), [&](const Node* node) {
    if (node->kind() == c10::aten::grad && node->input(1)->node()->kind() == prim::ListConstruct) {
      for (const auto* value : node->input(1)->node()->inputs())
        add(value);
    } else if (node->kind() == symbols::kGradient) {
      const auto request = GradientRequest::of(*node);
      for (int64_t i = 0; i < request.num_targets; ++i)
        add(node->input(request.num_outputs + i));
    } else if (node->kind() == c10::Symbol::fromQualString("aten::retain_grad")) {
      add(node->input(0));
    }
  });
}

void form_in_block(Block* block, const RegionFacts& facts, Regions& regions) {
  std::vector<Block*> nested;
  BlockFormer(block, facts, regions).run();
  for (auto* node : block->nodes()) {
    for (auto* inner : node->blocks())
      nested.push_back(inner);
  }
  for (auto* inner : nested)
    form_in_block(inner, facts, regions);
}

// What regions may have in them besides operators.
struct Contents {
  bool autocast_blocks = false;
  bool gradients = false;
};

Regions form(const std::shared_ptr<Graph>& graph, Contents contents) {
  Regions regions;
  const AliasDb aliases(graph);
  run_pass(Pass::kMarkClobberedReads, graph, [&] { mark_clobbered_reads(*graph); });
  RegionFacts facts{aliases,           {}, set_attributes(*graph), {}, contents.autocast_blocks,
                    contents.gradients};
  if (!contents.gradients)
    find_gradient_targets(*graph, facts.gradient_targets);
  exclude_list_makers(graph->block(), facts.excluded);
  form_in_block(graph->block(), facts, regions);
  restore_in_place(*graph);
  return regions;
}

// Returns whether each block of autocast that begins among the nodes ends among them.
bool has_whole_autocast_blocks(Graph& graph) {
  int depth = 0;
  bool whole = true;
  for (const auto* node : graph.nodes()) {
    depth += node->kind() == symbols::kEnterAutocast ? 1 : 0;
    depth -= node->kind() == symbols::kExitAutocast ? 1 : 0;
    whole = whole && depth >= 0;
  }
  return whole && depth == 0;
}

// Returns whether no block of autocast is in control flow, and none is divided between regions.
bool are_autocast_blocks_in_regions(Graph& graph, const Regions& regions) {
  bool outside = false;
  for_each_node(graph.block(),
                [&](const Node* node) { outside = outside || bounds_autocast_block(node); });
  return !outside && std::all_of(regions.nodes.begin(), regions.nodes.end(), [](Node* region) {
    return has_whole_autocast_blocks(*region->g(c10::attr::Subgraph));
  });
}

bool runs_gradients(Graph& graph) {
  bool runs = false;
  for_each_node(graph.block(),
                [&](const Node* node) { runs = runs || node->kind() == symbols::kGradient; });
  return runs;
}

// Returns whether each gradient that the method asks for is taken within one region.
bool are_gradients_in_regions(Graph& graph, const Regions& regions) {
  return !runs_gradients(graph) &&
         std::all_of(regions.nodes.begin(), regions.nodes.end(), has_whole_gradients);
}

}  // namespace

Regions form_regions(const std::shared_ptr<Graph>& graph) {
  return form(graph, {});
}

Regions form_regions_of_path(std::shared_ptr<Graph>& graph) {
  const bool has_autocast = depends_on_autocast(graph->block());
  const bool has_gradients = runs_gradients(*graph);
  for (const Contents contents : {Contents{has_autocast, has_gradients},
                                  Contents{has_autocast, false}, Contents{false, has_gradients}}) {
    if (!contents.autocast_blocks && !contents.gradients)
      break;
    auto copy = graph->copy();
    auto regions = form(copy, contents);
    if ((contents.autocast_blocks && !are_autocast_blocks_in_regions(*copy, regions)) ||
        (contents.gradients && !are_gradients_in_regions(*copy, regions)))
      continue;
    graph = std::move(copy);
    return regions;
  }
  return form_regions(graph);
}

}  // namespace aten_recompute
