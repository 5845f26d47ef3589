#include <aten_recompute/aten_recompute.h>

namespace aten_recompute {

const char* version() {
  return ATEN_RECOMPUTE_VERSION;  // of CMakeLists.txt
}

}  // namespace aten_recompute
