// TorchScript text as graphs.
#pragma once

#include <memory>
#include <string>

namespace torch::jit {
struct Graph;
struct Resolver;
}  // namespace torch::jit

namespace aten_recompute {

// What names mean: `torch.` is the aten namespace, `torch.ops.ns.` and `ops.ns.` the namespace of
// that name, `recompute.` this project's operators.
std::shared_ptr<torch::jit::Resolver> script_resolver();

// The last function that `source` defines; those before it are helpers, and inlined. Throws what
// the compiler throws, and std::invalid_argument where no function is defined.
std::shared_ptr<torch::jit::Graph> compile_script(const std::string& source);

}  // namespace aten_recompute
