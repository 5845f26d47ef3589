// The CPU allocator of this library.
#pragma once

namespace aten_recompute {

// Puts an allocator in front of LibTorch's CPU allocator. It serves operators of regions from their
// step's arena (step_arena.h) and leaves everything else to the allocator that it found. It has to
// come before allocators that count or log, which then see every block. Called when the library is
// loaded; a second call has no effect, nor has one where the present allocator cannot be wrapped.
void install_arena_allocator();

}  // namespace aten_recompute
