// Writes a file completely or not at all.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace aten_recompute::command {

// A file beside `path`, which takes the place of `path` when it is complete. Without that, it is
// removed: when the object is gone, and when the program is interrupted (SIGINT, SIGTERM, SIGHUP).
// There is one object at a time.
class OutputFile {
 public:
  // Throws Failure(kCannotWrite) if no file can be made there.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Appends the text. Throws Failure(kCannotWrite).
  void write(std::string_view text);

  // Puts the file in its place. Throws Failure(kCannotWrite) if something could not be written.
  void commit();

 private:
  std::string path_;
  std::ofstream stream_;
};

}  // namespace aten_recompute::command
