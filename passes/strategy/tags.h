// Tags: what a program says about its own values, with identity operators:
//
//   h = torch.ops.aten_recompute.must_recompute(h)
#pragma once

#include <cstdint>
#include <vector>

namespace aten_recompute {

struct GraphProblem;
struct Problem;

// In the order of their strength.
enum class Tag : uint8_t { kNone, kPreferSave, kPreferRecompute, kMustSave, kMustRecompute };
const char* to_string(Tag tag);

// Whether the tag asks for recomputation, by `must` or by `prefer`.
bool asks_to_recompute(Tag tag);

// Returns the tag of each value of `graph.problem`. A tag on a view is moved to what it views, as
// plans decide about that; views themselves have none. `must` comes before `prefer`, and of two
// preferences the last one counts. A tag on a value that plans do not decide about (a region input
// or output, the result of an operator that cannot run twice) is dropped, with a warning where this
// means that the tag is not obeyed.
//
// Throws std::invalid_argument naming a value that must be saved and recomputed.
std::vector<Tag> value_tags(const GraphProblem& graph);

// Returns the strongest tag of the node's outputs; `tags` has one per value.
Tag strongest_tag(const Problem& problem, const std::vector<Tag>& tags, int32_t node);

// Returns for each value whether it stays in memory to the end of the step whatever a plan decides,
// because the caller holds it or a view of it.
std::vector<bool> live_to_end(const Problem& problem);

}  // namespace aten_recompute
