#include "backend/pictures/picture_file.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include "common/lower_case.h"
#include "common/replaced_file.h"

extern char** environ;

namespace aten_recompute {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw std::runtime_error("cannot write " + path + ": " + why);
}

// Returns the file that is replaced where `path` is written.
std::string place_of(const std::string& path) {
  try {
    return replaced_file(path);
  } catch (const std::runtime_error& error) {
    fail(path, error.what());
  }
}

// The name that a file has until it is complete; it is removed if it does not become complete.
class TemporaryFile {
 public:
  // Throws std::runtime_error where no file can take the place of `path`.
  explicit TemporaryFile(const std::string& path) : place_(place_of(path)) {
    static std::atomic<int> count{0};
    path_ = place_ + "." + std::to_string(getpid()) + "." + std::to_string(count++) + ".tmp";
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    if (!path_.empty())
      fs::remove(path_, ignored);
  }

  const std::string& path() const { return path_; }

  // Puts the file in its place. `path`: what the place is called in messages.
  void rename(const std::string& path) {
    take_over_permissions(place_, path_);
    std::error_code error;
    fs::rename(path_, place_, error);
    if (error)
      fail(path, error.message());
    path_.clear();
  }

 private:
  std::string place_;
  std::string path_;
};

void write_to(const std::string& temporary, const std::string& path, const std::string& text) {
  std::ofstream file(temporary, std::ios::binary);
  if (file.is_open())
    file << text;
  file.close();
  if (!file)
    fail(path, std::strerror(errno));
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Runs `dot` from the PATH and returns its exit status, or -1 where it could not be started.
int run_dot(const std::vector<std::string>& arguments, const std::string& log) {
  std::vector<char*> argv;
  std::string program = "dot";
  argv.push_back(program.data());
  auto copies = arguments;
  for (auto& argument : copies)
    argv.push_back(argument.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "dot", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    // A program that ignores SIGCHLD has no status to wait for; the caller looks at the file.
    if (errno != EINTR)
      return 0;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

void write_file(const std::string& path, const std::string& text) {
  TemporaryFile temporary(path);
  write_to(temporary.path(), path, text);
  temporary.rename(path);
}

PictureFormat picture_format(const std::string& path) {
  const auto ending = lower_case(fs::path(path).extension().string());
  if (ending == ".dot" || ending == ".gv")
    return PictureFormat::kDot;
  if (ending == ".svg")
    return PictureFormat::kSvg;
  if (ending == ".png")
    return PictureFormat::kPng;
  throw std::invalid_argument("the name of the file, \"" + path +
                              "\", ends in none of .svg, .png and .dot");
}

bool has_graphviz() {
  const char* folders = std::getenv("PATH");
  std::istringstream stream(folders == nullptr ? "" : folders);
  for (std::string folder; std::getline(stream, folder, ':');) {
    if (access((fs::path(folder) / "dot").c_str(), X_OK) == 0)
      return true;
  }
  return false;
}

void write_picture(const std::string& path, PictureFormat format, const std::string& dot) {
  if (format == PictureFormat::kDot) {
    write_file(path, dot);
    return;
  }
  if (!has_graphviz()) {
    throw std::runtime_error("cannot write " + path +
                             ": graphviz, which draws it, is not installed (its program \"dot\" is "
                             "not on the PATH); a file that ends in .dot needs none");
  }
  TemporaryFile source(path);
  TemporaryFile picture(path);
  TemporaryFile log(path);
  write_to(source.path(), path, dot);
  const auto* type = format == PictureFormat::kSvg ? "-Tsvg" : "-Tpng";
  // graphviz fails to lay some graphs out in the best way that it has.
  const std::vector<std::vector<std::string>> ways{
      {}, {"-Gsplines=polyline"}, {"-Gsplines=line"}, {"-Gsplines=line", "-Gnewrank=false"}};
  for (const auto& way : ways) {
    std::vector<std::string> arguments{type, "-o", picture.path()};
    arguments.insert(arguments.end(), way.begin(), way.end());
    arguments.push_back(source.path());
    if (run_dot(arguments, log.path()) == 0 && fs::exists(picture.path())) {
      picture.rename(path);
      return;
    }
  }
  const auto reason = first_line_of(log.path());
  throw std::runtime_error("cannot write " + path + ": graphviz failed" +
                           (reason.empty() ? "" : ": " + reason));
}

}  // namespace aten_recompute
