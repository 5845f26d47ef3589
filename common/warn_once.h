// A warning that is logged once, however often its reason occurs.
#pragma once

#include <atomic>
#include <string>

#include "common/log.h"

namespace aten_recompute {

// Belongs to what the warning is about: a region, a method. Thread-safe.
class WarnOnce {
 public:
  // Logs the message unless this did so before.
  void operator()(LogTopic topic, const std::string& message) {
    if (!has_warned_.exchange(true))
      log_warning(topic, message);
  }
  // For callers whose message takes time to make.
  bool has_warned() const { return has_warned_; }

 private:
  std::atomic<bool> has_warned_{false};
};

}  // namespace aten_recompute
