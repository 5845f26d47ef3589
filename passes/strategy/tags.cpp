#include "passes/strategy/tags.h"

#include <torch/csrc/jit/ir/ir.h>

#include <stdexcept>
#include <string>

#include "common/log.h"
#include "ir/symbols.h"
#include "passes/strategy/graph_problem.h"
#include "rules/recomputability.h"

namespace aten_recompute {
namespace {

Tag tag_of(const torch::jit::Node* node) {
  const auto kind = node->kind();
  if (kind == symbols::kMustSave)
    return Tag::kMustSave;
  if (kind == symbols::kMustRecompute)
    return Tag::kMustRecompute;
  if (kind == symbols::kPreferSave)
    return Tag::kPreferSave;
  return kind == symbols::kPreferRecompute ? Tag::kPreferRecompute : Tag::kNone;
}

bool is_must(Tag tag) {
  return tag == Tag::kMustSave || tag == Tag::kMustRecompute;
}

}  // namespace

const char* to_string(Tag tag) {
  switch (tag) {
    case Tag::kNone:
      return "untagged";
    case Tag::kPreferSave:
      return "prefer_save";
    case Tag::kPreferRecompute:
      return "prefer_recompute";
    case Tag::kMustSave:
      return "must_save";
    case Tag::kMustRecompute:
      return "must_recompute";
  }
  return "unknown";
}

std::vector<bool> stays_for_caller(const Problem& problem) {
  std::vector<bool> live_to_end(problem.num_values(), false);
  const auto decided = base_values(problem);
  for (auto value : problem.results) {
    for (auto root : decided[value])
      live_to_end[root] = true;
  }
  return live_to_end;
}

std::vector<Tag> value_tags(const GraphProblem& graph) {
  const auto& problem = graph.problem;
  std::vector<Tag> tags(problem.num_values(), Tag::kNone);
  const auto decided = base_values(problem);
  const auto live_to_end = stays_for_caller(problem);
  for (size_t node = 0; node < problem.num_forward; ++node) {
    const auto tag = tag_of(graph.nodes[node]);
    if (tag == Tag::kNone)
      continue;
    for (auto value : problem.inputs[node]) {
      for (auto root : decided[value]) {
        const auto producer = problem.producer[root];
        if (producer < 0)
          continue;
        const auto name = "value %" + problem.value_names[root];
        if (live_to_end[root] || !problem.recomputable[producer]) {
          if (tag == Tag::kMustRecompute) {
            log_warning(name + " is tagged must_recompute, but it is saved: " +
                        (live_to_end[root]
                             ? std::string("the region returns it")
                             : "its operator runs once (" +
                                   std::string(to_string(recompute_veto(graph.nodes[producer]))) +
                                   ")"));
          }
          continue;
        }
        if (is_must(tags[root]) && is_must(tag) && tags[root] != tag)
          throw std::invalid_argument("aten_recompute: " + name +
                                      " is tagged must_save and must_recompute");
        if (!is_must(tags[root]) || is_must(tag))
          tags[root] = tag;
      }
    }
  }
  return tags;
}

}  // namespace aten_recompute
