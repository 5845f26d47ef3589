#include "passes/frontend/path/record_path.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/log.h"
#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "passes/frontend/path/caller_writes.h"
#include "passes/frontend/path/container_nodes.h"
#include "passes/frontend/path/given_values.h"
#include "passes/frontend/path/keep_branch.h"
#include "passes/frontend/path/lifetimes.h"
#include "passes/frontend/path/meta_run.h"
#include "passes/frontend/path/path_attributes.h"
#include "passes/frontend/path/path_builder.h"
#include "passes/frontend/path/path_containers.h"
#include "passes/frontend/path/path_gradients.h"
#include "passes/frontend/path/path_operators.h"
#include "passes/frontend/path/path_values.h"
#include "passes/frontend/rewrites/autocast_blocks.h"
#include "passes/frontend/rewrites/inline_modules.h"
#include "passes/frontend/rewrites/not_recordable.h"
#include "passes/frontend/rewrites/number_constants.h"
#include "runtime/autocast.h"
#include "runtime/random_state.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;
namespace prim = c10::prim;

using Object = c10::intrusive_ptr<c10::ivalue::Object>;

// A longer path takes too long to plan.
constexpr size_t kMaxNodes = 20000;

// Interprets the method on the inputs of a call: decides which node comes next, and passes it on to
// what runs nodes of its kind.
class PathRecorder {
 public:
  PathRecorder(const Object& self, const std::vector<IValue>& inputs, bool grad_mode,
               const PathOptions& options)
      : self_(self),
        grad_mode_(grad_mode),
        kept_(options.kept),
        meta_run_(options.memory_bytes ? std::make_unique<MetaRun>(*options.memory_bytes)
                                       : nullptr),
        attributes_(self, builder_, writes_, options.carried, options.changing, meta_run_.get()),
        gradients_(builder_, values_, options.output_requires_grad) {
    result_.graph = builder_.graph();
    result_.default_dtype = c10::typeMetaToScalarType(at::get_default_dtype());
    for (const auto& input : inputs)
      result_.inputs.push_back(Structure::of(input));
  }

