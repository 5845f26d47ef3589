// Checks that a call takes the path which its specialization was compiled for
// (passes/frontend/path/record_path.h).
#pragma once

#include <ATen/core/interned_strings.h>

#include <cstdint>
#include <optional>

namespace aten_recompute {

// Registers two operators. aten_recompute::check_path(bool condition, bool expected, int place) ->
// () throws an error where the first two differ, and notes for path_left() that this was the
// reason. aten_recompute::is_same_tensor(Tensor self, Tensor other) -> bool answers such a check.
void register_path_operators();

inline const c10::Symbol kIsSameTensor =
    c10::Symbol::fromQualString("aten_recompute::is_same_tensor");

// Returns the place of the check that has failed on this thread since the last call of this
// function; nullopt if none has.
std::optional<int64_t> path_left();

// What path_left() returns where no path is right for the call, which has to run as it was
// scripted.
constexpr int64_t kRunAsScripted = -1;

// Notes kRunAsScripted for path_left(), unless a check has failed, and `reason`, a literal, for
// why_all_paths_left().
void note_all_paths_left(const char* reason);

// Does the same and throws an error that says why.
[[noreturn]] void leave_all_paths(const char* reason);

// Returns the reason that was noted last on this thread; "" where none was.
const char* why_all_paths_left();

}  // namespace aten_recompute
