// Writes a file completely or not at all.
#pragma once

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace aten_recompute::command {

// Checks the name of a file before work begins that ends with writing it. Throws
// Failure(kBadArguments) where it is one of the files that are read, under this name or another
// one, and Failure(kCannotWrite) where it is a folder, a device or a pipe.
void check_output(const std::string& path, const std::vector<std::string>& inputs);

// A file beside `path`, which takes the place of `path` when it is complete. Without that, it is
// removed: when the object is gone, and when the program is interrupted (SIGINT, SIGTERM, SIGHUP).
// A symbolic link stays, and its target is replaced; a file that was there leaves its permissions.
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
  std::string path_;   // as it was given, for messages
  std::string place_;  // what is replaced
  std::ofstream stream_;
};

}  // namespace aten_recompute::command
