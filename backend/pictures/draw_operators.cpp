#include "backend/pictures/draw_operators.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute::drawing {
namespace {

using torch::jit::Gradient;
using torch::jit::Node;
using torch::jit::Value;

std::string name_of_operator(const Node* node) {
  const std::string name = node->kind().toUnqualString();
  return name == "ListConstruct" ? "list" : name == "ListUnpack" ? "elements of list" : name;
}

std::string path_of(const Node* node) {
  return node->hasAttribute(symbols::kModulePath) ? node->s(symbols::kModulePath) : "";
}

// Returns the name of the forward value that a recomputed value is a copy of.
std::string original_name(const std::string& name) {
  const auto end = name.rfind("_recomputed");
  return end == std::string::npos ? name : name.substr(0, end);
}

// Reads the operators of a region's forward and backward.
class RegionReader {
 public:
  RegionReader(Operators& result, size_t region, const Gradient& gradient, const Problem* problem,
               const std::vector<bool>& is_attribute)
      : result_(result),
        region_(region),
        gradient_(gradient),
        problem_(problem),
        is_attribute_(is_attribute) {
    if (problem_ == nullptr)
      return;
    for (size_t value = 0; value < problem_->num_values(); ++value)
      values_.emplace(problem_->value_names[value], static_cast<int32_t>(value));
  }

  void read(DrawnPart part) {
    find_states();
    if (part != DrawnPart::kBackward)
      read_forward();
    else
      read_captures_only();
    if (part != DrawnPart::kForward)
      read_backward();
    find_layers();
  }

 private:
  bool is_parameter(size_t input) const {
    return input < is_attribute_.size() && is_attribute_[input];
  }

  Memory memory_of(const std::string& name) const {
    Memory memory;
    auto found = values_.find(name);
    if (found == values_.end())
      found = values_.find(original_name(name));
    if (found == values_.end())
      return memory;
    for (auto storage : problem_->storages[found->second]) {
      if (problem_->held[storage] != 0)
        continue;
      memory.storages.push_back(storage);
      memory.bytes += problem_->bytes[storage];
    }
    return memory;
  }

  // A view that is kept keeps the memory of what it views.
  void mark_saved(Value* value) {
    saved_.insert(value);
    while (is_pure_view(value->node()) && !value->node()->inputs().empty()) {
      value = value->node()->input(0);
      saved_.insert(value);
    }
  }

  void find_states() {
    for (auto output : gradient_.df_input_captured_outputs)
      mark_saved(gradient_.f->outputs()[output]);
    for (auto* node : gradient_.df->nodes()) {
      if (!node->hasAttribute(symbols::kRecomputed))
        continue;
      for (auto* output : node->outputs())
        recomputed_.insert(original_name(output->debugName()));
    }
  }

  State forward_state(const Node* node) const {
    State state = State::kPlain;
    for (auto* output : node->outputs()) {
      if (!contains_tensor(*output->type()))
        continue;
      if (saved_.count(output) != 0)
        return State::kSaved;
      const auto& name = output->debugName();
      if (recomputed_.count(name) != 0 || recomputed_.count("v" + name) != 0)
        state = State::kDropped;
    }
    return state;
  }

  int add(Op op, Memory memory = {}) {
    op.region = region_;
    result_.ops.push_back(std::move(op));
    result_.memory.push_back(std::move(memory));
    return static_cast<int>(result_.ops.size()) - 1;
  }

  void connect(int from, int to, Value* value, bool is_saved = false) {
    const auto& name = value->debugName();
    result_.flows.push_back({from, to, memory_of(name), name, is_saved, false});
  }

