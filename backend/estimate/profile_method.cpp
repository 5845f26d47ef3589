#include <aten_recompute/estimate.h>
#include <torch/csrc/jit/ir/ir.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "backend/estimate/estimate.h"
#include "backend/method/share_tensors.h"
#include "common/parse_options.h"
#include "common/strategy_traits.h"
#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/save_plan.h"
#include "ir/symbols.h"
#include "runtime/one_line_errors.h"
#include "runtime/random_state.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using nlohmann::json;
using torch::jit::Node;
using torch::jit::Value;

// Describes the nodes of one region.
class NodeTable {
 public:
  NodeTable(const RegionProfile& region, size_t number, bool has_seconds)
      : region_(region), number_(number), has_seconds_(has_seconds) {
    for (const auto* value : captured_values(region.joint)) {
      if (const auto* storages = storages_of(value))
        kept_.insert(storages->begin(), storages->end());
    }
  }

  void write(json& nodes) {
    for (const auto* node : region_.joint.forward_nodes())
      add(node, "forward", nodes);
    for (const auto* node : region_.joint.backward_nodes())
      add(node, "backward", nodes);
  }

 private:
  const std::vector<int32_t>* storages_of(const Value* value) const {
    const auto found = region_.costs.storages.find(value->unique());
    return found == region_.costs.storages.end() ? nullptr : &found->second;
  }

  void add(const Node* node, const char* phase, json& nodes) {
    const auto found = region_.costs.nodes.find(node);
    if (found == region_.costs.nodes.end() || node->hasAttribute(symbols::kAlternativeTo))
      return;
    const auto& cost = found->second;
    int64_t bytes = 0;
    int64_t kept = 0;
    json results = json::array();
    for (const auto* output : node->outputs()) {
      const auto* storages = storages_of(output);
      if (storages == nullptr)
        continue;
      for (auto storage : *storages) {
        if (region_.costs.storage_is_callers[storage] || !seen_.insert(storage).second)
          continue;
        bytes += region_.costs.storage_bytes[storage];
        kept += kept_.count(storage) != 0 ? region_.costs.storage_bytes[storage] : 0;
      }
      for (const auto& tensor : region_.costs.tensors.at(output->unique())) {
        results.push_back({{"name", output->debugName()},
                           {"sizes", tensor.sizes},
                           {"dtype", c10::toString(tensor.dtype)}});
      }
    }
    if (results.empty() && cost.flops == 0.0)
      return;  // a size, a flag, a list of them
    json entry = {
        {"region", number_},
        {"phase", phase},
        {"operator", qualified_operator_name(node)},
        {"module",
         node->hasAttribute(symbols::kModulePath) ? node->s(symbols::kModulePath) : std::string()},
        {"layer",
         node->hasAttribute(symbols::kLayer) ? json(node->i(symbols::kLayer)) : json(nullptr)},
        {"backward_of", node->hasAttribute(symbols::kBackwardOf)
                            ? json(node->s(symbols::kBackwardOf))
                            : json(nullptr)},
        {"results", std::move(results)},
        {"bytes", bytes},
        {"kept_bytes", kept},
        {"workspace_bytes", cost.workspace_bytes},
        {"flops", cost.flops},
        {"seconds", has_seconds_ ? json(cost.seconds) : json(nullptr)}};
    nodes.push_back(std::move(entry));
  }

  const RegionProfile& region_;
  size_t number_;
  bool has_seconds_;
  std::unordered_set<int32_t> kept_;
  std::unordered_set<int32_t> seen_;  // storages that an earlier node has made
};

// Returns the device of the module's tensors. Throws std::invalid_argument where a tensor of the
// module or an input is on another one than is asked for.
at::Device check_devices(const torch::jit::Module& module, const std::vector<IValue>& inputs,
                         std::optional<at::Device> device) {
  std::optional<at::Device> first;
  const auto check = [&](const at::Tensor& tensor) {
    if (tensor.is_meta())
      throw std::invalid_argument(
          "profile: a tensor is on the meta device, where nothing can be timed; meta=True gives "
          "sizes and operations");
    if (device && tensor.device().type() != device->type())
      throw std::invalid_argument("profile: a tensor is on " + tensor.device().str() + ", not on " +
                                  device->str() + ": move the module and the inputs there");
    first = first.value_or(tensor.device());
  };
  for (const auto& tensor : module.parameters())
    check(tensor);
  for (const auto& tensor : module.buffers())
    check(tensor);
  for (const auto& input : inputs) {
    input.visit([&](const IValue& inner) {
      if (inner.isTensor() && inner.toTensor().defined())
        check(inner.toTensor());
      return false;
    });
  }
  return first.value_or(at::kCPU);
}

