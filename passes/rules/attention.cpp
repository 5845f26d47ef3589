#include "passes/rules/rule.h"

namespace aten_recompute {

std::vector<Rule> attention_rules() {
  return {};
}

}  // namespace aten_recompute
