// Recognizes layouts of images in memory.
#pragma once

#include <c10/core/MemoryFormat.h>
#include <c10/util/ArrayRef.h>

namespace aten_recompute {

// Returns whether a tensor of this size and stride, an image or a volume, has its channels last.
inline bool is_channels_last(c10::IntArrayRef size, c10::IntArrayRef stride) {
  return (size.size() == 4 && c10::is_channels_last_strides_2d(size, stride)) ||
         (size.size() == 5 && c10::is_channels_last_strides_3d(size, stride));
}

}  // namespace aten_recompute
