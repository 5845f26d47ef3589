#include "passes/frontend/path/path_attributes.h"

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <utility>

#include "ir/attribute_path.h"
#include "passes/frontend/path/meta_run.h"
#include "passes/frontend/rewrites/not_recordable.h"
#include "runtime/write_back.h"

namespace aten_recompute {

using c10::IValue;
using torch::jit::Node;

PathAttributes::PathAttributes(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                               PathBuilder& builder, CallerWrites& writes, AttributePaths carried,
                               AttributePaths changing, MetaRun* meta_run)
    : builder_(builder),
      writes_(writes),
      meta_run_(meta_run),
      to_carry_(std::move(carried)),
      changing_(std::move(changing)) {
  paths_[self.get()] = {};
}

void PathAttributes::add_set_names(torch::jit::Graph& graph) {
  const auto names = set_attributes(graph);
  set_names_.insert(names.begin(), names.end());
}

void PathAttributes::require_types() {
  for (; num_required_tensors_ < tensors_.size(); ++num_required_tensors_)
    require_structure(tensors_[num_required_tensors_].first,
                      tensors_[num_required_tensors_].second);
}

Item& PathAttributes::get(const Item& object, const std::string& name,
                          const c10::TypePtr& read_as) {
  if (object.container != nullptr) {
    const auto slot = object.container->type->expect<c10::ClassType>()->getAttributeSlot(name);
    return builder_.element(*object.container, slot);
  }
  if (!object.value.isObject())
    throw NotRecordable("it reads an attribute of a " + object.value.type()->str());
  const auto key = std::pair(object.value.toObject().get(), name);
  auto found = attributes_.find(key);
  if (found == attributes_.end())
    found = attributes_.emplace(key, read(object, name, read_as)).first;
  return found->second;
}

Item PathAttributes::read(const Item& object, const std::string& name,
                          const c10::TypePtr& read_as) {
  const auto holder = object.value.toObject();
  const auto value = holder->getAttr(name);
  const auto in_this_run = meta_run_ != nullptr ? meta_run_->of(value) : value;
  const auto known = paths_.find(holder.get());
  const auto type = holder->type()->getAttribute(name);
  writes_.add_given(in_this_run);
  if (known == paths_.end()) {
    if (value.isNone())
      return constant_item(value, read_as);  // its structure says so
    if (value.isObject() || value.isList() || value.isGenericDict())
      throw NotRecordable("it reads " + name + " of an object that it was given");
    return make_item(in_this_run, builder_.add_attribute(object.symbol, name), type, true);
  }
  auto path = known->second;
  path.push_back(name);
  const bool is_plain = value.isBool() || value.isInt() || value.isDouble() || value.isString();
  const bool is_fixed = set_names_.count(name) == 0 && changing_.count(path) == 0;
  if (value.isNone() || (is_plain && is_fixed)) {
    required_.push_back({path, value, false});
    return constant_item(value, read_as);
  }
  auto* symbol = builder_.add_attribute(object.symbol, name);
  add_objects(value, path);
  if (value.isObject())
    symbol->setType(value.type());  // the declared one may be an interface
  if (value.isTensor()) {
    tensors_.emplace_back(path, value);
    if (type->kind() != c10::TypeKind::TensorType)
      required_.push_back({path, IValue(), true});
    else if (to_carry_.count(path) != 0)
      return carry(path, in_this_run.toTensor(), symbol);
  } else if (!value.isObject() || type->kind() != c10::TypeKind::ClassType) {
    require_structure(path, value);
  }
  return make_item(in_this_run, symbol, type, /*is_callers=*/true);
}

Item PathAttributes::carry(const Path& path, const at::Tensor& tensor,
                           torch::jit::Value* attribute) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.requires_grad() ||
      tensor.is_inference() || !tensor.is_non_overlapping_and_dense())
    throw NotRecordable("it writes to an attribute that is no plain tensor");
  writes_.take_over(tensor);
  auto* copy = builder_.add_copy_of_attribute(attribute);
  carried_.push_back({path, tensor, tensor._version(), attribute, copy});
  return make_item(tensor, copy, c10::TensorType::get(), /*is_callers=*/false);
}

void PathAttributes::write_back() {
  for (const auto& each : carried_) {
    if (writes_.is_given_twice(each.tensor))
      throw NotRecordable("it writes to an attribute whose memory it reads otherwise, too");
    auto* content = builder_.memory().current(each.copy);
    if (content != each.copy) {
      const auto writes = each.tensor._version() - each.version;
      builder_.add(kWriteBack, {each.attribute, content, builder_.add_constant(writes)},
                   c10::TensorType::get());
      writes_.add_other_change();
    }
    // The caller is to see the attribute itself, and views of it.
    builder_.memory().rename(each.copy, each.attribute);
  }
}

ApartFrom PathAttributes::apart() const {
  ApartFrom apart;
  if (carried_.empty())
    return apart;
  for (const auto& each : carried_)
    apart.written.push_back(each.path);
  for (const auto& [path, value] : tensors_) {
    if (to_carry_.count(path) == 0)
      apart.read.push_back(path);
  }
  return apart;
}

void PathAttributes::require_structure(const Path& path, const IValue& value) {
  FoldedAttribute attribute;
  attribute.path = path;
  attribute.structure = std::make_shared<Structure>(Structure::of(value));
  required_.push_back(std::move(attribute));
}

void PathAttributes::require_identity(const Path& path, const Path& other, bool is_same) {
  FoldedAttribute attribute;
  attribute.path = path;
  attribute.other_object = other;
  attribute.is_other_object = is_same;
  required_.push_back(std::move(attribute));
}

void PathAttributes::add_objects(const IValue& value, const Path& path) {
  const auto note_element = [&](const IValue& key, const IValue& element) {
    auto inner = path;
    inner.push_back(element_step(key));
    add_objects(element, inner);
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

void PathAttributes::set(Node* node, const Item& object, const Item& value) {
  const auto& name = node->s(c10::attr::name);
  if (object.container != nullptr) {
    auto& container = *object.container;
    const auto slot = container.type->expect<c10::ClassType>()->getAttributeSlot(name);
    container.items.at(slot) = value;
    container.is_changed = true;
    return;
  }
  require_others_to_differ(object.value.toObject().get(), name);
  writes_.add_change(node, {object, value});
  attributes_[std::pair(object.value.toObject().get(), name)] = value;
}

void PathAttributes::require_others_to_differ(const Object* object, const std::string& name) {
  const auto path = paths_.find(object);
  if (path == paths_.end())
    return;
  for (const auto& [other, other_path] : paths_) {
    if (other != object && *other->type() == *object->type() &&
        attributes_.count(std::pair(other, name)) != 0)
      require_identity(path->second, other_path, false);
  }
}

}  // namespace aten_recompute
