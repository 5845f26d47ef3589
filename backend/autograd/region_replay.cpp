#include "backend/autograd/region_replay.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "ir/functionalize.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;

void copy_operand(torch::jit::Node* node, size_t operand) {
  auto& graph = *node->owningGraph();
  const torch::jit::WithInsertPoint guard(node);
  node->replaceInput(operand, graph.insert(c10::aten::clone, {node->input(operand)}));
}

// Returns the operands that the node may write to: those that its schema says, the running
// statistics of a normalization, and all tensors of an operator with other hidden state.
std::vector<size_t> written_operands(const torch::jit::Node* node) {
  std::vector<size_t> written;
  if (node->maybeSchema() == nullptr)
    return written;
  const auto& arguments = node->schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (node->input(i)->type()->kind() != c10::TypeKind::TensorType)
      continue;
    const auto& name = arguments[i].name();
    const bool is_statistic = name == "running_mean" || name == "running_var";
    if (writes_to(node, i) ||
        (updates_hidden_state(node) && (is_statistic || !updates_statistics_only(node))))
      written.push_back(i);
  }
  return written;
}

// Returns whether the node is a batch norm in evaluation. It reads operands 3 and 4.
bool reads_statistics(const torch::jit::Node* node) {
  return node->kind() == c10::aten::batch_norm &&
         !torch::jit::constant_as<bool>(node->input(5)).value_or(true);
}

// Makes norms in evaluation take the statistics of the first run from further inputs of the graph.
void read_seen_statistics(Graph& graph) {
  const auto count = graph.inputs().size();
  std::map<size_t, torch::jit::Value*> seen;
  for (auto input : statistics_read_by(graph))
    seen[input] = nullptr;
  for (auto& [input, value] : seen)
    value = graph.addInput()->setType(graph.inputs()[input]->type());
  std::vector<torch::jit::Node*> norms;
  for_each_node(graph.block(), [&](torch::jit::Node* node) {
    if (reads_statistics(node))
      norms.push_back(node);
  });
  const auto as_seen = [&](torch::jit::Value* value) {
    const bool is_input = value->node() == graph.param_node() && value->offset() < count;
    return is_input && seen.count(value->offset()) != 0 ? seen.at(value->offset()) : value;
  };
  for (auto* node : norms) {
    const torch::jit::WithInsertPoint guard(node);
    auto* replay = graph.insert(symbols::kBatchNormAsSeen,
                                {node->input(0), node->input(1), node->input(2), node->input(3),
                                 node->input(4), as_seen(node->input(3)), as_seen(node->input(4)),
                                 node->input(6), node->input(7), node->input(8)});
    node->output()->replaceAllUsesWith(replay);
    node->destroy();
  }
}

// Leaves one output and what it needs. Random operators stay, because each has its place in the
// sequence of random numbers.
void keep_output(Graph& graph, size_t output) {
  for (size_t i = graph.outputs().size(); i-- > 0;) {
    if (i != output)
      graph.eraseOutput(i);
  }
  if (!draws_random_numbers(graph))
    torch::jit::EliminateDeadCode(graph.block());
}

// An operand that is read in place of an input.
struct Read {
  torch::jit::Node* node;              // of the graph's own block: the reader, or what it is in
  std::pair<size_t, size_t> position;  // among the operands of the reader, and in a list of these
  torch::jit::Use use;
};

// Appends the reads of the value as it is, and as a tensor that is known not to be None.
void find_reads(torch::jit::Value* value, std::vector<Read>& reads) {
  const auto* block = value->owningGraph()->block();
  for (const auto& use : value->uses()) {
    if (use.user->kind() == c10::prim::unchecked_cast && use.user->owningBlock() == block) {
      find_reads(use.user->output(), reads);
      continue;
    }
    Read read{use.user, {use.offset, 0}, use};
    if (read.node->kind() == c10::prim::ListConstruct && read.node->output()->uses().size() == 1) {
      const auto& of_list = read.node->output()->uses().front();
      read.node = of_list.user;
      read.position = {of_list.offset, use.offset};
    }
    while (read.node->owningBlock()->owningNode() != nullptr)
      read.node = read.node->owningBlock()->owningNode();
    reads.push_back(read);
  }
}

torch::jit::Value* insert_alias(torch::jit::Node* before, torch::jit::Value* value) {
  auto& graph = *before->owningGraph();
  const torch::jit::WithInsertPoint guard(before);
  if (value->type()->kind() != c10::TypeKind::TensorType)
    value = graph.insertUncheckedCast(value, c10::TensorType::get());
  return graph.insert(c10::aten::alias, {value});
}

