#include "rules/kernels/stand_in.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstddef>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define ATEN_RECOMPUTE_HAS_MMAP 1
#endif

namespace aten_recompute {
namespace {

#ifdef ATEN_RECOMPUTE_HAS_MMAP

// Returns memory of zeros of which nothing may be written; nullptr if the system gives none. A page
// of it exists only once it is read; reading then gives the system's page of zeros.
void* map_zeros(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANON, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Most stand-ins are in the same memory, because mapping some and giving it back takes longer than
// many operators.
constexpr size_t kSharedBytes = size_t{64} << 20U;

void* shared_zeros() {
  static void* const memory = map_zeros(kSharedBytes);
  return memory;
}

#endif

}  // namespace

at::Tensor stand_in(std::vector<int64_t> size, std::vector<int64_t> stride, at::ScalarType dtype,
                    at::Device device) {
  const auto options = at::TensorOptions().dtype(dtype).device(device);
#ifdef ATEN_RECOMPUTE_HAS_MMAP
  if (device.is_cpu()) {
    const auto bytes = at::detail::computeStorageNbytes(size, stride, c10::elementSize(dtype));
    if (bytes > 0 && bytes <= kSharedBytes && shared_zeros() != nullptr)
      return at::from_blob(shared_zeros(), size, stride, options);
    if (void* memory = bytes == 0 ? nullptr : map_zeros(bytes)) {
      return at::from_blob(
          memory, size, stride, [bytes](void* mapped) { munmap(mapped, bytes); }, options);
    }
  }
#endif
  return at::empty_strided(size, stride, options);
}

at::Tensor zeros_without_memory(const at::Tensor& like) {
  return at::zeros({}, like.options()).expand(like.sizes());
}

std::vector<int64_t> layout(at::Tensor tensor) {
  const auto device = tensor.device();
  std::vector<int64_t> packed{static_cast<int64_t>(tensor.scalar_type()),
                              static_cast<int64_t>(device.type()), device.index()};
  packed.insert(packed.end(), tensor.sizes().begin(), tensor.sizes().end());
  packed.insert(packed.end(), tensor.strides().begin(), tensor.strides().end());
  return packed;
}

at::Tensor stand_in(std::vector<int64_t> layout) {
  const auto sizes = layout.begin() + 3;
  const auto strides = sizes + (layout.end() - sizes) / 2;
  return stand_in(
      {sizes, strides}, {strides, layout.end()}, static_cast<at::ScalarType>(layout[0]),
      at::Device(static_cast<at::DeviceType>(layout[1]), static_cast<c10::DeviceIndex>(layout[2])));
}

}  // namespace aten_recompute
