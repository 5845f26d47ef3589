#include "passes/frontend/path/record_path.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "common/log.h"
#include "ir/functionalize.h"
#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "passes/frontend/path/keep_branch.h"
#include "passes/frontend/path/path_builder.h"
#include "passes/frontend/path/path_containers.h"
#include "passes/frontend/rewrites/inline_modules.h"
#include "passes/frontend/rewrites/not_recordable.h"
#include "runtime/random_state.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;
namespace aten = c10::aten;
namespace prim = c10::prim;

using Object = c10::intrusive_ptr<c10::ivalue::Object>;

// A longer path takes too long to plan.
constexpr size_t kMaxNodes = 20000;

// Undoes writes to the caller's tensors.
class Writes {
 public:
  Writes() = default;
  Writes(const Writes&) = delete;
  Writes& operator=(const Writes&) = delete;
  ~Writes() {
    for (const auto& [storage, memory] : memory_)
      memory.bytes.copy_(memory.before);
    for (auto write = versions_.rbegin(); write != versions_.rend(); ++write)
      write->counter.set_version(write->version);
  }

  // Notes what the tensor's memory holds.
  void prepare(const at::Tensor& tensor) {
    const auto counter = tensor.unsafeGetTensorImpl()->version_counter();
    if (counter.enabled())
      versions_.push_back({counter, counter.current_version()});
    const auto& storage = tensor.storage();
    if (memory_.count(storage.unsafeGetStorageImpl()) != 0)
      return;
    const auto size = static_cast<int64_t>(storage.nbytes());
    auto bytes = at::empty({0}, tensor.options().dtype(at::kByte)).set_(storage, 0, {size}, {1});
    memory_[storage.unsafeGetStorageImpl()] = {bytes, bytes.clone()};
  }

 private:
  struct Memory {
    at::Tensor bytes;   // all of a storage
    at::Tensor before;  // a copy
  };
  struct Version {
    c10::VariableVersion counter;
    uint32_t version;
  };
  std::unordered_map<const void*, Memory> memory_;  // by storage
  std::vector<Version> versions_;
};

// Returns, for each node, the values that nothing reads after it.
class Lifetimes {
 public:
  void add(Block* block) {
    std::unordered_map<Value*, Node*> last;
    for (auto* node : block->nodes()) {
      for (auto* inner : node->blocks())
        add(inner);
      for (auto* value : free_values(node)) {
        if (value->node()->owningBlock() == block)
          last[value] = node;
      }
      for (auto* output : node->outputs())
        last[output] = node;
    }
    for (auto* output : block->outputs())
      last.erase(output);
    for (const auto& [value, node] : last)
      dead_[node].push_back(value);
  }

  const std::vector<Value*>& dead_after(Node* node) const {
    static const std::vector<Value*> none;
    const auto found = dead_.find(node);
    return found == dead_.end() ? none : found->second;
  }

 private:
  std::unordered_map<Node*, std::vector<Value*>> dead_;
};

// Returns whether the block has no effect but to raise or warn, and computes no tensors.
bool only_checks(Block* block) {
  bool checks = true;
  for_each_node(block, [&](Node* node) {
    const bool raises = node->kind() == prim::RaiseException || node->kind() == aten::warn;
    const bool reads_module = node->kind() == prim::GetAttr;
    const bool is_plain = node->kind() == prim::Constant || node->kind() == prim::If ||
                          (node->maybeOperator() != nullptr && !node->hasSideEffects() &&
                           !mutates_an_argument(node) && !asks_autograd(node));
    checks = checks && !reads_module && (raises || is_plain);
    for (auto* output : node->outputs())
      checks = checks && !contains_tensor(*output->type());
  });
  return checks;
}

class PathRecorder {
 public:
  PathRecorder(const Object& self, const std::vector<IValue>& inputs, bool grad_mode,
               const std::set<int64_t>& kept)
      : self_(self), grad_mode_(grad_mode), kept_(kept) {
    result_.graph = builder_.graph();
    result_.default_dtype = c10::typeMetaToScalarType(at::get_default_dtype());
    for (const auto& input : inputs)
      result_.inputs.push_back(Structure::of(input));
  }

