// What a loop over plain memory is compiled for, where the compiler can choose at load time.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ATEN_RECOMPUTE_VECTORISED __attribute__((optimize("O3"), target_clones("avx2", "default")))
#else
#define ATEN_RECOMPUTE_VECTORISED
#endif
