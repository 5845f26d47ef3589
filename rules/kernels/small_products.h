// Batched products of small matrices. ATen computes one element after the other, this project
// whole rows or columns at once, in the same order of sums and so with the same bits.
#pragma once

namespace at {
class Tensor;
}

namespace aten_recompute {

// at::bmm: [b, n, k] and [b, k, m] give [b, n, m]. Small matrices of float or double on the CPU are
// multiplied by this project, all others by ATen. Throws what at::bmm throws.
at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2);

}  // namespace aten_recompute
