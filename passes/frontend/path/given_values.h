// Tells which values of a path's graph the method was given.
#pragma once

#include "passes/frontend/path/path_item.h"

namespace aten_recompute {

// Returns whether the value is an input of the method, or is read from one.
bool is_read_of_input(const torch::jit::Value* value);

// Returns whether the method was given the value: as an input, as an attribute, or in one.
bool is_given(const torch::jit::Value* value);

// Returns whether the item may be None in another call that takes the path. None-ness is a part of
// the structure of what the method is given, but an operator may return a tensor in this call and
// None in another.
bool may_become_none(const Item& item);

}  // namespace aten_recompute
