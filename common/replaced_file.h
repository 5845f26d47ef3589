// What a file that is written as a whole takes the place of. Header-only, because the command has
// its own copy.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace aten_recompute {

// Returns the path of the file that is written under another name first and then renamed to this
// one: where `path` is a symbolic link, its target, so that the link stays. Throws
// std::runtime_error, with the reason alone, where a device, a pipe or a folder would be replaced.
inline std::string replaced_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // what is wrong with the name, opening the file says
  const auto status = fs::status(path, ignored);
  if (fs::is_directory(status))
    throw std::runtime_error(std::make_error_code(std::errc::is_a_directory).message());
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw std::runtime_error("it is a device or a pipe, not a file");
  constexpr int kMostLinks = 40;  // as Linux follows
  fs::path place = path;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(place, ignored)); ++i)
    place = place.parent_path() / fs::read_symlink(place, ignored);
  return place.string();
}

// Gives a new file the permissions of the file that it replaces, where there is one.
inline void take_over_permissions(const std::string& replaced, const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // a file system may have no permissions
  const auto status = fs::status(replaced, ignored);
  if (fs::exists(status))
    fs::permissions(file, status.permissions() & fs::perms::all, ignored);
}

}  // namespace aten_recompute
