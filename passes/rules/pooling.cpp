#include "passes/rules/rule.h"

namespace aten_recompute {

std::vector<Rule> pooling_rules() {
  return {};
}

}  // namespace aten_recompute