  RecordedPath record(const std::shared_ptr<Graph>& graph, const std::vector<IValue>& inputs) {
    if (share_containers(inputs))
      throw NotRecordable("two of its inputs share a list, a dict or an object");
    prepare(*graph);
    for_each_node(graph->block(), [&](Node* node) {
      if (node->kind() == prim::If)
        decisions_.emplace(node, static_cast<int64_t>(decisions_.size()));
    });
    auto* self_symbol = builder_.graph()->addInput()->copyMetadata(graph->inputs()[0]);
    self_symbol->setType(graph->inputs()[0]->type());
    Item self;
    self.value = self_;
    self.symbol = self_symbol;
    paths_[self_.get()] = {};
    set(graph->inputs()[0], self);
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto* input = graph->inputs()[i + 1];
      auto* symbol = builder_.graph()->addInput()->copyMetadata(input)->setType(input->type());
      note_callers(inputs[i]);
      auto item = PathBuilder::item_of(inputs[i], symbol, input->type(), /*is_callers=*/true);
      if (inputs[i].isNone())
        item.symbol = nullptr;  // its structure says so
      set(input, item);
    }
    run(graph->block());
    finish(*graph);
    return std::move(result_);
  }

 private:
  struct Change {
    Node* node;
    std::vector<Item> operands;
  };

  void prepare(Graph& graph) {
    lifetimes_.add(graph.block());
    const auto names = set_attributes(graph);
    set_names_.insert(names.begin(), names.end());
  }

  // ---- values ----

  void set(Value* value, Item item) { items_[value] = std::move(item); }

  Item& get(Value* value) {
    const auto found = items_.find(value);
    if (found == items_.end())
      throw NotRecordable("a value is read that the path did not set");
    return found->second;
  }

  void note_callers(const IValue& value) {
    if (value.isTensor()) {
      if (has_memory(value.toTensor()))
        callers_memory_.insert(value.toTensor().storage().unsafeGetStorageImpl());
    } else if (value.isTuple()) {
      for (const auto& element : value.toTupleRef().elements())
        note_callers(element);
    } else if (value.isList()) {
      for (const auto& element : value.toListRef())
        note_callers(element);
    } else if (value.isGenericDict()) {
      for (const auto& entry : value.toGenericDict())
        note_callers(entry.value());
    }
  }

  // Makes the path depend on rank, dtype and device of all tensors that it was given so far: those
  // of everything that it computed follow from them.
  void require_types_of_attributes() {
    for (; num_required_ < tensors_.size(); ++num_required_)
      require_structure(tensors_[num_required_].first, tensors_[num_required_].second);
  }

  // ---- running ----

  void run(Block* block) {
    for (auto* node : block->nodes()) {
      if (builder_.num_nodes() > kMaxNodes)
        throw NotRecordable("its path has more than " + std::to_string(kMaxNodes) + " operators");
      builder_.set_origin(node);
      run(node);
      for (auto* value : lifetimes_.dead_after(node))
        items_.erase(value);
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
        return run_set_attribute(node);
      case prim::CallMethod:
        return run_call(node);
      case prim::CreateObject:
        return run_create_object(node);
      case prim::ListConstruct:
        return make(node, Container::Kind::kList);
      case prim::TupleConstruct:
        return make(node, Container::Kind::kTuple);
      case prim::DictConstruct:
        return run_dict_construct(node);
      case prim::TupleUnpack:
      case prim::ListUnpack:
        return run_unpack(node);
      case prim::TupleIndex:
        return run_tuple_index(node);
      case prim::TupleSlice:
        return run_tuple_slice(node);
      case prim::ModuleContainerIndex:
        return run_module_index(node);
      case prim::isinstance:
        return run_isinstance(node);
      case prim::unchecked_cast:
      case prim::unchecked_unwrap_optional:
        return set(node->output(), get(node->input(0)));
      case prim::Uninitialized:
        return set(node->output(), Item());
      case prim::RaiseException:
        throw NotRecordable("this call raises an exception");
      case aten::__is__:
        return run_identity(node, true);
      case aten::__isnot__:
        return run_identity(node, false);
      default:
        return run_other(node);
    }
  }

  void run_constant(Node* node) {
    auto* output = node->output();
    const auto value = torch::jit::toIValue(output);
    if (!value)
      return;  // a function, which has been inlined
    set(output, PathBuilder::constant(*value, output->type()));
  }

  // Returns what the condition of a loop or an `if` is, and makes the path depend on it.
  bool decide(Node* node, Value* condition) {
    auto& item = get(condition);
    const auto found = decisions_.find(node);
    builder_.set_decision(found == decisions_.end() ? -1 : found->second);
    builder_.require(item);
    builder_.set_decision(-1);
    return item.value.toBool();
  }

  void run_if(Node* node) {
    if (is_kept_check(node))
      return keep_check(node);
    if (is_kept_branch(node) && run_branch(node))
      return;
    auto* block = node->blocks()[decide(node, node->input(0)) ? 0 : 1];
    run(block);
    for (size_t i = 0; i < node->outputs().size(); ++i)
      set(node->output(i), get(block->outputs()[i]));
  }

  // Checks that raise an error stay as they are: they need not hold for the path to be taken.
  bool is_kept_check(Node* node) {
    if (!node->outputs().empty() || PathBuilder::is_constant(get(node->input(0))))
      return false;
    return only_checks(node->blocks()[0]) && only_checks(node->blocks()[1]);
  }

  void keep_check(Node* node) {
    const bool taken = get(node->input(0)).value.toBool();
    bool raises = false;
    for_each_node(node->blocks()[taken ? 0 : 1],
                  [&](Node* inner) { raises = raises || inner->kind() == prim::RaiseException; });
    if (raises)
      throw NotRecordable("this call raises an exception");
    std::unordered_map<Value*, Value*> symbols;
    for (auto* value : free_values(node))
      symbols[value] = builder_.symbol_of(get(value), value->type());
    auto* copy =
        builder_.graph()->createClone(node, [&](Value* value) { return symbols.at(value); });
    builder_.graph()->appendNode(copy);
  }

  bool is_kept_branch(Node* node) {
    const auto found = decisions_.find(node);
    return found != decisions_.end() && kept_.count(found->second) != 0 &&
           !PathBuilder::is_constant(get(node->input(0)));
  }

  // Makes the node one operator. Returns false if that is not possible.
  bool run_branch(Node* node) {
    if (is_changed_elsewhere(node))
      return false;
    const BranchValues values{[&](Value* value) -> Item& { return get(value); },
                              [&](Item& object, Node* read) -> Item& {
                                return attribute(object, read->s(c10::attr::name),
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
    const auto results = execute(copy, branch.operands);
    for (size_t i = 0; i < results.size(); ++i) {
      auto* output = copy->output(i);
      auto item = PathBuilder::item_of(results[i], output, output->type(), false);
      PathBuilder::mark_undetermined(item);  // that of the other block may have another rank
      set(node->output(i), std::move(item));
    }
    return true;
  }

  // Returns whether a result of the node may be what it reads, and something writes to one of the
  // two. The operator would copy it.
  bool is_changed_elsewhere(Node* node) {
    if (aliases_ == nullptr)
      aliases_ = std::make_unique<torch::jit::AliasDb>(node->owningGraph()->shared_from_this());
    const auto outputs = node->outputs();
    const auto reads = free_values(node);
    return std::any_of(outputs.begin(), outputs.end(), [&](Value* output) {
      return std::any_of(reads.begin(), reads.end(), [&](Value* value) {
        return contains_tensor(*value->type()) && contains_tensor(*output->type()) &&
               aliases_->mayContainAlias(output, value) &&
               (aliases_->hasWriters(output) || aliases_->hasWriters(value));
      });
    });
  }

  // A node Loop(count, condition, carried...) has a block with the inputs (i, carried...) and the
  // outputs (condition, carried...).
  void run_loop(Node* node) {
    auto* body = node->blocks()[0];
    auto count = get(node->input(0));
    std::vector<Item> carried;
    for (size_t i = 2; i < node->inputs().size(); ++i)
      carried.push_back(get(node->input(i)));
    bool goes_on = decide(node, node->input(1));
    int64_t done = 0;
    for (; goes_on && done < count.value.toInt(); ++done) {
      set(body->inputs()[0], PathBuilder::constant(done, c10::IntType::get()));
      for (size_t i = 0; i < carried.size(); ++i)
        set(body->inputs()[i + 1], carried[i]);
      run(body);
      goes_on = decide(node, body->outputs()[0]);
      for (size_t i = 0; i < carried.size(); ++i)
        carried[i] = get(body->outputs()[i + 1]);
    }
    require_count(count, done, goes_on);
    for (size_t i = 0; i < carried.size(); ++i)
      set(node->output(i), carried[i]);
  }

  // Makes the path depend on a loop ending after `done` iterations: because the count was reached,
  // or earlier, because its condition was false.
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
    const auto& object = get(node->input(0));
    if (!object.value.isObject())
      throw NotRecordable("it calls a method of a " + object.value.type()->str());
    auto* function = torch::jit::tryToGraphFunction(
        object.value.toObject()->type()->getMethod(node->s(c10::attr::name)));
    if (function == nullptr)
      throw NotRecordable("it calls " + node->s(c10::attr::name) + ", which is not scripted");
    auto callee = function->graph()->copy();
    inline_modules(callee);
    callees_.push_back(callee);
    prepare(*callee);
    for (size_t i = 0; i < node->inputs().size(); ++i)
      set(callee->inputs()[i], get(node->input(i)));
    run(callee->block());
    set(node->output(), get(callee->outputs()[0]));
  }

  // ---- attributes ----

  void run_get_attribute(Node* node) {
    const auto& name = node->s(c10::attr::name);
    auto& object = get(node->input(0));
    if (object.container != nullptr) {
      const auto slot = object.container->type->expect<c10::ClassType>()->getAttributeSlot(name);
      return set(node->output(), builder_.element(*object.container, slot));
    }
    set(node->output(), attribute(object, name, node->output()->type()));
  }

  // `self.heads[key]`, by a key that is not known when the method is scripted, is the submodule of
  // that name. The path depends on the key, as it does on all that chooses an object.
  void run_module_index(Node* node) {
    auto& object = get(node->input(0));
    auto& key = get(node->input(1));
    builder_.require(key);
    const auto name =
        key.value.isInt() ? std::to_string(key.value.toInt()) : key.value.toStringRef();
    if (!object.value.isObject() || !object.value.toObject()->type()->hasAttribute(name))
      throw NotRecordable("this call raises an exception");
    set(node->output(), attribute(object, name, node->output()->type()));
  }

  // Returns the attribute `name` of the object, which the method reads as a value of type
  // `read_as`.
  Item& attribute(Item& object, const std::string& name, const c10::TypePtr& read_as) {
    if (!object.value.isObject())
      throw NotRecordable("it reads an attribute of a " + object.value.type()->str());
    const auto key = std::pair(object.value.toObject().get(), name);
    auto found = attributes_.find(key);
    if (found == attributes_.end())
      found = attributes_.emplace(key, read_attribute(object, name, read_as)).first;
    return found->second;
  }

  Item read_attribute(Item& object, const std::string& name, const c10::TypePtr& read_as) {
    const auto holder = object.value.toObject();
    const auto value = holder->getAttr(name);
    const auto known = paths_.find(holder.get());
    const auto type = holder->type()->getAttribute(name);
    note_callers(value);
    if (known == paths_.end()) {
      if (value.isNone())
        return PathBuilder::constant(value, read_as);  // its structure says so
      if (value.isObject() || value.isList() || value.isGenericDict())
        throw NotRecordable("it reads " + name + " of an object that it was given");
      return PathBuilder::item_of(value, builder_.add_attribute(object.symbol, name), type, true);
    }
    auto path = known->second;
    path.push_back(name);
    const bool is_plain = value.isBool() || value.isInt() || value.isDouble() || value.isString();
    if (value.isNone() || (is_plain && set_names_.count(name) == 0)) {
      result_.attributes.push_back({path, value, false});
      return PathBuilder::constant(value, read_as);
    }
    auto* symbol = builder_.add_attribute(object.symbol, name);
    note_objects(value, path);
    if (value.isObject())
      symbol->setType(value.type());  // the declared one may be an interface
    if (value.isTensor()) {
      tensors_.emplace_back(path, value);
      if (type->kind() != c10::TypeKind::TensorType)
        result_.attributes.push_back({path, IValue(), true});
    } else if (!value.isObject() || type->kind() != c10::TypeKind::ClassType) {
      require_structure(path, value);
    }
    return PathBuilder::item_of(value, symbol, type, /*is_callers=*/true);
  }

  // Makes the path depend on the structure of an attribute.
  void require_structure(const std::vector<std::string>& path, const IValue& value) {
    FoldedAttribute attribute;
    attribute.path = path;
    attribute.structure = std::make_shared<Structure>(Structure::of(value));
    result_.attributes.push_back(std::move(attribute));
  }

  // Makes the path depend on whether two attributes are one object.
  void require_identity(const std::vector<std::string>& path, const std::vector<std::string>& other,
                        bool is_same) {
    FoldedAttribute attribute;
    attribute.path = path;
    attribute.other_object = other;
    attribute.is_other_object = is_same;
    result_.attributes.push_back(std::move(attribute));
  }

  // Notes how objects are reached from the module, those in containers included.
  void note_objects(const IValue& value, const std::vector<std::string>& path) {
    const auto note_element = [&](const IValue& key, const IValue& element) {
      auto inner = path;
      inner.push_back(element_step(key));
      note_objects(element, inner);
    };
    if (value.isObject()) {
      const auto [known, is_new] = paths_.emplace(value.toObject().get(), path);
      if (!is_new && known->second != path)
        require_identity(path, known->second, true);
    } else if (value.isTuple()) {
      const auto& elements = value.toTupleRef().elements();
      for (size_t i = 0; i < elements.size(); ++i)
        note_element(static_cast<int64_t>(i), elements[i]);
    } else if (value.isList() && !value.isTensorList()) {
      const auto list = value.toList();
      for (size_t i = 0; i < list.size(); ++i)
        note_element(static_cast<int64_t>(i), list.get(i));
    } else if (value.isGenericDict()) {
      for (const auto& entry : value.toGenericDict()) {
        if (entry.key().isInt() || entry.key().isString())
          note_element(entry.key(), entry.value());
      }
    }
  }

  void run_set_attribute(Node* node) {
    const auto& name = node->s(c10::attr::name);
    auto& object = get(node->input(0));
    auto& value = get(node->input(1));
    if (object.container != nullptr) {
      auto& container = *object.container;
      const auto slot = container.type->expect<c10::ClassType>()->getAttributeSlot(name);
      container.items.at(slot) = value;
      container.is_changed = true;
      return;
    }
    require_others_to_differ(object.value.toObject().get(), name);
    changes_.push_back({node, {object, value}});
    attributes_[std::pair(object.value.toObject().get(), name)] = value;
  }

  // What is set in one object is not seen in others that have been read.
  void require_others_to_differ(const c10::ivalue::Object* object, const std::string& name) {
    const auto path = paths_.find(object);
    if (path == paths_.end())
      return;
    for (const auto& [other, other_path] : paths_) {
      if (other != object && *other->type() == *object->type() &&
          attributes_.count(std::pair(other, name)) != 0)
        require_identity(path->second, other_path, false);
    }
  }

  void run_create_object(Node* node) {
    auto item = empty_container(Container::Kind::kObject, node->output()->type());
    item.container->items.resize(item.container->type->expect<c10::ClassType>()->numAttributes());
    set(node->output(), item);
  }

  // ---- containers ----

  static Item empty_container(Container::Kind kind, const c10::TypePtr& type) {
    Item item;
    item.container = std::make_shared<Container>();
    item.container->kind = kind;
    item.container->type = type;
    return item;
  }

  void make(Node* node, Container::Kind kind) {
    auto item = empty_container(kind, node->output()->type());
    for (auto* input : node->inputs())
      item.container->items.push_back(get(input));
    set(node->output(), item);
  }

  void run_dict_construct(Node* node) {
    auto item = empty_container(Container::Kind::kDict, node->output()->type());
    for (size_t i = 0; i + 1 < node->inputs().size(); i += 2) {
      auto& key = get(node->input(i));
      if (!key.value.isString() && !key.value.isInt() && !key.value.isBool() &&
          !key.value.isDouble())
        throw NotRecordable("a dict has keys of type " + node->input(i)->type()->str());
      builder_.require(key);
      auto& keys = item.container->keys;
      const auto found = std::find(keys.begin(), keys.end(), key.value);
      if (found != keys.end()) {
        item.container->items[static_cast<size_t>(found - keys.begin())] = get(node->input(i + 1));
        continue;
      }
      keys.push_back(key.value);
      item.container->items.push_back(get(node->input(i + 1)));
    }
    set(node->output(), item);
  }

  void run_unpack(Node* node) {
    auto& item = get(node->input(0));
    if (item.container == nullptr || item.container->items.size() != node->outputs().size())
      throw NotRecordable("a container is unpacked into another number of values");
    auto& container = *item.container;
    const bool is_untouched =
        container.source != nullptr && !container.is_callers && !container.is_changed &&
        std::all_of(container.items.begin(), container.items.end(),
                    [](const Item& each) { return each.pending && each.container == nullptr; });
    if (is_untouched) {
      // It raises an error if the length is another, as the method does.
      auto* copy = builder_.add_copy(node, {container.source});
      for (size_t i = 0; i < container.items.size(); ++i) {
        container.items[i].pending = false;
        container.items[i].symbol = copy->output(i);
        if (container.items[i].is_tensor())
          builder_.memory().note_element(copy->output(i), container.source);
      }
      container.has_determined_size = true;
    }
    builder_.require_size(container);
    for (size_t i = 0; i < container.items.size(); ++i)
      set(node->output(i), builder_.element(container, i));
  }

  void run_tuple_index(Node* node) {
    auto& container = container_of(node);
    auto& index = get(node->input(1));
    builder_.require(index);
    auto place = index.value.toInt();
    if (place < 0)
      place += static_cast<int64_t>(container.items.size());
    set(node->output(), builder_.element(container, static_cast<size_t>(place)));
  }

  void run_tuple_slice(Node* node) {
    auto& container = container_of(node);
    auto item = empty_container(Container::Kind::kTuple, node->output()->type());
    for (auto i = node->i(c10::attr::beg); i < node->i(c10::attr::end); ++i)
      item.container->items.push_back(builder_.element(container, static_cast<size_t>(i)));
    set(node->output(), item);
  }

  Container& container_of(Node* node) {
    auto& item = get(node->input(0));
    if (item.container == nullptr)
      throw NotRecordable("a tuple is not known");
    return *item.container;
  }

  void run_isinstance(Node* node) {
    const auto& item = get(node->input(0));
    const auto type = item.container != nullptr ? item.container->type : item.value.type();
    const auto& candidates = node->tys(c10::attr::types);
    const bool is_one =
        std::any_of(candidates.begin(), candidates.end(),
                    [&](const auto& candidate) { return type->isSubtypeOf(*candidate); });
    set(node->output(), PathBuilder::constant(is_one, c10::BoolType::get()));
  }

  // None-ness is a part of the structure of what the method is given. An operator may return a
  // tensor in this call and None in another.
  static bool may_become_none(const Item& item) {
    auto* symbol = item.container == nullptr ? item.symbol : item.container->source;
    return symbol != nullptr && symbol->node()->maybeSchema() != nullptr &&
           can_be_none(*symbol->type()) && !is_given(symbol);
  }

  void run_identity(Node* node, bool when_same) {
    const auto& a = get(node->input(0));
    const auto& b = get(node->input(1));
    const auto is_none = [](const Item& item) { return item.is_constant() && item.value.isNone(); };
    const auto answer = [&](bool same) {
      set(node->output(), PathBuilder::constant(same == when_same, c10::BoolType::get()));
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

  // ---- operators ----

  void run_other(Node* node) {
    static const auto is_grad_enabled = c10::Symbol::fromQualString("aten::is_grad_enabled");
    if (node->kind() == is_grad_enabled) {
      result_.grad_mode = grad_mode_;
      return set(node->output(), PathBuilder::constant(grad_mode_, c10::BoolType::get()));
    }
    if (node->kind() == aten::requires_grad_ && run_requires_grad(node))
      return;
    if (asks_autograd(node) || runs_autograd(node) || has_fact(node, Fact::kChangesTensorItself))
      throw NotRecordable("it has " + qualified_operator_name(node) + " in it");
    if (node->kind() == aten::dict && node->inputs().empty())  // dict() or OrderedDict()
      return set(node->output(), empty_container(Container::Kind::kDict, node->output()->type()));
    std::vector<Item> operands;
    for (auto* input : node->inputs())
      operands.push_back(get(input));
    if (!operands.empty() && operands[0].container != nullptr) {
      std::vector<Item> results;
      if (run_on_container(node, operands, results, builder_)) {
        for (size_t i = 0; i < results.size(); ++i)
          set(node->output(i), results[i]);
        if (operands[0].container->is_callers && mutates_an_argument(node)) {
          result_.changes_containers = true;
          changes_.push_back({node, operands});
        }
        return;
      }
      if (mutates_an_argument(node))
        throw NotRecordable("it changes a container by " + qualified_operator_name(node));
    }
    run_operator(node, operands);
  }

  // What the caller gave may be made to require grad before all that the path computes. Returns
  // false for other tensors.
  bool run_requires_grad(Node* node) {
    auto& tensor = get(node->input(0));
    const auto& flag = get(node->input(1));
    const bool is_given = tensor.symbol != nullptr && is_callers(tensor.value.toTensor()) &&
                          is_read_of_input(tensor.symbol);
    if (!is_given || !flag.is_constant())
      return false;
    auto* copy = builder_.add_copy_at_start(node, tensor.symbol, flag.value);
    has_early_changes_ = true;
    auto item = tensor;
    item.symbol = copy->output();
    set(node->output(), item);
    return true;
  }

  // Returns whether the value is an input of the method, or is read from one.
  static bool is_read_of_input(const Value* value) {
    return origin_of(value)->kind() == prim::Param;
  }

  // Returns whether the method was given the value: as an input, as an attribute, or in one.
  static bool is_given(const Value* value) {
    const auto* origin = origin_of(value);
    return origin->kind() == prim::Param || origin->kind() == prim::GetAttr;
  }

  // Returns the node that made the value, or the container from which it is read.
  static const Node* origin_of(const Value* value) {
    while (value->node()->kind() == aten::__getitem__ ||
           value->node()->kind() == prim::TupleIndex ||
           value->node()->kind() == prim::unchecked_cast)
      value = value->node()->input(0);
    return value->node();
  }

  void run_operator(Node* node, std::vector<Item>& operands) {
    const bool only_warns = node->kind() == aten::warn || node->kind() == prim::Print;
    if (node->maybeOperator() == nullptr || !node->blocks().empty() ||
        (node->hasSideEffects() && !only_warns))
      throw NotRecordable("it has " + qualified_operator_name(node) + " in it");
    const bool writes_to_own = is_in_place(node) && writes_to_own_memory(operands[0]);
    std::vector<IValue> results;
    if (!only_warns)
      results = execute(node, operands);
    if (writes_to_own)
      return write(node, operands, results[0]);
    const auto outputs = node->outputs();
    const bool makes_tensors = std::any_of(outputs.begin(), outputs.end(), [](const Value* value) {
      return contains_tensor(*value->type());
    });
    // An operator without operands asks for a state of the process, which may change.
    const bool keeps = only_warns || mutates_an_argument(node) || makes_tensors ||
                       is_random(node) || operands.empty();
    if (!keeps && has_fact(node, Fact::kFollowsFromType) && has_determined_type(operands[0])) {
      require_types_of_attributes();
      for (size_t i = 0; i < outputs.size(); ++i)
        set(outputs[i], PathBuilder::constant(results[i], outputs[i]->type()));
      return;
    }
    if (!keeps && std::all_of(operands.begin(), operands.end(), PathBuilder::is_constant)) {
      for (size_t i = 0; i < outputs.size(); ++i)
        set(outputs[i], PathBuilder::constant(results[i], outputs[i]->type()));
      return;
    }
    std::vector<Value*> symbols;
    for (size_t i = 0; i < operands.size(); ++i) {
      auto& item = get(node->input(i));
      symbols.push_back(builder_.symbol_of(item, node->input(i)->type()));
    }
    auto* copy = builder_.add_copy(node, symbols);
    const bool has_determined_types = determines_types(node, operands);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (results[i].isGenericDict())
        throw NotRecordable(qualified_operator_name(node) + " returns a dict");
      note_memory(results[i], copy->output(i), operands, symbols);
      auto item = PathBuilder::item_of(results[i], copy->output(i), outputs[i]->type(), false);
      if (item.container != nullptr && reads_metadata_only(node, 0) &&
          has_determined_type(operands[0])) {
        require_types_of_attributes();  // the rank is the length
        item.container->has_determined_size = true;
      }
      if (!has_determined_types)
        PathBuilder::mark_undetermined(item);
      set(outputs[i], std::move(item));
    }
  }

  // Returns whether rank, dtype and device of the node's results follow from those of its tensors.
  // They may also be decided by a number that is not a constant of the path, or by sizes.
  static bool determines_types(const Node* node, const std::vector<Item>& operands) {
    const bool is_known = node->kind().is_aten() || node->kind().is_prim() || is_marker(node);
    if (!is_known || has_fact(node, Fact::kRankFollowsFromSizes))
      return false;
    const auto& arguments = node->schema().arguments();
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool may_decide = i < arguments.size() && may_decide_type(arguments[i]) &&
                              !PathBuilder::is_constant(operands[i]);
      if (may_decide || !has_determined_type(operands[i]))
        return false;
    }
    return true;
  }

  // Returns whether an argument of an operator may decide more than the sizes of its results.
  static bool may_decide_type(const c10::Argument& argument) {
    const auto* type = argument.real_type().get();
    if (const auto* optional = type->castRaw<c10::OptionalType>())
      type = optional->getElementType().get();
    switch (type->kind()) {
      case c10::TypeKind::TensorType:
      case c10::TypeKind::ListType:
      case c10::TypeKind::FloatType:
      case c10::TypeKind::NumberType:
      case c10::TypeKind::SymIntType:
        return false;
      case c10::TypeKind::IntType:
        return argument.name().find("dim") != std::string::npos;
      default:
        return true;
    }
  }

  // Returns whether rank, dtype and device of the tensors in the item follow from the structure of
  // what the method was given.
  static bool has_determined_type(const Item& item) {
    if (item.container == nullptr)
      return item.has_determined_type;
    const auto& items = item.container->items;
    return item.has_determined_type && std::all_of(items.begin(), items.end(), has_determined_type);
  }

  static bool has_memory(const at::Tensor& tensor) {
    return tensor.defined() && tensor.has_storage();
  }

  bool is_callers(const at::Tensor& tensor) const {
    return has_memory(tensor) &&
           callers_memory_.count(tensor.storage().unsafeGetStorageImpl()) != 0;
  }

  bool is_own(const at::Tensor& tensor) const { return has_memory(tensor) && !is_callers(tensor); }

  bool writes_to_own_memory(const Item& target) {
    if (!target.is_tensor() || target.symbol == nullptr || !is_own(target.value.toTensor()))
      return false;
    if (may_be_callers(target.symbol))
      throw NotRecordable("it writes to a tensor that may be the caller's in another call");
    return true;
  }

  // Returns whether a tensor that the path made in this call may be one that the method was given
  // in another: reshape() and the like copy only if the layout asks for it.
  bool may_be_callers(const Value* value) {
    while (!is_given(value)) {
      const auto* node = value->node();
      if (node->inputs().empty() || (!may_alias_an_argument(node) && !mutates_an_argument(node)))
        return false;
      if (has_fact(node, Fact::kReturnsArgumentOfSameType) && !may_ask_for_layout(node)) {
        require_types_of_attributes();
        return false;  // it copies in every call
      }
      value = node->input(0);
    }
    return true;
  }

  // Returns whether a conversion between types may ask for a memory format, or for a type that is
  // not the same in all calls.
  static bool may_ask_for_layout(const Node* node) {
    const auto& arguments = node->schema().arguments();
    for (size_t i = 1; i < node->inputs().size(); ++i) {
      const auto& type = *node->input(i)->type();
      const bool is_constant = node->input(i)->node()->kind() == prim::Constant;
      const bool is_format = arguments[i].name() == "memory_format";
      if (is_format ? type.kind() != c10::TypeKind::NoneType
                    : !is_constant && type.kind() != c10::TypeKind::TensorType)
        return true;
    }
    return false;
  }

  // Notes if a result of an operator shares memory that the path made with an operand.
  void note_memory(const IValue& result, Value* symbol, const std::vector<Item>& operands,
                   const std::vector<Value*>& symbols) {
    const bool is_list = result.isTensorList() && !result.toListRef().empty();
    if (!is_list && !result.isTensor())
      return;
    const auto tensor = is_list ? result.toListRef()[0].toTensor() : result.toTensor();
    if (!is_own(tensor))
      return;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!operands[i].is_tensor() || operands[i].is_constant() ||
          !operands[i].value.toTensor().is_alias_of(tensor))
        continue;
      if (is_list)
        builder_.memory().note_list(symbol, symbols[i]);
      else if (mutates_an_argument(symbol->node()))
        builder_.memory().note_same(symbol, symbols[i]);
      else
        builder_.memory().note_view(symbol, symbols[i]);
      return;
    }
  }

  // Records a write to memory of the path without writing.
  void write(Node* node, std::vector<Item>& operands, const IValue& result) {
    auto& memory = builder_.memory();
    std::vector<Value*> symbols;
    for (size_t i = 0; i < operands.size(); ++i)
      symbols.push_back(builder_.symbol_of(get(node->input(i)), node->input(i)->type()));
    auto* target = symbols[0];
    Value* content = nullptr;
    const bool only_copies = node->kind() == aten::copy_ && memory.is_view(target);
    if (only_copies) {
      content = builder_.add(aten::expand_as, {symbols[1], target}, c10::TensorType::get());
      if (operands[1].value.toTensor().scalar_type() != result.toTensor().scalar_type())
        content = builder_.add(aten::type_as, {content, target}, c10::TensorType::get());
    } else {
      auto* copy = builder_.add_copy(node, symbols);
      content = make_functional(copy);
      if (content == nullptr) {
        copy->destroy();
        auto* none = builder_.add_constant(IValue());
        symbols[0] = builder_.add(aten::clone, {target, none}, c10::TensorType::get());
        if (memory.is_view(target))
          symbols[0] = memory.with_gaps_of(symbols[0], target);
        content = builder_.add_copy(node, symbols)->output();
      }
    }
    memory.write(target, content);
    auto item = operands[0];
    item.symbol = target;
    item.value = result;
    set(node->output(), item);
  }

  std::vector<IValue> execute(Node* node, const std::vector<Item>& operands) {
    Stack stack;
    for (const auto& item : operands)
      stack.push_back(builder_.value_of(item));
    if (mutates_an_argument(node) || updates_hidden_state(node)) {
      for (const auto& value : stack)
        prepare_write(value);
    }
    if (node->getOperator().schema().is_vararg() && node->getOperator().hasOperation())
      stack.emplace_back(static_cast<int64_t>(operands.size()));
    auto operation = node->getOperation();
    try {
      operation(stack);
    } catch (const std::exception&) {
      throw NotRecordable("this call raises an exception");
    }
    return {stack.begin(), stack.end()};
  }

  void prepare_write(const IValue& value) {
    if (value.isTensor() && is_callers(value.toTensor()))
      writes_.prepare(value.toTensor());
  }

  // ---- the end ----

  void finish(Graph& graph) {
    result_.has_changes = !changes_.empty() || has_early_changes_;
    for (auto& change : changes_) {
      builder_.set_origin(change.node);
      std::vector<Value*> symbols;
      for (size_t i = 0; i < change.operands.size(); ++i) {
        auto& item = change.operands[i];
        const bool is_target = i == 0 && item.container != nullptr;
        symbols.push_back(is_target ? item.container->source
                                    : builder_.symbol_of(item, change.node->input(i)->type()));
      }
      builder_.add_copy(change.node, symbols);
    }
    builder_.finish_changes();
    builder_.set_origin(nullptr);
    for (auto* output : graph.outputs()) {
      auto* symbol = builder_.symbol_of(get(output), output->type());
      builder_.graph()->registerOutput(symbol);
    }
  }

  Object self_;
  bool grad_mode_;  // of the call; it is off while a path is recorded
  const std::set<int64_t>& kept_;
  std::unordered_map<Node*, int64_t> decisions_;  // places of `if`s
  std::unique_ptr<torch::jit::AliasDb> aliases_;  // of the method, made when it is needed
  PathBuilder builder_;
  RecordedPath result_;
  Lifetimes lifetimes_;
  std::unordered_set<std::string> set_names_;  // of attributes that the method sets
  std::unordered_map<Value*, Item> items_;
  std::map<std::pair<const c10::ivalue::Object*, std::string>, Item> attributes_;
  std::unordered_map<const c10::ivalue::Object*, std::vector<std::string>> paths_;  // from self
  std::vector<std::pair<std::vector<std::string>, IValue>> tensors_;  // attributes that were read
  size_t num_required_ = 0;                         // of tensors_, those that the path depends on
  std::unordered_set<const void*> callers_memory_;  // storages
  std::vector<Change> changes_;
  std::vector<std::shared_ptr<Graph>> callees_;
  Writes writes_;
  bool has_early_changes_ = false;  // of what the caller gave
};

}  // namespace

RecordedPath record_path(const std::shared_ptr<Graph>& graph, const Object& self,
                         const std::vector<IValue>& inputs, const std::set<int64_t>& kept) {
  const bool grad_mode = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  const RestoreGenerators restore(inputs);
  return PathRecorder(self, inputs, grad_mode, kept).record(graph, inputs);
}

}  // namespace aten_recompute
