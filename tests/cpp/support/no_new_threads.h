#pragma once

#include <pthread.h>

#include <cstddef>
#include <stdexcept>

namespace aten_recompute::test {

// While an object exists, no thread can be started: the stack that one would get is larger than any
// address space.
class NoNewThreads {
 public:
  NoNewThreads() {
    pthread_getattr_default_np(&before_);
    auto attributes = before_;
    constexpr size_t kMoreThanThereIs = size_t{1} << 48;
    if (pthread_attr_setstacksize(&attributes, kMoreThanThereIs) != 0 ||
        pthread_setattr_default_np(&attributes) != 0)
      throw std::runtime_error("the size of stacks cannot be set");
  }
  ~NoNewThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace aten_recompute::test
