// What a program says about its own values, with identity operators:
//
//   h = torch.ops.aten_recompute.must_recompute(h)
#pragma once

#include <cstdint>
#include <vector>

namespace aten_recompute {

struct GraphProblem;
struct Problem;

enum class Tag : uint8_t { kNone, kPreferSave, kPreferRecompute, kMustSave, kMustRecompute };
const char* to_string(Tag tag);

// Per value of `graph.problem`: how it is tagged. A tag on a view stands on what it views, as that
// is what plans decide about; views themselves have none. `must` comes before `prefer`, and of two
// preferences the last one counts. A tag on what plans do not decide about (a region input or
// output, an operator that cannot run twice) is left out, with a warning where it is not obeyed.
//
// Throws std::invalid_argument naming a value that must be saved and recomputed.
std::vector<Tag> value_tags(const GraphProblem& graph);

// Per value: it stays in memory to the end of the step whatever is decided, as the caller holds it,
// or a view of it.
std::vector<bool> stays_for_caller(const Problem& problem);

}  // namespace aten_recompute