// Returns a copy that shares parameters. It has buffers of its own, which a run of the method may
// write to.
torch::jit::Module with_own_buffers(const torch::jit::Module& given) {
  auto module = plain_clone(given);
  const at::NoGradGuard no_grad;
  for (const auto& each : module.modules()) {
    const auto object = each._ivalue();
    for (size_t i = 0; i < each.type()->numAttributes(); ++i) {
      const auto& value = object->getSlot(i);
      if (each.type()->is_buffer(i) && value.isTensor() && value.toTensor().defined())
        object->setSlot(i, value.toTensor().clone());
    }
  }
  return module;
}

bool has_gradient(const std::vector<IValue>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const IValue& input) {
    return input.isTensor() && input.toTensor().requires_grad();
  });
}

std::vector<IValue> without_gradient(const Region& region, std::vector<IValue>& inputs) {
  torch::jit::Stack outputs;
  region.run_uncompiled(outputs, std::move(inputs));
  return outputs;
}

Options profile_options(const EstimateOptions& given, bool meta) {
  auto options = without_recomputation(parse_options(given.options));
  options.profile = true;
  options.fuse = false;  // nodes are those of the program
  options.cost_model = meta ? CostModel::kFlops : CostModel::kMeasured;
  return options;
}

}  // namespace

std::string profile(const torch::jit::Module& module, const std::vector<IValue>& given_inputs,
                    bool meta, const EstimateOptions& options) try {
  const auto start = std::chrono::steady_clock::now();
  const auto device = device_of(options);
  const auto by = profile_options(options, meta);
  const auto inputs = with_defaults(module, options.method, given_inputs);
  const at::AutoGradMode grad_mode(true);
  json nodes = json::array();
  json breaks = json::array();
  size_t number = 0;
  at::Device on = at::kCPU;
  // Returns the region's outputs, which are described. Gradients are not followed from region to
  // region; a tensor that requires one says so.
  const auto describe = [&](Region& region, const std::vector<IValue>& given) {
    const auto profiled = profile_region(region.compilation_of(given, on));
    NodeTable(profiled, number++, /*has_seconds=*/false).write(nodes);
    auto outputs = profiled.costs.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].isTensor() || !outputs[i].toTensor().defined())
        continue;
      outputs[i] = outputs[i].toTensor().variable_data();
      outputs[i].toTensor().set_requires_grad(profiled.joint.output_requires_grad[i]);
    }
    return outputs;
  };
  const auto measure = [&](Region& region, std::vector<IValue> given) {
    NodeTable(profile_region(region.compilation_of(given)), number++, /*has_seconds=*/true)
        .write(nodes);
    torch::jit::Stack outputs;
    region.run_uncompiled(outputs, std::move(given));
    return outputs;
  };
  RegionWalk walk;
  if (meta) {
    const auto call = on_meta(module, inputs, device);
    on = call.device;
    walk = walk_on_meta(call, options.method, by, [&](Region& region, std::vector<IValue> given) {
      return has_gradient(given) ? describe(region, given) : without_gradient(region, given);
    });
  } else {
    on = check_devices(module, inputs, device);
    const RestoreGenerators restore(inputs);
    walk = walk_regions(with_own_buffers(module), options.method, inputs, by, /*on_meta=*/false,
                        [&](Region& region, std::vector<IValue> given) {
                          return has_gradient(given) ? measure(region, std::move(given))
                                                     : without_gradient(region, given);
                        });
  }
  for (const auto& each : walk.breaks)
    breaks.push_back({{"node", each.node}, {"reason", each.reason}, {"location", each.location}});
  return json{
      {"device", on.str()},
      {"meta", meta},
      {"method", options.method},
      {"regions", walk.num_regions},
      {"breaks", std::move(breaks)},
      {"nodes", std::move(nodes)},
      {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()}}
      .dump();
} catch (const std::exception&) {
  rethrow_in_one_line();
}

}  // namespace aten_recompute
