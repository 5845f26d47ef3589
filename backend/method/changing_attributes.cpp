#include "backend/method/changing_attributes.h"

#include <algorithm>
#include <map>

#include "backend/method/specialization.h"

namespace aten_recompute {

AttributePaths changing_numbers(const std::vector<std::shared_ptr<Specialization>>& specializations,
                                const c10::intrusive_ptr<c10::ivalue::Object>& self) {
  // Two values are often those of training and evaluation.
  constexpr size_t kMostValues = 2;
  std::map<std::vector<std::string>, std::vector<c10::IValue>> values;
  for (const auto& specialization : specializations) {
    for (const auto& attribute : specialization->method.assumptions.attributes) {
      if (!is_number(attribute) || holds(attribute, self))
        continue;
      auto& known = values[attribute.path];
      if (std::find(known.begin(), known.end(), attribute.value) == known.end())
        known.push_back(attribute.value);
    }
  }
  AttributePaths changing;
  for (const auto& [path, known] : values) {
    if (known.size() >= kMostValues)
      changing.insert(path);
  }
  return changing;
}

bool is_compiled_for_any(const Specialization& specialization, const AttributePaths& paths) {
  const auto& attributes = specialization.method.assumptions.attributes;
  return std::any_of(attributes.begin(), attributes.end(), [&](const FoldedAttribute& attribute) {
    return is_number(attribute) && paths.count(attribute.path) != 0;
  });
}

}  // namespace aten_recompute
