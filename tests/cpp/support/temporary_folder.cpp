#include "tests/cpp/support/temporary_folder.h"

#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

namespace aten_recompute::test {
namespace {

int remove_entry(const char* path, const struct stat* /*status*/, int /*type*/,
                 struct FTW* /*place*/) {
  return std::remove(path);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  auto name = std::filesystem::temp_directory_path() / "aten_recompute_XXXXXX";
  std::string path = name;
  if (mkdtemp(path.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), "mkdtemp of " + path);
  path_ = path;
}

// Not by std::filesystem::remove_all(): libtorch.so of 2.11 exports a copy of it that calls
// functions which no library has.
TemporaryFolder::~TemporaryFolder() {
  constexpr int kOpenFolders = 16;
  nftw(path_.c_str(), &remove_entry, kOpenFolders, FTW_DEPTH | FTW_PHYS);
}

}  // namespace aten_recompute::test
