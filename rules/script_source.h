// Compiles TorchScript source to graphs.
#pragma once

#include <memory>
#include <string>

namespace torch::jit {
struct Graph;
struct Resolver;
}  // namespace torch::jit

namespace aten_recompute {

// Returns the resolver of names: `torch.` is the aten namespace, `torch.ops.ns.` and `ops.ns.` the
// namespace ns, `recompute.` the namespace of this project's operators.
std::shared_ptr<torch::jit::Resolver> script_resolver();

// Returns the graph of the last function that `source` defines; the functions before it are helpers
// and are inlined. Throws what the compiler throws, and std::invalid_argument if no function is
// defined.
std::shared_ptr<torch::jit::Graph> compile_script(const std::string& source);

}  // namespace aten_recompute
