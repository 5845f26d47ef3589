#include "ir/attribute_path.h"

#include <torch/csrc/jit/ir/ir.h>

#include <cstdlib>

namespace aten_recompute {
namespace {

// Returns the element of a container that a step of a path leads to; nullopt if there is none.
std::optional<c10::IValue> element_at(const c10::IValue& container, const std::string& step) {
  if (container.isGenericDict()) {
    for (const auto& entry : container.toGenericDict()) {
      if ((entry.key().isInt() || entry.key().isString()) && element_step(entry.key()) == step)
        return entry.value();
    }
    return std::nullopt;
  }
  const auto index = static_cast<size_t>(std::strtoll(step.c_str() + 1, nullptr, 10));
  if (container.isList() && index < container.toList().size())
    return container.toList().get(index);
  if (container.isTuple() && index < container.toTupleRef().elements().size())
    return container.toTupleRef().elements()[index];
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<std::string>> path_from_root(torch::jit::Value* value,
                                                       const torch::jit::Graph& graph) {
  std::vector<std::string> path;
  while (value->node()->kind() == c10::prim::GetAttr) {
    path.insert(path.begin(), value->node()->s(c10::attr::name));
    value = value->node()->input(0);
  }
  if (value != graph.inputs()[0])
    return std::nullopt;
  return path;
}

std::string element_step(const c10::IValue& key) {
  return key.isInt() ? "[" + std::to_string(key.toInt()) + "]" : "['" + key.toStringRef() + "']";
}

std::optional<c10::IValue> read_path(const c10::intrusive_ptr<c10::ivalue::Object>& object,
                                     const std::vector<std::string>& path) {
  if (path.empty())
    return std::nullopt;
  std::optional<c10::IValue> value;
  for (const auto& step : path) {
    if (step.front() == '[') {
      value = element_at(*value, step);
    } else if (!value || value->isObject()) {
      const auto& holder = value ? value->toObjectRef() : *object;
      const auto slot = holder.type()->findAttributeSlot(step);
      value = slot ? std::optional(c10::IValue(holder.getSlot(*slot))) : std::nullopt;
    } else {
      return std::nullopt;
    }
    if (!value)
      return std::nullopt;
  }
  return value;
}

}  // namespace aten_recompute
