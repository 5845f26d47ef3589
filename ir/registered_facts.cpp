#include "ir/registered_facts.h"

#include <atomic>

namespace aten_recompute {
namespace {

std::atomic<RegisteredFactsLookup> lookup_function = nullptr;

}  // namespace

void set_registered_facts_lookup(RegisteredFactsLookup lookup) {
  lookup_function = lookup;
}

const RegisteredFacts* registered_facts(const torch::jit::Node* node) {
  const auto lookup = lookup_function.load();
  return lookup == nullptr ? nullptr : lookup(node);
}

}  // namespace aten_recompute
