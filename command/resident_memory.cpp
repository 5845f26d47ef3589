#include "command/resident_memory.h"

#include <malloc.h>

#include <fstream>
#include <sstream>
#include <string>

namespace aten_recompute::command {
namespace {

// Returns an entry of /proc/self/status, such as "VmRSS:   1234 kB", in bytes.
std::optional<int64_t> status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kibibytes = 0;
    if (words >> name && name == key + ":" && words >> kibibytes)
      return 1024 * kibibytes;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> resident_bytes() {
  return status("VmRSS");
}

std::optional<int64_t> resident_peak_bytes() {
  return status("VmHWM");
}

bool reset_resident_peak() {
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << "5" << std::flush);
}

void return_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace aten_recompute::command
