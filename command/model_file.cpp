#include "command/model_file.h"

#include <aten_recompute/one_line.h>

#include <torch/csrc/jit/serialization/import.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "command/archive_check.h"
#include "command/failure.h"
#include "command/pickle_check.h"

namespace aten_recompute::command {
namespace {

void check_is_file(const std::string& path) {
  std::error_code ignored;  // opening says what is wrong with the name
  if (std::filesystem::is_directory(path, ignored))
    throw Failure(Exit::kBadFile, path + ": this is a folder, not a file");
  // A device or a pipe may never end.
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    throw Failure(Exit::kBadFile, path + ": this is a device or a pipe, not a file");
  errno = 0;
  if (!std::ifstream(path, std::ios::binary))
    throw Failure(Exit::kBadFile, path + ": cannot be opened: " + std::strerror(errno));
  const auto size = archive_size(path);
  if (is_bomb(size))
    throw Failure(Exit::kBadFile, path + ": " + std::to_string(size.file_bytes) +
                                      " bytes that would become " +
                                      std::to_string(size.record_bytes) +
                                      " in memory, as no module or tensor that was saved does");
  if (const auto record = damaged_pickle(path); !record.empty())
    throw Failure(Exit::kBadFile,
                  path + ": the record " + record +
                      " is damaged: a length in it is greater than the whole record");
}

}  // namespace

torch::jit::Module load_module(const std::string& path, Tensors tensors) {
  check_is_file(path);
  try {
    if (tensors == Tensors::kDescribed)
      return torch::jit::load(path, at::Device(at::kMeta));
    return torch::jit::load(path, at::Device(at::kCPU));
  } catch (const std::exception& error) {
    throw Failure(Exit::kBadFile,
                  path + ": not a TorchScript module that can be loaded: " + one_line(error));
  }
}

torch::jit::Method find_method(const torch::jit::Module& module, const std::string& name) {
  if (auto method = module.find_method(name))
    return *method;
  std::string names;
  for (const auto& method : module.get_methods())
    names += (names.empty() ? "" : ", ") + method.name();
  throw Failure(Exit::kBadArguments, "--method: the module has no method \"" + name +
                                         "\"; it has " + (names.empty() ? "none" : names));
}

std::string read_file(const std::string& path) {
  check_is_file(path);
  std::ifstream file(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad())
    throw Failure(Exit::kBadFile, path + ": cannot be read");
  return content;
}

}  // namespace aten_recompute::command
