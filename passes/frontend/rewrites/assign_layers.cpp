#include "passes/frontend/rewrites/assign_layers.h"

#include <aten_recompute/errors.h>

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/layer_pattern.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

[[noreturn]] void fail_to_match(const std::string& message) {
  InvalidOptionError error(message);
  error.option = "pattern";
  error.raise_as_invalid_argument();
}

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
  constexpr size_t kMostDigits = 9;  // a module may call an attribute anything
  return !text.empty() && text.size() <= kMostDigits &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns "Block" for __torch__.model.___torch_mangle_3.Block, so that equal modules have the same
// name.
std::string class_name(const c10::ClassTypePtr& type) {
  return type->name()->name();
}

// What layers need to know of a module's class. A container of many layers is asked once for each.
struct ModuleClass {
  std::unordered_map<std::string, c10::ClassTypePtr> children;
  // Per child of a container: the number of the layer, within the container, that it belongs to;
  // nullopt if it comes before the first layer. Empty for modules that contain no layers.
  std::vector<std::optional<size_t>> layers;
};

// Returns the class names of a container's children by index; empty for other modules.
std::vector<std::string> children_of_container(const ModuleClass& module) {
  std::map<size_t, std::string> children;
  for (const auto& [name, child] : module.children) {
    if (!child->is_module())
      continue;
    if (!is_number(name))
      return {};
    children[std::stoul(name)] = class_name(child);
  }
  std::vector<std::string> names;
  for (auto& [index, name] : children) {
    if (index != names.size())
      return {};
    names.push_back(std::move(name));
  }
  return names;
}

// Each child of the first class that occurs twice begins a layer.
std::vector<std::optional<size_t>> layers_of_container(const std::vector<std::string>& children) {
  std::map<std::string, size_t> counts;
  for (const auto& child : children)
    ++counts[child];
  const auto like = std::find_if(children.begin(), children.end(),
                                 [&](const auto& child) { return counts[child] >= 2; });
  if (like == children.end())
    return {};
  std::vector<std::optional<size_t>> layers;
  std::optional<size_t> layer;
  for (const auto& child : children) {
    if (child == *like)
      layer = layer ? *layer + 1 : 0;
    layers.push_back(layer);
  }
  return layers;
}

ModuleClass describe(const c10::ClassTypePtr& type) {
  ModuleClass module;
  for (size_t i = 0; i < type->numAttributes(); ++i) {
    if (auto child = type->getAttribute(i)->cast<c10::ClassType>())
      module.children.emplace(type->getAttributeName(i), std::move(child));
  }
  module.layers = layers_of_container(children_of_container(module));
  return module;
}

class LayerAssigner {
 public:
  LayerAssigner(c10::ClassTypePtr root, const std::string& pattern) : root_(std::move(root)) {
    if (pattern.empty())
      return;
    pattern_ = compile_layer_pattern(pattern);
    if (!pattern_) {
      fail_to_match("layer pattern \"" + pattern + "\" is not a regular expression of at most " +
                    std::to_string(kLongestPattern) + " characters without back-references");
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
    if (found == keys_.end())
      found = keys_.emplace(path, layer_key(path)).first;
    if (found->second.empty())
      return;
    const auto number = numbers_.emplace(found->second, numbers_.size()).first->second;
    node->i_(symbols::kLayer, static_cast<int64_t>(number));
  }

  const ModuleClass& class_of(const c10::ClassTypePtr& type) {
    const auto found = classes_.find(type.get());
    return found != classes_.end() ? found->second
                                   : classes_.emplace(type.get(), describe(type)).first->second;
  }

  // Returns a name for the layer that contains a module path, such as "blocks#3"; empty if there is
  // none.
  std::string layer_key(const std::string& path) {
    std::string prefix;
    auto type = root_;
    for (const auto& atom : split(path)) {
      auto here = prefix.empty() ? atom : prefix + "." + atom;
      const auto& module = class_of(type);
      if (pattern_) {
        if (std::regex_match(here, *pattern_))
          return here;
      } else if (is_number(atom)) {
        const auto index = std::stoul(atom);
        if (index < module.layers.size() && module.layers[index])
          return prefix + "#" + std::to_string(*module.layers[index]);
      }
      const auto child = module.children.find(atom);
      if (child == module.children.end())
        return "";
      type = child->second;
      prefix = here;
    }
    return "";
  }

  c10::ClassTypePtr root_;
  std::unordered_map<const c10::ClassType*, ModuleClass> classes_;
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
    fail_to_match("layer pattern \"" + pattern +
                  "\" matches no module path; the modules that run are " + assigner.some_paths());
  }
}

}  // namespace aten_recompute
