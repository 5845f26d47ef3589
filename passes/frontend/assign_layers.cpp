#include "passes/frontend/assign_layers.h"

#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> atoms;
  std::istringstream stream(path);
  for (std::string atom; std::getline(stream, atom, '.');)
    atoms.push_back(atom);
  return atoms;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns "Block" for __torch__.model.___torch_mangle_3.Block, so that equal modules have the same
// name.
std::string class_name(const c10::ClassTypePtr& type) {
  return type->name()->name();
}

// Returns the class names of a container's children by index; empty for other modules.
std::vector<std::string> children_of_container(const c10::ClassTypePtr& type) {
  std::map<size_t, std::string> children;
  for (size_t i = 0; i < type->numAttributes(); ++i) {
    auto child = type->getAttribute(i)->cast<c10::ClassType>();
    if (child == nullptr || !child->is_module())
      continue;
    if (!is_number(type->getAttributeName(i)))
      return {};
    children[std::stoul(type->getAttributeName(i))] = class_name(child);
  }
  std::vector<std::string> names;
  for (auto& [index, name] : children) {
    if (index != names.size())
      return {};
    names.push_back(std::move(name));
  }
  return names;
}

// Returns the number of the layer, within its container, that child `index` belongs to; nullopt if
// no class occurs twice, or if the child comes before the first layer.
std::optional<size_t> layer_in_container(const std::vector<std::string>& children, size_t index) {
  std::map<std::string, size_t> counts;
  for (const auto& child : children)
    ++counts[child];
  std::string like;
  for (const auto& child : children) {
    if (counts[child] >= 2) {
      like = child;
      break;
    }
  }
  if (like.empty())
    return std::nullopt;
  size_t begun = 0;
  for (size_t i = 0; i <= index; ++i)
    begun += children[i] == like ? 1 : 0;
  if (begun == 0)
    return std::nullopt;
  return begun - 1;
}

// Returns a name for the layer that contains a module path, such as "blocks#3"; empty if there is
// none. `type` is the root module's class.
std::string layer_key(const std::string& path, c10::ClassTypePtr type,
                      const std::optional<std::regex>& pattern) {
  std::string prefix;
  for (const auto& atom : split(path)) {
    const auto here = prefix.empty() ? atom : prefix + "." + atom;
    if (pattern) {
      if (std::regex_match(here, *pattern))
        return here;
    } else if (is_number(atom)) {
      const auto children = children_of_container(type);
      const auto index = std::stoul(atom);
      if (index < children.size()) {
        if (const auto layer = layer_in_container(children, index)) {
          return prefix + "#" + std::to_string(*layer);
        }
      }
    }
    const auto slot = type->findAttributeSlot(atom);
    auto next = slot ? type->getAttribute(*slot)->cast<c10::ClassType>() : nullptr;
    if (next == nullptr)
      return "";
    type = next;
    prefix = here;
  }
  return "";
}

class LayerAssigner {
 public:
  LayerAssigner(c10::ClassTypePtr root, const std::string& pattern) : root_(std::move(root)) {
    if (pattern.empty())
      return;
    try {
      pattern_ = std::regex(pattern);
    } catch (const std::regex_error& error) {
      throw std::invalid_argument("layer pattern \"" + pattern +
                                  "\" is not a regular expression: " + error.what());
    }
  }

  void run(Block* block) {
    for (auto* node : block->nodes()) {
      if (node->hasAttribute(symbols::kModulePath))
        assign(node);
      for (auto* inner : node->blocks())
        run(inner);
    }
  }

  size_t num_layers() const { return numbers_.size(); }

  // Returns some of the module paths that were looked at, for a message.
  std::string some_paths() const {
    constexpr size_t kMost = 8;
    std::string text;
    size_t count = 0;
    for (const auto& [path, layer] : keys_) {
      if (path.empty())
        continue;
      if (++count > kMost)
        return text + ", ...";
      text += (text.empty() ? "" : ", ") + path;
    }
    return text.empty() ? "none" : text;
  }

 private:
  void assign(Node* node) {
    const auto& path = node->s(symbols::kModulePath);
    auto found = keys_.find(path);
    if (found == keys_.end()) {
      found = keys_.emplace(path, layer_key(path, root_, pattern_)).first;
    }
    if (found->second.empty())
      return;
    const auto number = numbers_.emplace(found->second, numbers_.size()).first->second;
    node->i_(symbols::kLayer, static_cast<int64_t>(number));
  }

  c10::ClassTypePtr root_;
  std::optional<std::regex> pattern_;
  std::map<std::string, std::string> keys_;  // module path -> layer
  std::map<std::string, size_t> numbers_;    // layer -> number
};

}  // namespace

void assign_layers(const std::shared_ptr<Graph>& graph, const std::string& pattern) {
  if (!torch::jit::findAllNodes(*graph, symbols::kMarkLayer, /*recurse=*/true).empty())
    return;
  auto root = graph->inputs()[0]->type()->cast<c10::ClassType>();
  if (root == nullptr)
    return;
  LayerAssigner assigner(root, pattern);
  assigner.run(graph->block());
  if (!pattern.empty() && assigner.num_layers() == 0) {
    throw std::invalid_argument("layer pattern \"" + pattern +
                                "\" matches no module path; the modules that run are " +
                                assigner.some_paths());
  }
}

}  // namespace aten_recompute
