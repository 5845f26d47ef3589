// Whether tensors that a path writes back share memory with others.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace aten_recompute {

// Paths of attributes, from the module: tensors that a recorded path computes with as values of its
// own and writes back at its end, and the other tensors that it reads. A write to one of the former
// would not be seen through another tensor in its memory.
struct ApartFrom {
  std::vector<std::vector<std::string>> written;
  std::vector<std::vector<std::string>> read;
};

// Returns whether the tensors that are written share no memory with one another, with those that
// are read, or with those in the inputs, and require no grad.
bool are_apart(const ApartFrom& tensors, const c10::intrusive_ptr<c10::ivalue::Object>& self,
               const std::vector<c10::IValue>& inputs);

}  // namespace aten_recompute
