#include "command/pickle_check.h"

#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <exception>

#include "command/archive_check.h"

namespace aten_recompute::command {
namespace {

// Operations of pickles, protocol 2, that LibTorch reads and that have an argument.
enum Operation : char {
  kProtocol = '\x80',
  kInt = 'J',
  kInt1 = 'K',
  kInt2 = 'M',
  kLong = '\x8a',
  kFloat = 'G',
  kText = 'X',
  kGlobal = 'c',
  kRemember = 'q',
  kRememberLong = 'r',
  kGet = 'h',
  kGetLong = 'j',
  kStop = '.',
};

// Returns the bytes of the argument of an operation.
size_t argument_bytes(char operation, std::string_view rest) {
  switch (operation) {
    case kProtocol:
    case kInt1:
    case kRemember:
    case kGet:
      return 1;
    case kInt2:
      return 2;
    case kInt:
    case kRememberLong:
    case kGetLong:
      return 4;
    case kFloat:
      return 8;
    case kLong:
      return rest.empty() ? 0 : size_t{1} + static_cast<unsigned char>(rest[0]);
    case kText:
      return size_t{4} + number_at(rest, 0, 4);
    case kGlobal: {  // two lines
      const auto first = rest.find('\n');
      const auto second = first == rest.npos ? first : rest.find('\n', first + 1);
      return second == rest.npos ? rest.size() : second + 1;
    }
    default:
      return 0;
  }
}

}  // namespace

bool claims_too_much(std::string_view pickle) {
  const auto size = pickle.size();
  while (!pickle.empty() && pickle[0] != kStop) {
    const auto operation = pickle[0];
    pickle.remove_prefix(1);
    const auto bytes = argument_bytes(operation, pickle);
    if (operation == kText && bytes > pickle.size())
      return true;
    if (operation == kRememberLong && number_at(pickle, 0, 4) > size)
      return true;
    pickle.remove_prefix(std::min(bytes, pickle.size()));
  }
  return false;
}

std::string damaged_pickle(const std::string& path) {
  try {
    caffe2::serialize::PyTorchStreamReader reader(path);
    for (const auto& name : reader.getAllRecords()) {
      if (!name.ends_with("pkl"))  // or debug_pkl, which is read to tell the line of an error
        continue;
      const auto [data, bytes] = reader.getRecord(name);
      if (claims_too_much({static_cast<const char*>(data.get()), bytes}))
        return name;
    }
  } catch (const std::exception&) {
    return "";
  }
  return "";
}

}  // namespace aten_recompute::command