// Gives each of the value's readers an alias of its own, and makes these outputs of the graph.
// Returns how many. The engine runs nodes in the reverse order of their making, and hands on
// gradients in the order of operands; the outputs are in this order. The readers of a cast that is
// shared take the place of the cast.
size_t give_aliases(torch::jit::Value* value, bool shares_cast) {
  auto& graph = *value->owningGraph();
  std::vector<Read> reads;
  find_reads(value, reads);
  std::sort(reads.begin(), reads.end(), [](const Read& a, const Read& b) {
    return a.node == b.node ? a.position < b.position : b.node->isBefore(a.node);
  });
  size_t count = 0;
  for (const auto& read : reads) {
    auto* reader = read.use.user;
    if (shares_cast && reader->kind() == c10::aten::to) {
      count += give_aliases(reader->output(), /*shares_cast=*/false);
      continue;
    }
    auto* before = reader->owningBlock() == graph.block() ? reader : read.node;
    auto* alias = insert_alias(before, reader->input(read.use.offset));
    reader->replaceInput(read.use.offset, alias);
    graph.registerOutput(alias);
    ++count;
  }
  return count;
}

// Gives the value's readers one alias, and makes it an output of the graph.
void give_alias(torch::jit::Value* value) {
  auto& graph = *value->owningGraph();
  const std::vector<torch::jit::Use> uses(value->uses());
  auto* alias = insert_alias(*graph.nodes().begin(), value);
  for (const auto& use : uses)
    use.user->replaceInput(use.offset, alias);
  graph.registerOutput(alias);
}

// Returns a copy of the graph without warnings and writes to its inputs.
std::shared_ptr<Graph> without_effects(const std::shared_ptr<Graph>& forward,
                                       std::optional<size_t> output) {
  auto graph = forward->copy();
  std::vector<torch::jit::Node*> nodes;
  for_each_node(graph->block(), [&](torch::jit::Node* node) { nodes.push_back(node); });
  for (auto* node : nodes) {
    if (node->kind() == c10::aten::warn) {
      node->destroy();
      continue;
    }
    if (reads_statistics(node))
      continue;
    for (auto operand : written_operands(node))
      copy_operand(node, operand);
  }
  read_seen_statistics(*graph);
  if (output)
    keep_output(*graph, *output);
  return for_autograd(*graph);
}

// Gives the readers of the inputs aliases that are outputs of the graph. Returns the input of each.
std::vector<size_t> give_aliases(Graph& graph, const std::vector<size_t>& inputs,
                                 const SharedCasts& shared) {
  bool takes_gradients = false;
  for_each_node(graph.block(), [&](const torch::jit::Node* node) {
    takes_gradients = takes_gradients || node->kind() == symbols::kGradient;
  });
  std::vector<size_t> aliases;
  for (auto input : inputs) {
    auto* value = graph.inputs()[input];
    size_t count = 1;
    // A gradient that the forward takes itself names a tensor, which other readers read as well.
    if (takes_gradients)
      give_alias(value);
    else
      count = give_aliases(value, shared.count(input) != 0);
    aliases.insert(aliases.end(), count, input);
  }
  return aliases;
}

}  // namespace

struct RegionReplay::Prepared {
  std::shared_ptr<Graph> graph;
  std::vector<size_t> aliases;
  bool reads_all = true;  // inputs that are not read count as read
};

RegionReplay::RegionReplay(const std::shared_ptr<Graph>& forward, size_t output)
    : RegionReplay(Prepared{without_effects(forward, output), {}, /*reads_all=*/false}) {}

RegionReplay::RegionReplay(const std::shared_ptr<Graph>& forward, const std::vector<size_t>& inputs,
                           const SharedCasts& shared)
    : RegionReplay([&] {
        Prepared prepared{without_effects(forward, {}), {}};
        prepared.aliases = give_aliases(*prepared.graph, inputs, shared);
        return prepared;
      }()) {}

RegionReplay::RegionReplay(Prepared&& prepared)
    : aliases_(std::move(prepared.aliases)), program_(std::move(prepared.graph)) {
  for (auto* input : program_.graph()->inputs())
    reads_input_.push_back(prepared.reads_all || input->hasUses());
}

std::vector<c10::IValue> RegionReplay::run(std::vector<c10::IValue> inputs) const {
  auto registers = program_.start(std::move(inputs));
  program_.run(registers, 0, program_.instructions().size());
  std::vector<c10::IValue> outputs;
  for (size_t i = 0; i < program_.outputs().size(); ++i)
    outputs.push_back(program_.take_output(registers, i));
  return outputs;
}

std::vector<bool> inputs_written_by(Graph& forward) {
  std::vector<bool> written(forward.inputs().size(), false);
  for_each_node(forward.block(), [&](const torch::jit::Node* node) {
    for (auto operand : written_operands(node)) {
      const auto* value = node->input(operand);
      if (value->node() == forward.param_node())
        written[value->offset()] = true;
    }
  });
  return written;
}

std::vector<size_t> statistics_read_by(Graph& forward) {
  std::set<size_t> inputs;
  for_each_node(forward.block(), [&](const torch::jit::Node* node) {
    for (size_t operand = 3; operand <= 4 && reads_statistics(node); ++operand) {
      const auto* value = node->input(operand);
      if (value->node() == forward.param_node())
        inputs.insert(value->offset());
    }
  });
  return {inputs.begin(), inputs.end()};
}

bool draws_random_numbers(Graph& forward) {
  bool found = false;
  for_each_node(forward.block(),
                [&](const torch::jit::Node* node) { found = found || may_be_random(node); });
  return found;
}

}  // namespace aten_recompute
