#include "passes/strategy/tags.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
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

class TagCollector {
 public:
  explicit TagCollector(const GraphProblem& graph)
      : graph_(graph),
        problem_(graph.problem),
        live_to_end_(live_to_end(problem_)),
        tags_(problem_.num_values(), Tag::kNone) {}

  void add(int32_t value, Tag tag) {
    const auto producer = problem_.producer[value];
    if (producer < 0)
      return;
    if (live_to_end_[value] || !problem_.recomputable[producer]) {
      if (tag == Tag::kMustRecompute)
        warn_that_it_is_saved(value);
      return;
    }
    auto& known = tags_[value];
    if (is_must(known) && is_must(tag) && known != tag) {
      throw std::invalid_argument("aten_recompute: " + name_of(value) +
                                  " is tagged must_save and must_recompute");
    }
    if (!is_must(known) || is_must(tag))
      known = tag;
  }

  const std::vector<Tag>& tags() const { return tags_; }

 private:
  std::string name_of(int32_t value) const { return "value %" + problem_.value_names[value]; }

  void warn_that_it_is_saved(int32_t value) const {
    const auto* producer = graph_.nodes[problem_.producer[value]];
    log_warning(
        LogTopic::kRules,
        name_of(value) + " is tagged must_recompute, but it is saved: " +
            (live_to_end_[value] ? std::string("the region returns it")
                                 : "its operator runs once (" +
                                       std::string(to_string(recompute_veto(producer))) + ")"));
  }

  const GraphProblem& graph_;
  const Problem& problem_;
  const std::vector<bool> live_to_end_;
  std::vector<Tag> tags_;
};

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

bool asks_to_recompute(Tag tag) {
  return tag == Tag::kMustRecompute || tag == Tag::kPreferRecompute;
}

std::vector<Tag> value_tags(const GraphProblem& graph) {
  const auto& problem = graph.problem;
  const auto bases = base_values(problem);
  TagCollector collector(graph);
  for (size_t node = 0; node < problem.num_forward; ++node) {
    const auto tag = tag_of(graph.nodes[node]);
    if (tag == Tag::kNone)
      continue;
    for (auto value : problem.inputs[node]) {
      for (auto base : bases[value])
        collector.add(base, tag);
    }
  }
  return collector.tags();
}

Tag strongest_tag(const Problem& problem, const std::vector<Tag>& tags, int32_t node) {
  auto strongest = Tag::kNone;
  for (auto output : problem.outputs[node])
    strongest = std::max(strongest, tags[output]);
  return strongest;
}

std::vector<bool> live_to_end(const Problem& problem) {
  std::vector<bool> live(problem.num_values(), false);
  const auto bases = base_values(problem);
  for (auto value : problem.results) {
    for (auto base : bases[value])
      live[base] = true;
  }
  return live;
}

}  // namespace aten_recompute
