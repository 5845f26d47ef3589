// The rules that a program registered: include/aten_recompute/register_rule.h, as the passes see
// them.
//
// What is compiled together has to see the same rules, however long it takes and whatever other
// threads register meanwhile: a region is compiled a second time when its method is planned, and
// has to be the same graph then. So a region holds on to the rules of the time at which it was
// made.
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
  Rule rule;  // its formulas are compiled; no gradients: ours, or the tape
  std::shared_ptr<const CompiledFormula> replay;
  std::shared_ptr<const CompiledFormula> flops;
  std::shared_ptr<const torch::jit::Code> flops_code;
  RegisteredFacts facts;

  bool says_nothing() const {
    return !facts.has_gradients && !facts.has_replay && flops == nullptr && !facts.random &&
           facts.recomputable;
  }
};

// By schema name with overload. Never changed: registering makes another one.
using UserRules = std::unordered_map<std::string, std::shared_ptr<const UserRule>>;

// Those of now.
std::shared_ptr<const UserRules> registered_rules();

// From now on; one that says nothing removes what was there. False where there is one already and
// `replace` is not given. Thread-safe.
bool add_user_rule(std::shared_ptr<const UserRule> rule, bool replace);

// Until the guard's end, this thread finds these rules and no others.
class UseRules {
 public:
  explicit UseRules(std::shared_ptr<const UserRules> rules);
  ~UseRules();
  UseRules(const UseRules&) = delete;
  UseRules& operator=(const UseRules&) = delete;

 private:
  std::shared_ptr<const UserRules> rules_;
  const UserRules* before_;
};

// The user's rule for the node's operator, or nullptr. It stays valid for good.
const UserRule* user_rule(const torch::jit::Node* node);

// Inserts what eager's engine does with the gradient that a backward returned for `argument`: None
// is zero, sizes that were broadcast are summed up, and the type becomes the argument's. Returns
// nullptr for a gradient that is None for certain.
torch::jit::Value* insert_gradient_check(torch::jit::Value* gradient, torch::jit::Value* argument,
                                         const std::string& op, const std::string& argument_name);

}  // namespace aten_recompute
