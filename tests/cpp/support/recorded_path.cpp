#include "tests/cpp/support/recorded_path.h"

#include <torch/csrc/jit/ir/ir.h>

#include "passes/frontend/rewrites/inline_modules.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute::test {

RecordedPath record(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                    const std::set<int64_t>& kept,
                    const std::set<std::vector<std::string>>& carried) {
  auto graph = method_graph(module);
  inline_modules(graph);
  auto path = record_path(graph, module._ivalue(), inputs, {.kept = kept, .carried = carried});
  path.graph->lint();
  return path;
}

}  // namespace aten_recompute::test
