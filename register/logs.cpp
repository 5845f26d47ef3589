// set_logs, for C++ and for Python (python/aten_recompute/_logs.py).
#include <aten_recompute/logs.h>

#include <torch/library.h>

#include "common/log.h"

namespace aten_recompute {

void set_logs(const std::string& topics) {
  set_log_topics(topics);
}

namespace {

TORCH_LIBRARY_FRAGMENT(aten_recompute, m) {
  m.def("set_logs(str topics) -> ()", [](const std::string& topics) { set_logs(topics); });
}

}  // namespace
}  // namespace aten_recompute
