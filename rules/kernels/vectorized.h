// Compiles a loop over plain memory for several instruction sets, if the compiler can select one at
// load time. ThreadSanitizer instruments the function that selects, which runs before it is ready.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define ATEN_RECOMPUTE_VECTORIZED __attribute__((optimize("O3"), target_clones("avx2", "default")))
#else
#define ATEN_RECOMPUTE_VECTORIZED
#endif

// A function that becomes part of each function that calls it, and so is compiled for the same
// instruction sets.
#if defined(__GNUC__)
#define ATEN_RECOMPUTE_INLINED inline __attribute__((always_inline))
#else
#define ATEN_RECOMPUTE_INLINED inline
#endif
