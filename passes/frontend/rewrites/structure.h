// What a path depends on of a value that it is given: its types and containers, but no sizes, no
// numbers and no data.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aten_recompute {

class Structure {
 public:
  // Returns the structure of a value. Throws NotRecordable for an object that contains itself.
  static Structure of(const c10::IValue& value);

  // Returns whether the value has this structure: tensors of the same rank, dtype and device, lists
  // of the same type and length, dicts with the same keys in the same order, objects of the same
  // class with attributes of the same structure, None where there was None. Modules are compared by
  // their class only.
  bool matches(const c10::IValue& value) const;

  // Returns how a value differs that does not match: "has 3 dimensions instead of 2".
  std::string difference(const c10::IValue& value) const;

 private:
  enum class Kind { kOther, kTensor, kList, kTuple, kDict, kObject };

  static Structure of(const c10::IValue& value, size_t depth);
  bool children_match(c10::ArrayRef<c10::IValue> values) const;

  Kind kind_ = Kind::kOther;
  std::string tag_;  // of a value of another kind
  int64_t rank_ = 0;
  std::optional<at::TensorOptions> options_;
  c10::TypePtr type_;                // of an object, or of the elements of a list
  std::vector<c10::IValue> keys_;    // of a dict
  std::vector<Structure> children_;  // elements, values, or attributes by slot
};

// Returns whether some list, dict or object can be reached from the values in two ways. A change
// through one of them is then seen through the other.
bool share_containers(const std::vector<c10::IValue>& values);

}  // namespace aten_recompute
