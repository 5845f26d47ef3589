#include "backend/method/arena_blocks.h"

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/pictures/shared_texts.h"
#include "ir/node_names.h"
#include "ir/node_place.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using nlohmann::json;

// Returns the instruction that allocates the block; nullptr for operators between regions, and
// where the step ran something else than the newest compilation.
const torch::jit::Node* node_of(const CompiledCall& call, const BlockKey& key) {
  if (key.pass.is_between() || key.pass.run > call.runs.size())
    return nullptr;
  const auto& region = *call.runs[key.pass.run - 1].compiled_region;
  const auto& program = key.pass.pass == 0 ? region.forward() : region.backward();
  return key.instruction < program.instructions().size()
             ? program.instructions()[key.instruction].node
             : nullptr;
}

std::string name_of(const torch::jit::Node* node) {
  if (node == nullptr)
    return "between regions";
  if (node->hasAttribute(symbols::kBackwardOf))
    return "backward of " + node->s(symbols::kBackwardOf);
  return qualified_operator_name(node);
}

enum PassKind : int32_t { kForward, kRecomputed, kBackward, kBetween };

PassKind kind_of(const torch::jit::Node* node, const BlockKey& key) {
  if (node == nullptr)
    return kBetween;
  if (node->hasAttribute(symbols::kRecomputed))
    return kRecomputed;
  return key.pass.pass == 0 ? kForward : kBackward;
}

}  // namespace

json arena_blocks_of(const CompiledCall& call) {
  const auto plan =
      call.runs.empty() ? nullptr : call.runs.front().compiled_region->arena_plans().plan();
  if (plan == nullptr)
    return nullptr;
  SharedTexts names, layers, sources;
  std::vector<int32_t> name, layer, source, kind, begin, end;
  std::vector<int64_t> bytes, offset;
  int32_t last = 0;
  for (const auto& placed : plan->placed_blocks()) {
    const auto& block = placed.block;
    const auto* node = node_of(call, block.key);
    name.push_back(names.index_of(name_of(node)));
    layer.push_back(node == nullptr ? -1 : layers.index_of(module_path_of(node)));
    source.push_back(node == nullptr ? -1 : sources.index_of(location_of(node)));
    kind.push_back(kind_of(node, block.key));
    begin.push_back(block.begin);
    end.push_back(block.end);
    bytes.push_back(block.bytes);
    offset.push_back(placed.offset);
    last = std::max({last, block.begin, block.end});
  }
  for (auto& each : end) {
    if (each < 0)
      each = last + 1;  // it outlives the step
  }
  return {{"bytes", plan->arena_bytes()},
          {"alive_bytes", plan->alive_bytes()},
          {"kinds", {"forward", "recomputed", "backward", "between"}},
          {"names", names.all()},
          {"layers", layers.all()},
          {"sources", sources.all()},
          {"blocks",
           {{"name", name},
            {"layer", layer},
            {"source", source},
            {"kind", kind},
            {"begin", begin},
            {"end", end},
            {"bytes", bytes},
            {"offset", offset}}}};
}

}  // namespace aten_recompute
