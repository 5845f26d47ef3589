// at::parallel_for, checked to have threads.
#pragma once

#include <ATen/Parallel.h>

#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "Compile with OpenMP: without it, at::parallel_for runs in one thread."
#endif
