#include "rules/registry.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <unordered_map>

#include "ir/functionalize.h"
#include "ir/graph_device.h"
#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "rules/families.h"
#include "rules/script_source.h"
#include "rules/user_rules.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;

// Returns the identifiers in the formula that are not attributes of other names.
std::set<std::string> identifiers(const std::string& text) {
  static const std::regex pattern(R"((^|[^.\w])([A-Za-z_]\w*))");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    names.insert((*it)[2]);
  return names;
}

// Returns every name that a formula of this operator may use, with its TorchScript type. A forward
// may use arguments only, because it computes the results and extras.
std::vector<std::pair<std::string, std::string>> bindable_names(const Rule& rule, const Node* node,
                                                                bool is_forward) {
  const auto& schema = node->schema();
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& argument : schema.arguments())
    names.emplace_back(argument.name(), argument.type()->annotation_str());
  for (const auto& argument : schema.arguments()) {
    names.emplace_back("needs_" + argument.name(), "bool");
    names.emplace_back("requires_" + argument.name(), "bool");
    names.emplace_back("needs_each_" + argument.name(), "List[bool]");
    names.emplace_back("factors_of_" + argument.name(), "List[Tensor]");
  }
  names.emplace_back("is_real", "bool");
  if (is_forward)
    return names;
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const std::string suffix = i == 0 ? "" : std::to_string(i);
    names.emplace_back("result" + suffix, schema.returns()[i].type()->annotation_str());
    names.emplace_back("grad" + suffix, i == 0 ? "Tensor" : "Optional[Tensor]");
  }
  names.emplace_back("grads", "List[Optional[Tensor]]");
  for (const auto& extra : rule.extras) {
    // An extra is written "max_query: int" or "mask"; without a type it is a tensor.
    const auto colon = extra.find(':');
    names.emplace_back(extra.substr(0, colon),
                       colon == std::string::npos ? "Tensor" : extra.substr(colon + 2));
  }
  return names;
}

enum class FormulaKind : uint8_t { kForward, kGradient };

CompiledFormula compile(const Rule& rule, const Node* node, const std::string& body,
                        FormulaKind kind) {
  CompiledFormula compiled;
  std::ostringstream source;
  source << "def formula(";
  const auto used = identifiers(body);
  for (const auto& [name, type] : bindable_names(rule, node, kind == FormulaKind::kForward)) {
    if (used.count(name) == 0)
      continue;
    source << (compiled.parameters.empty() ? "" : ", ") << name << ": " << type;
    compiled.parameters.push_back(name);
  }
  source << "):\n";
  if (body.find("return") == std::string::npos)
    source << "    return " << body << "\n";
  else
    source << body << "\n";
  try {
    compiled.graph = compile_script(source.str());
  } catch (const std::exception& error) {
    throw std::logic_error("gradient rule for " + rule.op + " does not compile:\n" + source.str() +
                           error.what());
  }
  return compiled;
}

const CompiledFormula& cached(const Rule& rule, const Node* node, const std::string& body,
                              FormulaKind kind) {
  static std::mutex mutex;
  static std::unordered_map<std::string, CompiledFormula> cache;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto key = rule.op + "\n" + body;
  auto found = cache.find(key);
  if (found == cache.end())
    found = cache.emplace(key, compile(rule, node, body, kind)).first;
  return found->second;
}

struct Registry {
  std::vector<Rule> rules;
  std::unordered_map<std::string, size_t> by_op;

  Registry() {
    for (auto family :
         {&elementwise_rules, &matrix_rules, &convolution_rules, &normalization_rules,
          &activation_rules, &softmax_rules, &dropout_rules, &embedding_rules, &pooling_rules,
          &reduction_rules, &shape_rules, &indexing_rules, &loss_rules, &attention_rules,
          &recurrent_rules, &distance_rules, &spectral_rules, &formula_rules}) {
      for (auto& rule : family()) {
        if (!by_op.emplace(rule.op, rules.size()).second)
          throw std::logic_error("two gradient rules for " + rule.op);
        rules.push_back(std::move(rule));
      }
    }
  }
};

const Registry& registry() {
  static const Registry instance;
  return instance;
}

// Operators whose recomputation differs from their first run.
const std::unordered_map<std::string, Rule>& replays() {
  static const std::unordered_map<std::string, Rule> table = [] {
    std::unordered_map<std::string, Rule> rules;
    auto add = [&](std::string op, std::string body) {
      Rule rule{.op = op + " (replay)", .forward = std::move(body), .extras = {}, .gradients = {}};
      rules.emplace(std::move(op), std::move(rule));
    };
    // In training, batch norm takes its statistics from the batch. Without the running statistics
    // it computes the same output and does not change the buffers.
    add("aten::_batch_norm_impl_index",
        "    if training:\n"
        "        return torch._batch_norm_impl_index(input, weight, bias, None, None, training, "
        "momentum, eps, cudnn_enabled)\n"
        "    return torch._batch_norm_impl_index(input, weight, bias, running_mean, running_var, "
        "training, momentum, eps, cudnn_enabled)");
    add("aten_recompute::batch_norm",
        "    if training:\n"
        "        return recompute.batch_norm(input, weight, bias, None, None, training, momentum, "
        "eps, cudnn_enabled, lower, upper)\n"
        "    return recompute.batch_norm(input, weight, bias, running_mean, running_var, training, "
        "momentum, eps, cudnn_enabled, lower, upper)");
    add("aten_recompute::instance_norm",
        "recompute.batch_norm(input, weight, bias, None, None, True, momentum, eps, "
        "cudnn_enabled)");
    return rules;
  }();
  return table;
}

