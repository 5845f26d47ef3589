// The rules that a program registered (include/aten_recompute/register_rule.h), in the form that
// passes use.
//
// A region is compiled a second time when its method is planned, and must become the same graph
// then, even if other threads register rules meanwhile. So a region keeps the set of rules that was
// registered when it was formed.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "ir/registered_facts.h"
#include "rules/rule.h"

namespace torch::jit {
struct Code;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

struct UserRule {
  Rule rule;  // without gradients, this library's rule or the tape is used
  std::shared_ptr<const CompiledFormula> replay;
  std::shared_ptr<const CompiledFormula> flops;
  std::shared_ptr<const torch::jit::Code> flops_code;
  RegisteredFacts facts;

  bool is_empty() const {
    return !facts.has_gradients && !facts.has_replay && flops == nullptr && !facts.random &&
           facts.recomputable;
  }
};

// Key: schema name with overload. A set is never changed: registering a rule makes a new set.
using UserRules = std::unordered_map<std::string, std::shared_ptr<const UserRule>>;

// Returns the rules that are registered at present. Thread-safe.
std::shared_ptr<const UserRules> registered_rules();

// Registers `rule`; an empty rule removes the one that was registered before. Returns false if
// there is a rule already and `replace` is false. Thread-safe.
bool add_user_rule(std::shared_ptr<const UserRule> rule, bool replace);

// While the guard exists, this thread uses these rules and no others.
class UseRules {
 public:
  explicit UseRules(std::shared_ptr<const UserRules> rules);
  ~UseRules();
  UseRules(const UseRules&) = delete;
  UseRules& operator=(const UseRules&) = delete;

 private:
  std::shared_ptr<const UserRules> rules_;
  const UserRules* previous_;
};

// Returns the user's rule for the node's operator, or nullptr. The rule is never freed.
const UserRule* user_rule(const torch::jit::Node* node);

// Inserts what eager's engine does with the gradient that a backward returned for `argument`: None
// becomes zeros, broadcast dimensions are summed, and the type becomes the argument's. Returns the
// checked gradient, or nullptr if `gradient` is always None. `op` and `argument_name` are for error
// messages.
torch::jit::Value* insert_gradient_check(torch::jit::Value* gradient, torch::jit::Value* argument,
                                         const std::string& op, const std::string& argument_name);

}  // namespace aten_recompute