  RecordedPath record(const std::shared_ptr<Graph>& graph, const std::vector<IValue>& inputs) {
    if (share_containers(inputs))
      throw NotRecordable("two of its inputs share a list, a dict or an object");
    prepare(*graph);
    // What a branch is cast to, data would decide.
    may_keep_branches_ = !autocast_enabled() && !depends_on_autocast(graph->block());
    if (meta_run_ != nullptr && !may_keep_branches_)
      throw NotRecordable("autocast does not cast tensors without memory");
    for_each_node(graph->block(), [&](Node* node) {
      if (node->kind() == prim::If)
        decisions_.emplace(node, static_cast<int64_t>(decisions_.size()));
    });
    auto* self_symbol = builder_.graph()->addInput()->copyMetadata(graph->inputs()[0]);
    self_symbol->setType(graph->inputs()[0]->type());
    Item self;
    self.value = self_;
    self.symbol = self_symbol;
    values_.set(graph->inputs()[0], self);
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto* input = graph->inputs()[i + 1];
      auto* symbol = builder_.graph()->addInput()->copyMetadata(input)->setType(input->type());
      const auto value = meta_run_ != nullptr ? meta_run_->of(inputs[i]) : inputs[i];
      writes_.add_given(value);
      auto item = make_item(value, symbol, input->type(), /*is_callers=*/true);
      if (inputs[i].isNone())
        item.symbol = nullptr;  // its structure says so
      values_.set(input, item);
    }
    run(graph->block());
    finish(*graph);
    return std::move(result_);
  }

 private:
  // To be called before the graph is run: for that of the method, and of each that it calls.
  void prepare(Graph& graph) {
    lifetimes_.add(graph.block());
    attributes_.add_set_names(graph);
  }

  // ---- running ----

  void run(Block* block) {
    for (auto* node : block->nodes()) {
      if (builder_.num_nodes() > kMaxNodes)
        throw NotRecordable("its path has more than " + std::to_string(kMaxNodes) + " operators");
      builder_.set_origin(node);
      run(node);
      for (auto* value : lifetimes_.dead_after(node))
        values_.forget(value);
    }
  }

  void run(Node* node) {
    switch (node->kind()) {
      case prim::Constant:
        return run_constant(node);
      case prim::If:
        return run_if(node);
      case prim::Loop:
        return run_loop(node);
      case prim::GetAttr:
        return run_get_attribute(node);
      case prim::SetAttr:
        return attributes_.set(node, values_.get(node->input(0)), values_.get(node->input(1)));
      case prim::CallMethod:
        return run_call(node);
      case prim::ModuleContainerIndex:
        return run_module_index(node);
      case prim::isinstance:
        return run_isinstance(node);
      case aten::_unwrap_optional:
        if (is_or_may_become_none(values_.get(node->input(0))))
          return run_other(node);
        [[fallthrough]];
      case prim::unchecked_cast:
      case prim::unchecked_unwrap_optional:
        return values_.set(node->output(), values_.get(node->input(0)));
      case prim::Uninitialized:
        return values_.set(node->output(), Item());
      case prim::Enter:
      case prim::Exit:
        return run_grad_block(node);
      case prim::RaiseException:
        throw CallRaises();
      case aten::__is__:
        return run_identity(node, true);
      case aten::__isnot__:
        return run_identity(node, false);
      default:
        if (!run_container_node(node, values_, builder_))
          run_other(node);
    }
  }

  static bool is_or_may_become_none(const Item& item) {
    return (item.container == nullptr && item.value.isNone()) || may_become_none(item);
  }

  void run_constant(Node* node) {
    auto* output = node->output();
    const auto value = torch::jit::toIValue(output);
    if (!value)
      return;  // a function, which has been inlined
    values_.set(output, constant_item(*value, output->type()));
  }

  // Returns what the condition of a loop or an `if` is, and makes the path depend on it.
  bool decide(Node* node, Value* condition) {
    auto& item = values_.get(condition);
    const auto found = decisions_.find(node);
    builder_.set_decision(found == decisions_.end() ? -1 : found->second);
    builder_.require(item);
    builder_.set_decision(-1);
    return item.value.toBool();
  }

  void run_if(Node* node) {
    if (operators_.keep_check(node))
      return;
    if (is_kept_branch(node) && run_branch(node))
      return;
    auto* block = node->blocks()[decide(node, node->input(0)) ? 0 : 1];
    run(block);
    for (size_t i = 0; i < node->outputs().size(); ++i)
      values_.set(node->output(i), values_.get(block->outputs()[i]));
    forget_outputs(block);
  }

  // To be called when the outputs of a block have been handed on, so that no value of the block
  // keeps memory. They may be values from outside of it.
  void forget_outputs(Block* block) {
    for (auto* output : block->outputs()) {
      if (output->node()->owningBlock() == block)
        values_.forget(output);
    }
  }

  bool is_kept_branch(Node* node) {
    const auto found = decisions_.find(node);
    return may_keep_branches_ && num_no_grad_ == 0 && found != decisions_.end() &&
           kept_.count(found->second) != 0 && !is_fully_constant(values_.get(node->input(0)));
  }

  // Makes the node one operator. Returns false if that is not possible.
  bool run_branch(Node* node) {
    if (aliases_ == nullptr)
      aliases_ = std::make_unique<torch::jit::AliasDb>(node->owningGraph()->shared_from_this());
    if (is_result_changed(node, *aliases_))
      return false;
    const BranchValues values{[&](Value* value) -> Item& { return values_.get(value); },
                              [&](Item& object, Node* read) -> Item& {
                                return attributes_.get(object, read->s(c10::attr::name),
                                                       read->output()->type());
                              }};
    KeptBranch branch;
    try {
      branch = keep_branch(node, values);
    } catch (const NotRecordable& error) {
      log_info(LogTopic::kPaths,
               std::string("an if is decided when a path is recorded: ") + error.what());
      return false;
    }
    std::vector<Value*> symbols;
    for (size_t i = 0; i < branch.operands.size(); ++i)
      symbols.push_back(builder_.symbol_of(branch.operands[i], branch.types[i]));
    auto* copy = builder_.add_branch(branch.graph, symbols, node->outputs());
    const auto results = operators_.execute(copy, branch.operands);
    for (size_t i = 0; i < results.size(); ++i) {
      auto* output = copy->output(i);
      auto item = make_item(results[i], output, output->type(), false);
      mark_undetermined(item);  // that of the other block may have another rank
      values_.set(node->output(i), std::move(item));
    }
    return true;
  }

  // A node Loop(count, condition, carried...) has a block with the inputs (i, carried...) and the
  // outputs (condition, carried...).
  void run_loop(Node* node) {
    auto* body = node->blocks()[0];
    auto count = values_.get(node->input(0));
    std::vector<Item> carried;
    for (size_t i = 2; i < node->inputs().size(); ++i)
      carried.push_back(values_.get(node->input(i)));
    bool goes_on = decide(node, node->input(1));
    auto* before_loop = builder_.add_constant(int64_t{0})->node();  // nothing removes it
    int64_t done = 0;
    for (; goes_on && done < count.value.toInt(); ++done) {
      values_.set(body->inputs()[0], constant_item(done, c10::IntType::get()));
      for (size_t i = 0; i < carried.size(); ++i)
        values_.set(body->inputs()[i + 1], std::move(carried[i]));
      run(body);
      goes_on = decide(node, body->outputs()[0]);
      for (size_t i = 0; i < carried.size(); ++i)
        carried[i] = values_.get(body->outputs()[i + 1]);
      forget_outputs(body);
    }
    auto* last_of_loop = builder_.last_node();
    builder_.set_origin(node);
    require_count(count, done, goes_on);
    builder_.move_back(last_of_loop, before_loop);
    for (size_t i = 0; i < carried.size(); ++i)
      values_.set(node->output(i), carried[i]);
  }

  // Makes the path depend on a loop ending after `done` iterations: because the count was reached,
  // or earlier, because its condition was false. A shorter call has to leave the path before it
  // takes an element that it does not have, so the caller moves the check in front of the loop.
  void require_count(Item& count, int64_t done, bool was_count_reached) {
    if (count.symbol == nullptr)
      return;
    if (was_count_reached && done > 0)
      return builder_.require(count);
    auto* bound = builder_.add_constant(done);
    auto* holds = builder_.add(was_count_reached ? aten::le : aten::ge, {count.symbol, bound},
                               c10::BoolType::get());
    builder_.check(holds, true);
  }

  void run_call(Node* node) {
    const auto& object = values_.get(node->input(0));
    if (!object.value.isObject())
      throw NotRecordable("it calls a method of a " + object.value.type()->str());
    auto* function = torch::jit::tryToGraphFunction(
        object.value.toObject()->type()->getMethod(node->s(c10::attr::name)));
    if (function == nullptr)
      throw NotRecordable("it calls " + node->s(c10::attr::name) + ", which is not scripted");
    auto callee = function->graph()->copy();
    inline_modules(callee);
    number_constants(*callee);
    autocast_blocks(*callee);
    callees_.push_back(callee);
    prepare(*callee);
    for (size_t i = 0; i < node->inputs().size(); ++i)
      values_.set(callee->inputs()[i], values_.get(node->input(i)));
    run(callee->block());
    values_.set(node->output(), values_.get(callee->outputs()[0]));
    forget_outputs(callee->block());
  }

  // ---- attributes ----

  void run_get_attribute(Node* node) {
    auto& object = values_.get(node->input(0));
    values_.set(node->output(),
                attributes_.get(object, node->s(c10::attr::name), node->output()->type()));
  }

  // `self.heads[key]`, by a key that is not known when the method is scripted, is the submodule of
  // that name. The path depends on the key, as it does on all that chooses an object.
  void run_module_index(Node* node) {
    auto& object = values_.get(node->input(0));
    auto& key = values_.get(node->input(1));
    builder_.require(key);
    const auto name =
        key.value.isInt() ? std::to_string(key.value.toInt()) : key.value.toStringRef();
    if (!object.value.isObject() || !object.value.toObject()->type()->hasAttribute(name))
      throw CallRaises();
    values_.set(node->output(), attributes_.get(object, name, node->output()->type()));
  }

  // ---- operators ----

  void run_isinstance(Node* node) {
    const auto& item = values_.get(node->input(0));
    const auto type = item.container != nullptr ? item.container->type : item.value.type();
    const auto& candidates = node->tys(c10::attr::types);
    const bool is_one =
        std::any_of(candidates.begin(), candidates.end(),
                    [&](const auto& candidate) { return type->isSubtypeOf(*candidate); });
    values_.set(node->output(), constant_item(is_one, c10::BoolType::get()));
  }

  void run_identity(Node* node, bool when_same) {
    const auto& a = values_.get(node->input(0));
    const auto& b = values_.get(node->input(1));
    const auto is_none = [](const Item& item) { return item.is_constant() && item.value.isNone(); };
    const auto answer = [&](bool same) {
      values_.set(node->output(), constant_item(same == when_same, c10::BoolType::get()));
    };
    if (is_none(a) && is_none(b))
      return answer(true);
    if (is_none(a) ? !may_become_none(b) : is_none(b) && !may_become_none(a))
      return answer(false);
    if (a.container != nullptr || b.container != nullptr)
      return answer(a.container == b.container);
    if (a.symbol != nullptr && a.symbol == b.symbol)
      return answer(true);
    run_other(node);
  }

  void run_other(Node* node) {
    static const auto is_grad_enabled = c10::Symbol::fromQualString("aten::is_grad_enabled");
    static const auto set_grad_enabled = c10::Symbol::fromQualString("aten::set_grad_enabled");
    if (node->kind() == is_grad_enabled)
      return values_.set(node->output(), constant_item(mode_now(), c10::BoolType::get()));
    if (node->kind() == set_grad_enabled && sets_mode_of_now(node))
      return;
    if (bounds_autocast_block(node))
      return run_autocast_bound(node);
    if (asks_autocast(node))
      return run_autocast_query(node);
    if (node->kind() == aten::requires_grad_ &&
        (requires_grad_already(node) ||
         operators_.run_requires_grad(node, [this] { return mode_now(); })))
      return;
    if (node->kind() == prim::requires_grad &&
        (operators_.ask_requires_grad(node) || ask_requires_grad_of_computed(node)))
      return;
    if (node->kind() == aten::grad && num_no_grad_ == 0)
      return gradients_.run_grad(node, mode_now());
    if (asks_autograd(node) || runs_autograd(node) || has_fact(node, Fact::kChangesTensorItself))
      throw NotRecordable("it has " + qualified_operator_name(node) + " in it");
    if (node->kind() == aten::dict && node->inputs().empty())  // dict() or OrderedDict()
      return values_.set(node->output(),
                         make_container(Container::Kind::kDict, node->output()->type()));
    std::vector<Item> operands;
    for (auto* input : node->inputs())
      operands.push_back(values_.get(input));
    if (!operands.empty() && operands[0].container != nullptr) {
      std::vector<Item> results;
      if (run_on_container(node, operands, results, builder_)) {
        for (size_t i = 0; i < results.size(); ++i)
          values_.set(node->output(i), results[i]);
        if (operands[0].container->is_callers && mutates_an_argument(node))
          writes_.add_change(node, operands);
        return;
      }
      if (mutates_an_argument(node))
        throw NotRecordable("it changes a container by " + qualified_operator_name(node));
    }
    operators_.run(node, operands);
  }

  // Returns whether gradients are enabled where the method is now, on which the path depends then.
  bool mode_now() {
    if (num_no_grad_ != 0)
      return false;
    result_.grad_mode = grad_mode_;
    return grad_mode_;
  }

  // Returns whether set_grad_enabled() changes nothing.
  bool sets_mode_of_now(Node* node) {
    auto& mode = values_.get(node->input(0));
    if (mode.value.toBool() != mode_now())
      return false;
    builder_.require(mode);
    return true;
  }

  // Returns whether requires_grad_(True) has nothing to do.
  bool requires_grad_already(Node* node) {
    auto& tensor = values_.get(node->input(0));
    auto& flag = values_.get(node->input(1));
    if (tensor.symbol == nullptr || !tensor.is_tensor() || num_no_grad_ != 0 ||
        !flag.value.toBool())
      return false;
    auto* symbol = builder_.symbol_of(tensor, c10::TensorType::get());
    if (is_given(symbol) || builder_.is_kept_inside(symbol) ||
        !gradients_.requires_grad_already(symbol, grad_mode_))
      return false;
    builder_.require(flag);
    result_.grad_mode = grad_mode_;
    values_.set(node->output(), tensor);
    return true;
  }

  // Answers whether a tensor that the path computed requires a gradient, where that is known.
  bool ask_requires_grad_of_computed(Node* node) {
    const auto& tensor = values_.get(node->input(0));
    // Under no_grad(), a view of a tensor that requires a gradient does so, and is detached here.
    if (tensor.symbol == nullptr || !tensor.is_tensor() || num_no_grad_ != 0 ||
        builder_.is_kept_inside(tensor.symbol))
      return false;
    const auto answer = gradients_.requires_grad(tensor.symbol, grad_mode_);
    if (!answer)
      return false;
    result_.grad_mode = grad_mode_;
    values_.set(node->output(), constant_item(*answer, c10::BoolType::get()));
    return true;
  }

  // Begins or ends `with torch.no_grad():`.
  void run_grad_block(Node* node) {
    const auto& object = values_.get(node->input(0));
    static const c10::QualifiedName no_grad("__torch__.torch.autograd.grad_mode.no_grad");
    const auto type =
        object.container == nullptr ? nullptr : object.container->type->cast<c10::ClassType>();
    if (type == nullptr || !type->name() || !(*type->name() == no_grad))
      throw NotRecordable("it has " + qualified_operator_name(node) + " in it");
    num_no_grad_ += node->kind() == prim::Enter ? 1 : -1;
    operators_.set_without_grad(num_no_grad_ != 0);
    values_.set(node->output(), constant_item(IValue(), c10::NoneType::get()));
  }

  // Operators are recorded under the autocast of their block. The path depends on its settings,
  // and those around it are part of what the method is compiled for.
  void run_autocast_bound(Node* node) {
    if (meta_run_ != nullptr)
      throw NotRecordable("autocast does not cast tensors without memory");
    result_.depends_on_autocast = true;
    std::vector<Item> operands;
    for (auto* input : node->inputs()) {
      auto& item = values_.get(input);
      builder_.require(item);
      operands.push_back(constant_item(item.value, input->type()));
    }
    operators_.execute(node, operands);
    std::vector<Value*> symbols;
    for (size_t i = 0; i < operands.size(); ++i)
      symbols.push_back(builder_.symbol_of(operands[i], node->input(i)->type()));
    builder_.add_copy(node, symbols);
  }

  void run_autocast_query(Node* node) {
    result_.depends_on_autocast = true;
    std::vector<Item> operands;
    for (auto* input : node->inputs()) {
      builder_.require(values_.get(input));
      operands.push_back(values_.get(input));
    }
    const auto results = operators_.execute(node, operands);
    values_.set(node->output(), constant_item(results[0], node->output()->type()));
  }

  // ---- the end ----

  void finish(Graph& graph) {
    attributes_.write_back();
    writes_.write_changes(builder_);
    builder_.set_origin(nullptr);
    for (auto* output : graph.outputs()) {
      auto* symbol = builder_.symbol_of(values_.get(output), output->type());
      builder_.graph()->registerOutput(symbol);
    }
    gradients_.hand_out_leaves();
    result_.attributes = attributes_.required();
    result_.apart = attributes_.apart();
    result_.has_changes = writes_.has_changes();
    result_.changes_containers = writes_.changes_containers();
  }

  Object self_;
  bool grad_mode_;  // of the call; it is off while a path is recorded
  const std::set<int64_t>& kept_;
  bool may_keep_branches_ = true;
  int num_no_grad_ = 0;                           // blocks that are open
  std::unordered_map<Node*, int64_t> decisions_;  // places of `if`s
  std::unique_ptr<torch::jit::AliasDb> aliases_;  // of the method, made when it is needed
  std::unique_ptr<MetaRun> meta_run_;             // if operators run without memory
  RecordedPath result_;
  Lifetimes lifetimes_;
  PathBuilder builder_;
  PathValues values_;
  CallerWrites writes_;
  PathAttributes attributes_;
  PathGradients gradients_;
  PathOperators operators_{builder_, values_, attributes_, writes_, gradients_, meta_run_.get()};
  std::vector<std::shared_ptr<Graph>> callees_;  // others refer to their nodes
};

}  // namespace

RecordedPath record_path(const std::shared_ptr<Graph>& graph, const Object& self,
                         const std::vector<IValue>& inputs, const PathOptions& options) {
  const bool grad_mode = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  const RestoreGenerators restore(inputs);
  const CloseAutocastBlocks close_blocks;
  return PathRecorder(self, inputs, grad_mode, options).record(graph, inputs);
}

}  // namespace aten_recompute
