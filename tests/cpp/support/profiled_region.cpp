#include "tests/cpp/support/profiled_region.h"

#include <torch/csrc/jit/ir/ir.h>

#include <utility>

#include "tests/cpp/support/testing.h"

namespace aten_recompute::test {
namespace {

ProfiledRegion region_of(JointGraph joint, const Memory& memory) {
  ProfiledRegion region{std::move(joint), {}, {}};
  auto& profile = region.profile;
  auto add = [&](torch::jit::Value* value, bool callers) {
    const auto name = value->debugName();
    const auto found = memory.bytes.find(name);
    const int64_t bytes = found == memory.bytes.end() ? 1000 : found->second;
    profile.tensor_bytes[value->unique()] = bytes;
    if (const auto view = memory.views.find(name); view != memory.views.end()) {
      const auto* base = find_value(*region.joint.graph, view->second);
      profile.storages[value->unique()] = profile.storages.at(base->unique());
      return;
    }
    profile.storages[value->unique()] = {static_cast<int32_t>(profile.storage_bytes.size())};
    profile.storage_bytes.push_back(bytes);
    profile.storage_is_callers.push_back(callers);
  };
  const auto inputs = region.joint.graph->inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    add(inputs[i], i < region.joint.num_inputs);
  for (auto* node : region.joint.graph->nodes()) {
    for (auto* output : node->outputs()) {
      if (node->kind() != c10::prim::Constant)
        add(output, false);
    }
  }
  region.graph = make_problem(region.joint, &profile);
  return region;
}

}  // namespace

ProfiledRegion region(const std::string& forward, const std::string& backward, const Memory& memory,
                      const std::string& output) {
  return region_of(
      parse_joint(
          {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %none : NoneType = prim::Constant()
  %false : bool = prim::Constant[value=0]()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %half : float = prim::Constant[value=0.5]()
  %h : Tensor = aten::mm(%x, %w)
  )" + forward + R"(
  %out : Tensor = aten::neg(%h)
  aten_recompute::backward_start()
  )" + backward + R"(
  return (%)" + output + R"(, %d)
)"),
      memory);
}

}  // namespace aten_recompute::test
