#include "backend/pictures/draw_modules.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "common/did_you_mean.h"

namespace aten_recompute::drawing {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// ModuleList, Sequential and the like: what counts is inside of them.
bool is_container(const ModuleTree& module) {
  return !module.children.empty() &&
         std::all_of(module.children.begin(), module.children.end(),
                     [](const auto& child) { return is_number(child.first); });
}

void expand_all(ModuleTree& module) {
  module.is_expanded = true;
  for (auto& [name, child] : module.children)
    expand_all(child);
}

// A container that is seen is opened, too.
void expand(ModuleTree& module) {
  module.is_expanded = true;
  for (auto& [name, child] : module.children) {
    if (is_container(child))
      expand(child);
  }
}

size_t num_boxes(const ModuleTree& module) {
  if (!module.is_expanded)
    return 1;
  size_t count = std::min(module.num_own_operators, kMostOwnOperators);
  for (const auto& [name, child] : module.children)
    count += num_boxes(child);
  return count;
}

// Expands the modules of one level, those that are collapsed and seen. Returns whether there were
// any to expand.
bool expand_level(ModuleTree& module) {
  if (!module.is_expanded) {
    expand(module);
    return !module.children.empty();
  }
  bool any = false;
  for (auto& [name, child] : module.children)
    any = expand_level(child) || any;
  return any;
}

ModuleTree* find_module(ModuleTree& root, const std::vector<std::string>& atoms) {
  auto* module = &root;
  for (const auto& atom : atoms) {
    const auto found = module->children.find(atom);
    if (found == module->children.end())
      return nullptr;
    module = &found->second;
  }
  return module;
}

void list_paths(const ModuleTree& module, const std::string& prefix,
                std::vector<std::string>& paths) {
  for (const auto& [name, child] : module.children) {
    const auto path = prefix.empty() ? name : prefix + "." + name;
    paths.push_back(path);
    list_paths(child, path, paths);
  }
}

[[noreturn]] void throw_unknown_layer(const ModuleTree& root, const std::string& layer) {
  constexpr size_t kMost = 8;
  std::vector<std::string> paths;
  list_paths(root, "", paths);
  const auto hint = did_you_mean(layer, paths);
  std::string known;
  if (hint.empty()) {
    std::stable_sort(paths.begin(), paths.end(), [](const auto& a, const auto& b) {
      return std::count(a.begin(), a.end(), '.') < std::count(b.begin(), b.end(), '.');
    });
    for (size_t i = 0; i < std::min(paths.size(), kMost); ++i)
      known += (i == 0 ? "; there are " : ", ") + paths[i];
    known += paths.size() > kMost ? ", ..." : "";
  }
  throw std::invalid_argument("no operator belongs to a layer \"" + layer + "\"" +
                              (paths.empty() ? ", nor to any other" : hint + known));
}

ModuleTree build_modules(const Operators& operators) {
  ModuleTree root;
  for (const auto& op : operators.ops) {
    if (op.role != Role::kOperator)
      continue;
    auto* module = &root;
    ++module->num_operators;
    for (const auto& atom : atoms_of(op.path)) {
      module = &module->children[atom];
      ++module->num_operators;
    }
    ++module->num_own_operators;
  }
  return root;
}

}  // namespace

ModuleTree::Place ModuleTree::place_of(const std::string& path) const {
  const auto* module = this;
  std::string cluster;
  for (const auto& atom : atoms_of(path)) {
    const auto here = cluster.empty() ? atom : cluster + "." + atom;
    module = &module->children.at(atom);
    if (!module->is_expanded)
      return {cluster, here};
    cluster = here;
  }
  return {cluster, ""};
}

ModuleTree choose_expanded(const Operators& operators, const std::string& layer) {
  auto root = build_modules(operators);
  if (layer.empty() && root.num_operators <= kMostOperators) {
    expand_all(root);
    return root;
  }
  expand(root);
  for (const auto& atoms : operators.layers) {
    auto* module = &root;
    for (size_t i = 0; i < atoms.size() && module != nullptr; ++i) {
      expand(*module);
      module = find_module(*module, {atoms[i]});
    }
  }
  while (operators.layers.empty()) {
    auto deeper = root;
    if (!expand_level(deeper) || num_boxes(deeper) > kMostBoxes)
      break;
    root = std::move(deeper);
  }
  if (layer.empty())
    return root;
  const auto atoms = atoms_of(layer);
  if (atoms.empty() || find_module(root, atoms) == nullptr)
    throw_unknown_layer(root, layer);
  auto* module = &root;
  for (const auto& atom : atoms) {
    module->is_expanded = true;
    module = &module->children.at(atom);
  }
  if (module->num_operators <= kMostOperatorsOfLayer)
    expand_all(*module);
  else
    expand(*module);
  return root;
}

}  // namespace aten_recompute::drawing