  void add_operator(Node* node, bool in_backward, State state) {
    const bool has_tensors =
        std::any_of(node->outputs().begin(), node->outputs().end(),
                    [](auto* output) { return contains_tensor(*output->type()); });
    if (node->kind() == c10::prim::Constant || !has_tensors)
      return;
    std::string label = name_of_operator(node);
    Memory memory;
    for (auto* output : node->outputs()) {
      if (!contains_tensor(*output->type()))
        continue;
      const auto& name = output->debugName();
      if (!in_backward && output == node->output(0) && output->hasDebugName())
        label += "\\n" + name;
      auto own = memory_of(name);
      memory.bytes += own.bytes;
      memory.storages.insert(memory.storages.end(), own.storages.begin(), own.storages.end());
    }
    if (state == State::kRecomputed)
      label += "\\nagain: " + original_name(node->output(0)->debugName());
    else if (in_backward && node->hasAttribute(symbols::kBackwardOf))
      label += "\\nbackward of " + short_name(node->s(symbols::kBackwardOf));
    const bool is_list = node->kind() == c10::prim::ListConstruct ||
                         (node->hasAttribute(symbols::kBackwardOf) &&
                          node->s(symbols::kBackwardOf) == c10::prim::ListConstruct.toQualString());
    const int op = add({.in_backward = in_backward,
                        .state = state,
                        .label = std::move(label),
                        .path = path_of(node),
                        .is_list = is_list},
                       std::move(memory));
    for (auto* input : node->inputs()) {
      const auto found = made_by_.find(input);
      if (found != made_by_.end() && contains_tensor(*input->type()))
        connect(found->second, op, input, captured_.count(input) != 0);
    }
    for (auto* output : node->outputs()) {
      made_by_[output] = op;
      if (!in_backward)
        result_.producers[{region_, output->debugName()}] = op;
    }
  }

  static std::string short_name(const std::string& qualified) {
    const auto colons = qualified.rfind("::");
    return colons == std::string::npos ? qualified : qualified.substr(colons + 2);
  }

  void read_forward() {
    const auto inputs = gradient_.f->inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_parameter(i) || !contains_tensor(*inputs[i]->type()))
        continue;
      made_by_[inputs[i]] = add({.role = Role::kInput, .label = "input " + inputs[i]->debugName()});
      result_.producers[{region_, inputs[i]->debugName()}] = made_by_[inputs[i]];
    }
    for (auto* node : gradient_.f->nodes())
      add_operator(node, /*in_backward=*/false, forward_state(node));
    for (size_t i = 0; i < gradient_.f_real_outputs; ++i) {
      auto* output = gradient_.f->outputs()[i];
      const auto found = made_by_.find(output);
      if (found == made_by_.end() || !contains_tensor(*output->type()))
        continue;
      outputs_[i] = add({.role = Role::kOutput, .label = "output " + output->debugName()});
      connect(found->second, outputs_[i], output);
    }
  }

  // What the backward finds in memory, in place of the forward.
  void read_captures_only() {
    for (auto index : gradient_.df_input_captured_outputs) {
      auto* value = gradient_.f->outputs()[index];
      if (!contains_tensor(*value->type()))
        continue;
      made_by_[value] =
          add({.state = State::kSaved, .label = value->debugName(), .path = path_of(value->node())},
              memory_of(value->debugName()));
    }
    for (auto index : gradient_.df_input_captured_inputs) {
      auto* value = gradient_.f->inputs()[index];
      if (!is_parameter(index) && contains_tensor(*value->type()))
        made_by_[value] = add({.role = Role::kInput, .label = "input " + value->debugName()});
    }
  }

  void read_backward() {
    const auto inputs = gradient_.df->inputs();
    size_t next = 0;
    for (auto output : gradient_.df_input_vjps) {
      auto* vjp = inputs[next++];
      made_by_[vjp] = add({.in_backward = true,
                           .role = Role::kIncoming,
                           .label = "gradient of " + gradient_.f->outputs()[output]->debugName()});
      if (const auto found = outputs_.find(output); found != outputs_.end()) {
        result_.flows.push_back(
            {found->second, made_by_[vjp], memory_of(vjp->debugName()), "", false, true});
      }
    }
    const auto follow = [&](Value* in_backward, Value* in_forward, bool is_saved) {
      if (const auto found = made_by_.find(in_forward); found != made_by_.end()) {
        const int op = found->second;
        made_by_[in_backward] = op;
        if (is_saved)
          captured_.insert(in_backward);
      }
    };
    for (auto input : gradient_.df_input_captured_inputs)
      follow(inputs[next++], gradient_.f->inputs()[input], false);
    for (auto output : gradient_.df_input_captured_outputs)
      follow(inputs[next++], gradient_.f->outputs()[output], true);
    for (auto* node : gradient_.df->nodes()) {
      add_operator(node, /*in_backward=*/true,
                   node->hasAttribute(symbols::kRecomputed) ? State::kRecomputed : State::kPlain);
    }
    for (size_t i = 0; i < gradient_.df_output_vjps.size() && i < gradient_.df->outputs().size();
         ++i) {
      const auto input = gradient_.df_output_vjps[i];
      auto* result = gradient_.df->outputs()[i];
      const auto found = made_by_.find(result);
      if (is_parameter(input) || found == made_by_.end())
        continue;
      const int op = add({.in_backward = true,
                          .role = Role::kGradient,
                          .label = "gradient of " + gradient_.f->inputs()[input]->debugName()});
      connect(found->second, op, result);
    }
  }

  // A layer is what the modules of its operators have in common.
  void find_layers() {
    std::map<int64_t, std::vector<std::string>> layers;
    for (auto* node : gradient_.f->nodes()) {
      if (!node->hasAttribute(symbols::kLayer) || !node->hasAttribute(symbols::kModulePath))
        continue;
      auto atoms = atoms_of(path_of(node));
      const auto [found, is_new] = layers.emplace(node->i(symbols::kLayer), atoms);
      if (is_new)
        continue;
      auto& common = found->second;
      const auto [end, unused] =
          std::mismatch(common.begin(), common.end(), atoms.begin(), atoms.end());
      common.erase(end, common.end());
    }
    for (auto& [number, atoms] : layers)
      result_.layers.push_back(std::move(atoms));
  }

  Operators& result_;
  const size_t region_;
  const Gradient& gradient_;
  const Problem* problem_;
  const std::vector<bool>& is_attribute_;
  std::unordered_map<std::string, int32_t> values_;  // of the problem, by name
  std::unordered_map<Value*, int> made_by_;
  std::unordered_set<const Value*> saved_;  // of the forward
  std::unordered_set<Value*> captured_;     // inputs of the backward that the forward made
  std::unordered_set<std::string> recomputed_;
  std::map<size_t, int> outputs_;
};

