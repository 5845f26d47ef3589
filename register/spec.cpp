#include "register/spec.h"

#include <nlohmann/json.hpp>

#include <stdexcept>

namespace aten_recompute {
namespace {

nlohmann::json to_json(const c10::IValue& value) {
  if (value.isNone())
    return nullptr;
  if (value.isString())
    return value.toStringRef();
  if (value.isBool())
    return value.toBool();
  if (value.isInt())
    return value.toInt();
  if (value.isDouble())
    return value.toDouble();
  if (value.isList()) {
    auto list = nlohmann::json::array();
    const auto elements = value.toList();
    for (size_t i = 0; i < elements.size(); ++i)
      list.push_back(to_json(elements.get(i)));
    return list;
  }
  if (value.isGenericDict()) {
    auto object = nlohmann::json::object();
    for (const auto& entry : value.toGenericDict())
      object[entry.key().toStringRef()] = to_json(entry.value());
    return object;
  }
  throw std::invalid_argument("a spec holds strings, numbers and lists of them, not " +
                              value.tagKind());
}

}  // namespace

std::string spec_to_json(const c10::IValue& spec) {
  if (spec.isNone())
    return "";
  if (spec.isString())
    return spec.toStringRef();
  if (spec.isGenericDict())
    return to_json(spec).dump();
  throw std::invalid_argument(
      "a method's spec is \"\", a JSON string, or a dict of strings and numbers, not " +
      spec.tagKind());
}

}  // namespace aten_recompute
