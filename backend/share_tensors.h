// Lowered modules use the tensors of the module that was lowered, and know its code.
#pragma once

#include <torch/csrc/jit/api/module.h>

namespace aten_recompute {

// Attribute of a lowered module, as upstream's wrapper calls it.
inline constexpr const char* kLoweredModule = "__loweredModule__";

// Is the module itself one that lower() or PyTorch's to_backend made with this backend?
bool is_lowered(const torch::jit::Module& module);

// Is it, or a module anywhere inside of it?
bool holds_lowered(const torch::jit::Module& module);

// Gives `to` every attribute value of `from` that is not a module, submodule by submodule. `to` is
// a clone of `from`, or of the code of `from` where that is lowered: the same names, classes of its
// own.
void share_tensors(const torch::jit::Module& from, const torch::jit::Module& to);

// Gives the classes of `to` the forward hooks that the classes of `from` have: LibTorch's clone
// leaves them behind. Modules as above.
void copy_hooks(const torch::jit::Module& from, const torch::jit::Module& to);

// A clone that shares all attribute values. Modules that are lowered, the module itself or any
// inside of it, have their original code in it and nothing of the backend. Its classes and methods
// are in a compilation unit of their own, and go when it and its clones go.
torch::jit::Module plain_clone(const torch::jit::Module& module);

// The same with empty tensors: cloning it again costs nothing.
torch::jit::Module clone_without_tensors(const torch::jit::Module& module);

// The module that a lowered module runs the code of (see preprocess in register/backend.cpp).
torch::jit::Module processed_module(const torch::jit::Module& lowered);

// PyTorch's to_backend hands its preprocess function a deep copy of the module, whose parameters
// are `parameter.clone()` under autograd. Where that history is there, puts the parameter itself
// back, so that an optimizer made before goes on working. Returns how many tensors remain copies
// (buffers, parameters that do not require grad, everything if gradients were off).
size_t undo_parameter_copies(const torch::jit::Module& module);

}  // namespace aten_recompute