// Passes put lists together without saying for which module: a list belongs to what reads it, and
// its gradients to where they come from.
void place_lists(Operators& operators) {
  for (const auto& flow : operators.flows) {
    auto& from = operators.ops[flow.from];
    auto& to = operators.ops[flow.to];
    if (from.is_list && !from.in_backward && from.path.empty())
      from.path = to.path;
    if (to.is_list && to.in_backward && to.path.empty())
      to.path = from.path;
  }
}

// Removes operators that neither read nor give anything that is drawn, such as updates of counters.
void remove_isolated(Operators& operators) {
  std::vector<bool> is_connected(operators.ops.size(), false);
  for (const auto& flow : operators.flows)
    is_connected[flow.from] = is_connected[flow.to] = true;
  std::vector<int> place(operators.ops.size());
  size_t count = 0;
  for (size_t i = 0; i < operators.ops.size(); ++i) {
    if (!is_connected[i] && operators.ops.size() > 1)
      continue;
    place[i] = static_cast<int>(count);
    operators.ops[count] = operators.ops[i];
    operators.memory[count] = operators.memory[i];
    ++count;
  }
  operators.ops.resize(count);
  operators.memory.resize(count);
  for (auto& flow : operators.flows) {
    flow.from = place[flow.from];
    flow.to = place[flow.to];
  }
}

}  // namespace

std::vector<std::string> atoms_of(const std::string& path) {
  std::vector<std::string> atoms;
  std::istringstream stream(path);
  for (std::string atom; std::getline(stream, atom, '.');)
    atoms.push_back(atom);
  return atoms;
}

void read_operators(Operators& operators, size_t region, const Gradient& gradient,
                    const Problem* problem, const std::vector<bool>& is_attribute, DrawnPart part) {
  RegionReader(operators, region, gradient, problem, is_attribute).read(part);
}

void finish_reading(Operators& operators) {
  place_lists(operators);
  remove_isolated(operators);
}

}  // namespace aten_recompute::drawing
