// Clones of modules that share tensors with the original, and what tells lowered modules apart.
#pragma once

#include <torch/csrc/jit/api/module.h>

namespace aten_recompute {

// Name of the attribute in which a lowered module holds upstream's part of it; upstream's wrapper
// uses the same name.
inline constexpr const char* kLoweredModule = "__loweredModule__";

// Returns whether lower() or PyTorch's to_backend made the module itself with this backend.
bool is_lowered(const torch::jit::Module& module);

// Returns whether the module or a module anywhere inside it is lowered.
bool holds_lowered(const torch::jit::Module& module);

// Gives `to` every attribute value of `from` that is not a module, submodule by submodule. `to`
// needs to be a clone of `from`, or of its original code if `from` is lowered: attributes have the
// same names, classes may differ.
void share_tensors(const torch::jit::Module& from, const torch::jit::Module& to);

// Gives the classes of `to` the forward hooks of the classes of `from`, which LibTorch's clone
// leaves out. Needs modules as share_tensors() does.
void copy_hooks(const torch::jit::Module& from, const torch::jit::Module& to);

// Replaces classes of `from` by those of `to` in the methods of `to`. LibTorch's clone leaves the
// classes of a lowered module where methods read it from an attribute, and those of modules that a
// traced method takes as arguments, if they are cloned later than the method. Needs modules as
// share_tensors() does.
void replace_classes(const torch::jit::Module& from, const torch::jit::Module& to);

// Returns a clone that shares all attribute values. In it, lowered modules (the module itself or
// any inside it) have their original code and nothing of the backend. Its classes and methods are
// in a compilation unit of their own, which is freed with the clone and its own clones.
torch::jit::Module plain_clone(const torch::jit::Module& module);

// Returns such a clone with empty tensors, so that cloning it again costs nothing.
torch::jit::Module clone_without_tensors(const torch::jit::Module& module);

// Returns the module whose code a lowered module runs (see preprocess in register/backend.cpp).
torch::jit::Module processed_module(const torch::jit::Module& lowered);

// PyTorch's to_backend gives its preprocess function a deep copy of the module, whose parameters
// are `parameter.clone()` under autograd. Follows that history and puts the parameters themselves
// back, so that an optimizer made before goes on working. Returns how many tensors remain copies
// (buffers, parameters that do not require grad, or all tensors if gradients were disabled).
size_t undo_parameter_copies(const torch::jit::Module& module);

}  // namespace aten_recompute