// A replay from outputs that were kept. It is used if the argument `where` is True, or if `where`
// is empty.
struct ReplaySource {
  Rule rule;  // its only formula computes the outputs
  std::string where;
  std::vector<size_t> gives_outputs;
};

const std::unordered_map<std::string, ReplaySource>& replays_from_outputs() {
  static const std::unordered_map<std::string, ReplaySource> table = {
      {"aten::_batch_norm_impl_index",
       {{.op = "aten::_batch_norm_impl_index (replay from statistics)",
         .gradients = {{"",
                        "recompute.batch_norm_from_statistics(input, weight, bias, result1, "
                        "result2, result4, eps, cudnn_enabled)"}}},
        "training",
        {0}}},
      {"aten_recompute::batch_norm",
       {{.op = "aten_recompute::batch_norm (replay from statistics)",
         .gradients = {{"",
                        "recompute.batch_norm_from_statistics(input, weight, bias, result1, "
                        "result2, result4, eps, cudnn_enabled, lower, upper)"}}},
        "training",
        {0}}},
      {"aten_recompute::instance_norm",
       {{.op = "aten_recompute::instance_norm (replay from statistics)",
         .gradients = {{"",
                        "recompute.batch_norm_from_statistics(input, weight, bias, result1, "
                        "result2, result4, eps, cudnn_enabled)"}}},
        "",
        {0}}}};
  return table;
}

// Returns the indices of the outputs among the formula's parameters: result is 0, result1 is 1.
std::vector<size_t> outputs_read(const CompiledFormula& formula) {
  std::set<size_t> outputs;
  for (const auto& name : formula.parameters) {
    if (name.rfind("result", 0) == 0)
      outputs.insert(name == "result" ? 0 : std::stoul(name.substr(6)));
  }
  return {outputs.begin(), outputs.end()};
}

}  // namespace

const std::vector<Rule>& all_rules() {
  return registry().rules;
}

bool has_builtin_rule(const std::string& op) {
  return registry().by_op.count(op) != 0 || replays().count(op) != 0;
}

const Rule* find_rule(const Node* node) {
  if (node->maybeSchema() == nullptr)
    return nullptr;
  if (const auto* users = user_rule(node); users != nullptr && !users->rule.gradients.empty())
    return &users->rule;
  const auto found = registry().by_op.find(qualified_operator_name(node));
  return found == registry().by_op.end() ? nullptr : &registry().rules[found->second];
}

const CompiledFormula& compiled_gradient(const Rule& rule, size_t index, const Node* node) {
  const auto& formula = rule.gradients.at(index);
  if (formula.compiled != nullptr)
    return *formula.compiled;
  if (node->hasAttribute(kKeepsType) && node->kind() == c10::aten::to) {
    static const std::string unchanged = "grad";
    return cached(rule, node, unchanged, FormulaKind::kGradient);
  }
  const bool is_of_square = !formula.of_square.empty() && node->input(0) == node->input(1);
  return cached(rule, node, is_of_square ? formula.of_square : formula.body,
                FormulaKind::kGradient);
}

const CompiledFormula& compiled_again(const Rule& rule, size_t index, const Node* node) {
  const auto& formula = rule.gradients.at(index);
  return formula.again.empty() ? compiled_gradient(rule, index, node)
                               : cached(rule, node, formula.again, FormulaKind::kGradient);
}

const CompiledFormula& compiled_forward(const Rule& rule, const Node* node) {
  return rule.given_forward != nullptr ? *rule.given_forward
                                       : cached(rule, node, rule.forward, FormulaKind::kForward);
}

const CompiledFormula* compiled_parts(const Rule& rule, const Node* node) {
  if (rule.on_cpu_only && !inputs_are_on_cpu(*node->owningGraph()))
    return nullptr;
  if (rule.compose == nullptr)
    return &compiled_forward(rule, node);
  const auto forward = rule.compose(node);
  return forward.empty() ? nullptr : &cached(rule, node, forward, FormulaKind::kForward);
}

const CompiledFormula* compiled_replay(const Node* node) {
  if (node->maybeSchema() == nullptr)
    return nullptr;
  if (const auto* users = user_rule(node); users != nullptr && users->replay != nullptr)
    return users->replay.get();
  const auto found = replays().find(qualified_operator_name(node));
  if (found == replays().end())
    return nullptr;
  return &cached(found->second, node, found->second.forward, FormulaKind::kForward);
}

const Replay* find_replay(const Node* node) {
  if (node->maybeSchema() == nullptr)
    return nullptr;
  const auto found = replays_from_outputs().find(qualified_operator_name(node));
  if (found == replays_from_outputs().end())
    return nullptr;
  const auto& source = found->second;
  if (!source.where.empty()) {
    const auto where = node->schema().argumentIndexWithName(source.where);
    const auto constant = torch::jit::toIValue(node->input(static_cast<size_t>(where.value())));
    if (!constant || !constant->isBool() || !constant->toBool())
      return nullptr;
  }
  static std::mutex mutex;
  static std::unordered_map<std::string, Replay> cache;
  const std::lock_guard<std::mutex> lock(mutex);
  auto replay = cache.find(source.rule.op);
  if (replay == cache.end()) {
    const auto& formula = compiled_gradient(source.rule, 0, node);
    replay =
        cache.emplace(source.rule.op, Replay{formula, outputs_read(formula), source.gives_outputs})
            .first;
  }
  return &replay->second;
}

}  // namespace aten_recompute
