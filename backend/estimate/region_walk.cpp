#include "backend/estimate/region_walk.h"

#include <aten_recompute/errors.h>
#include <aten_recompute/one_line.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <exception>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <utility>

#include "common/did_you_mean.h"
#include "ir/graph_device.h"
#include "ir/symbols.h"
#include "passes/prepare_method.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Node;
using torch::jit::Stack;

const c10::Symbol kWalkedRegion = c10::Symbol::fromQualString("aten_recompute::walked_region");

// What stands for a region in the graph of a walk.
struct WalkedRegion : torch::CustomClassHolder {
  c10::intrusive_ptr<Region> region;
  const RunRegion* run = nullptr;
  std::exception_ptr* error = nullptr;  // the interpreter would turn it into a text of many lines
};

void run_walked_region(const WalkedRegion& walked, size_t num_inputs, Stack& stack) {
  std::vector<IValue> inputs(
      std::make_move_iterator(stack.end() - static_cast<std::ptrdiff_t>(num_inputs)),
      std::make_move_iterator(stack.end()));
  torch::jit::drop(stack, num_inputs);
  try {
    for (auto& output : (*walked.run)(*walked.region, std::move(inputs)))
      stack.push_back(std::move(output));
  } catch (const std::exception&) {
    *walked.error = std::current_exception();
    throw;
  }
}

void register_walked_region() {
  static const torch::jit::RegisterOperators registered({torch::jit::Operator(
      kWalkedRegion,
      [](const Node* node) -> torch::jit::Operation {
        const auto walked = c10::static_intrusive_pointer_cast<WalkedRegion>(
            node->ival(symbols::kRegion).toCapsule());
        return [walked, count = node->inputs().size()](Stack& stack) {
          run_walked_region(*walked, count, stack);
        };
      },
      c10::AliasAnalysisKind::CONSERVATIVE)});
}

torch::jit::Method method_of(const torch::jit::Module& module, const std::string& method) {
  const auto found = module.find_method(method);
  if (!found) {
    std::vector<std::string> names;
    for (const auto& each : module.get_methods())
      names.push_back(each.name());
    NoSuchMethodError error("the module has no method \"" + method + "\"" +
                            did_you_mean(method, names));
    error.method = method;
    error.raise_as_invalid_argument();
  }
  return *found;
}

// Puts an operator that calls `run` in the place of a region.
void replace_region(Node* node, const Options& options, bool is_one_of_several,
                    const RunRegion& run, std::exception_ptr& error) {
  auto walked = c10::make_intrusive<WalkedRegion>();
  walked->region = c10::make_intrusive<Region>(
      node->g(c10::attr::Subgraph), attribute_flags(node), options, is_one_of_several,
      std::make_shared<PinnedPlan>(), method_memory_around(node));
  walked->run = &run;
  walked->error = &error;
  auto* graph = node->owningGraph();
  auto* replacement = graph->create(kWalkedRegion, node->inputs(), node->outputs().size());
  replacement->ival_(symbols::kRegion, IValue::make_capsule(walked));
  replacement->insertBefore(node);
  for (size_t i = 0; i < node->outputs().size(); ++i)
    replacement->output(i)->setType(node->output(i)->type());
  node->replaceAllUsesWith(replacement);
  node->destroy();
}

}  // namespace

std::vector<IValue> with_defaults(const torch::jit::Module& module, const std::string& method,
                                  const std::vector<IValue>& inputs) {
  Stack stack{module._ivalue()};
  stack.insert(stack.end(), inputs.begin(), inputs.end());
  try {
    method_of(module, method).function().getSchema().checkAndNormalizeInputs(stack);
  } catch (const c10::Error& error) {
    throw std::invalid_argument(one_line(error));
  }
  stack.erase(stack.begin());
  return stack;
}

RegionWalk walk_regions(const torch::jit::Module& module, const std::string& method,
                        const std::vector<IValue>& inputs, const Options& options, bool on_meta,
                        const RunRegion& run_region) {
  register_walked_region();
  auto graph =
      inline_method(*torch::jit::toGraphFunction(method_of(module, method).function()).graph());
  if (on_meta)
    put_on_meta(*graph);
  auto prepared = prepare_method({graph, module._ivalue(), inputs, options.layer_pattern});
  const auto& nodes = prepared.regions.nodes;
  RegionWalk walk;
  walk.num_regions = nodes.size();
  walk.breaks = prepared.regions.breaks;
  std::exception_ptr error;
  for (auto* node : nodes)
    replace_region(node, options, nodes.size() > 1, run_region, error);
  Stack stack{module._ivalue()};
  stack.insert(stack.end(), inputs.begin(), inputs.end());
  try {
    torch::jit::InterpreterState(torch::jit::Code(prepared.graph, method)).run(stack);
  } catch (const std::exception&) {
    if (error != nullptr)
      std::rethrow_exception(error);
    throw;
  }
  walk.result = stack.front();
  return walk;
}

}  // namespace aten_recompute
