// Reads a TorchScript file.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>

namespace aten_recompute::command {

enum class Tensors {
  kReal,       // the tensors are read into memory
  kDescribed,  // the tensors are on the meta device: their sizes are known, and they take no memory
};

// Returns the module in the file, or throws Failure(kBadFile).
torch::jit::Module load_module(const std::string& path, Tensors tensors);

// Returns the method, or throws Failure(kBadArguments) with the names of those that there are.
torch::jit::Method find_method(const torch::jit::Module& module, const std::string& name);

// Returns the content of a file, or throws Failure(kBadFile).
std::string read_file(const std::string& path);

}  // namespace aten_recompute::command
