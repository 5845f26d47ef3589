#include "passes/frontend/rewrites/structure.h"

#include <ATen/core/class_type.h>

#include <algorithm>

#include "passes/frontend/rewrites/not_recordable.h"

namespace aten_recompute {
namespace {

using c10::IValue;

constexpr size_t kMaxDepth = 64;

// Returns false if a container is found for the second time.
bool collect(const IValue& value, std::vector<const void*>& seen) {
  const bool is_container = value.isList() || value.isGenericDict() || value.isObject();
  if (is_container) {
    const void* identity = value.internalToPointer();
    if (std::find(seen.begin(), seen.end(), identity) != seen.end())
      return false;
    seen.push_back(identity);
  }
  if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    return std::all_of(elements.begin(), elements.end(),
                       [&](const IValue& each) { return collect(each, seen); });
  }
  if (value.isList()) {
    const auto list = value.toListRef();
    return std::all_of(list.begin(), list.end(),
                       [&](const IValue& each) { return collect(each, seen); });
  }
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      if (!collect(entry.value(), seen))
        return false;
    }
  }
  return true;
}

}  // namespace

Structure Structure::of(const IValue& value) {
  return of(value, 0);
}

Structure Structure::of(const IValue& value, size_t depth) {
  if (depth > kMaxDepth)
    throw NotRecordable("it is given an object that contains itself, or is nested too deeply");
  Structure result;
  if (value.isTensor() && value.toTensor().defined()) {
    result.kind_ = Kind::kTensor;
    result.rank_ = value.toTensor().dim();
    result.options_ = value.toTensor().options();
  } else if (value.isList()) {
    result.kind_ = Kind::kList;
    const auto list = value.toList();
    result.type_ = list.elementType();
    for (size_t i = 0; i < list.size(); ++i)
      result.children_.push_back(of(list.get(i), depth + 1));
  } else if (value.isTuple()) {
    result.kind_ = Kind::kTuple;
    for (const auto& element : value.toTupleRef().elements())
      result.children_.push_back(of(element, depth + 1));
  } else if (value.isGenericDict()) {
    result.kind_ = Kind::kDict;
    for (const auto& entry : value.toGenericDict()) {
      result.keys_.push_back(entry.key());
      result.children_.push_back(of(entry.value(), depth + 1));
    }
  } else if (value.isObject()) {
    result.kind_ = Kind::kObject;
    result.type_ = value.type();
    if (!result.type_->expectRef<c10::ClassType>().is_module()) {
      for (const auto& attribute : value.toObjectRef().slots())
        result.children_.push_back(of(attribute, depth + 1));
    }
  } else {
    result.tag_ = value.tagKind();
  }
  return result;
}

bool Structure::children_match(c10::ArrayRef<IValue> values) const {
  return std::equal(children_.begin(), children_.end(), values.begin(), values.end(),
                    [](const auto& child, const auto& each) { return child.matches(each); });
}

bool Structure::matches(const IValue& value) const {
  switch (kind_) {
    case Kind::kTensor: {
      if (!value.isTensor())
        return false;
      const auto& tensor = value.toTensor();
      return tensor.defined() && tensor.dim() == rank_ && tensor.dtype() == options_->dtype() &&
             tensor.device() == options_->device() && tensor.layout() == options_->layout();
    }
    case Kind::kList: {
      if (!value.isList())
        return false;
      const auto list = value.toList();
      if (list.size() != children_.size() || *list.elementType() != *type_)
        return false;
      for (size_t i = 0; i < children_.size(); ++i) {
        if (!children_[i].matches(list.get(i)))
          return false;
      }
      return true;
    }
    case Kind::kTuple: {
      if (!value.isTuple())
        return false;
      return children_match(value.toTupleRef().elements());
    }
    case Kind::kDict: {
      if (!value.isGenericDict() || value.toGenericDict().size() != keys_.size())
        return false;
      size_t i = 0;
      for (const auto& entry : value.toGenericDict()) {
        if (!(entry.key() == keys_[i]) || !children_[i].matches(entry.value()))
          return false;
        ++i;
      }
      return true;
    }
    case Kind::kObject:
      return value.isObject() && *value.type() == *type_ &&
             (children_.empty() || children_match(value.toObjectRef().slots()));
    case Kind::kOther:
      return tag_ == value.tagKind();
  }
  return false;
}

std::string Structure::difference(const IValue& value) const {
  if (kind_ == Kind::kTensor && value.isTensor() && value.toTensor().defined()) {
    const auto& tensor = value.toTensor();
    if (tensor.dim() != rank_)
      return c10::str("has ", tensor.dim(), " dimensions instead of ", rank_);
    if (tensor.dtype() != options_->dtype())
      return c10::str("is ", tensor.dtype().name(), " instead of ", options_->dtype().name());
    return c10::str("is on ", tensor.device(), " instead of ", options_->device());
  }
  if (kind_ == Kind::kList && value.isList() && value.toList().size() != children_.size())
    return c10::str("has ", value.toList().size(), " elements instead of ", children_.size());
  if (kind_ == Kind::kDict && value.isGenericDict())
    return "has other keys, or values of other types";
  if (value.isNone())
    return "is None now";
  return tag_ == "None" ? "is not None any more" : "has another type, or contains other types";
}

bool share_containers(const std::vector<IValue>& values) {
  std::vector<const void*> seen;
  return !std::all_of(values.begin(), values.end(),
                      [&](const IValue& value) { return collect(value, seen); });
}

}  // namespace aten_recompute
