#include "command/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "command/failure.h"
#include "common/replaced_file.h"

namespace aten_recompute::command {
namespace {

// What the handler of signals removes. It may not allocate, so the name has room here.
char unfinished[4096] = "";

void remove_unfinished() {
  if (unfinished[0] != '\0')
    unlink(unfinished);
  unfinished[0] = '\0';
}

void end_by_signal(int number) {
  remove_unfinished();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

[[noreturn]] void cannot_write(const std::string& path, const std::string& why) {
  throw Failure(Exit::kCannotWrite, path + ": cannot be written: " + why);
}

[[noreturn]] void cannot_write(const std::string& path, int error) {
  cannot_write(path, std::strerror(error));
}

std::string place_of(const std::string& path) {
  try {
    return replaced_file(path);
  } catch (const std::runtime_error& error) {
    cannot_write(path, error.what());
  }
}

}  // namespace

void check_output(const std::string& path, const std::vector<std::string>& inputs) {
  for (const auto& input : inputs) {
    std::error_code no_file;  // a file that is missing is no other one
    if (std::filesystem::equivalent(path, input, no_file))
      throw Failure(Exit::kBadArguments,
                    path + ": would replace what is read" +
                        (path == input ? "" : ": it is the same file as " + input));
  }
  place_of(path);
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)), place_(place_of(path_)) {
  const auto name = place_ + "." + std::to_string(getpid()) + ".tmp";
  if (name.size() >= sizeof unfinished)
    cannot_write(path_, ENAMETOOLONG);
  std::memcpy(unfinished, name.c_str(), name.size() + 1);
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    std::signal(number, end_by_signal);
  errno = 0;
  stream_.open(name, std::ios::binary | std::ios::trunc);
  if (!stream_) {
    const int error = errno;
    unfinished[0] = '\0';
    cannot_write(path_, error);
  }
}

OutputFile::~OutputFile() {
  remove_unfinished();
}

void OutputFile::write(std::string_view text) {
  errno = 0;
  if (!(stream_ << text).flush())
    cannot_write(path_, errno != 0 ? errno : EIO);
}

void OutputFile::commit() {
  errno = 0;
  stream_.close();
  if (!stream_)
    cannot_write(path_, errno != 0 ? errno : EIO);
  take_over_permissions(place_, unfinished);
  if (std::rename(unfinished, place_.c_str()) != 0)
    cannot_write(path_, errno);
  unfinished[0] = '\0';
}

}  // namespace aten_recompute::command
