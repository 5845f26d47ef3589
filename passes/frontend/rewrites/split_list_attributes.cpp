#include "passes/frontend/rewrites/split_list_attributes.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <unordered_set>
#include <utility>

#include "ir/attribute_path.h"
#include "ir/node_traits.h"
#include "passes/frontend/rewrites/structure.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Use;
using torch::jit::Value;
namespace aten = c10::aten;
namespace prim = c10::prim;

// Returns the reads of attributes that are lists of tensors.
std::vector<Node*> list_reads(Graph& graph) {
  std::vector<Node*> reads;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == prim::GetAttr &&
        node->output()->type()->isSubtypeOf(*c10::ListType::ofTensors()))
      reads.push_back(node);
  });
  return reads;
}

// Returns whether the node takes tensors out of a list, or asks for its length.
bool reads_elements(const Node* node) {
  return node->kind() == aten::__getitem__ || node->kind() == prim::ListUnpack ||
         node->kind() == aten::len;
}

bool takes_list(const Use& use) {
  return use.user->maybeSchema() != nullptr && !reads_elements(use.user);
}

// Returns the names of lists that an operator may change, or that leave the graph.
std::unordered_set<std::string> changed_lists(const std::vector<Node*>& reads) {
  std::unordered_set<std::string> names;
  for (const auto* read : reads) {
    for (const auto& use : read->output()->uses()) {
      const bool is_read_only =
          reads_elements(use.user) || (takes_list(use) && !mutates_an_argument(use.user));
      if (!is_read_only)
        names.insert(read->s(c10::attr::name));
    }
  }
  return names;
}

std::vector<Value*> insert_elements(Graph& graph, Node* read, size_t count) {
  const torch::jit::WithInsertPoint guard(read->next());
  std::vector<Value*> elements;
  for (size_t i = 0; i < count; ++i) {
    auto* index = graph.insertConstant(static_cast<int64_t>(i));
    auto* element = graph.insert(aten::__getitem__, {read->output(), index});
    element->node()->setSourceRange(read->sourceRange());
    elements.push_back(element);
  }
  return elements;
}

}  // namespace

std::vector<FoldedAttribute> split_list_attributes(
    const std::shared_ptr<Graph>& graph, const c10::intrusive_ptr<c10::ivalue::Object>& root) {
  auto excluded = set_attributes(*graph);
  const auto reads = list_reads(*graph);
  excluded.merge(changed_lists(reads));
  std::vector<FoldedAttribute> folded;
  for (auto* read : reads) {
    std::vector<Use> taken;
    for (const auto& use : read->output()->uses()) {
      if (takes_list(use))
        taken.push_back(use);
    }
    auto path = path_from_root(read->output(), *graph);
    if (taken.empty() || !path || excluded.count(read->s(c10::attr::name)) != 0)
      continue;
    const auto value = read_path(root, *path);
    if (!value || !value->isTensorList())
      continue;
    const auto elements = insert_elements(*graph, read, value->toTensorList().size());
    for (const auto& use : taken) {
      const torch::jit::WithInsertPoint guard(use.user);
      auto* list = graph->insertNode(graph->createList(c10::TensorType::get(), elements));
      list->copyMetadata(use.user);
      use.user->replaceInput(use.offset, list->output());
    }
    FoldedAttribute attribute;
    attribute.path = std::move(*path);
    attribute.structure = std::make_shared<Structure>(Structure::of(*value));
    folded.push_back(std::move(attribute));
  }
  return folded;
}

}  // namespace aten_recompute
