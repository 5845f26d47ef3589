#include "command/pickle_check.h"

#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <exception>

#include "command/archive_check.h"

namespace aten_recompute::command {
namespace {

// Operations of pickles.
constexpr char kText = 'X', kRemember = 'r', kStop = '.';

// Returns the bytes of the argument of an operation that LibTorch reads (pickles of protocol 2).
size_t argument_bytes(char operation, std::string_view rest) {
  switch (operation) {
    case '\x80':  // the protocol
    case 'K':     // a number
    case 'q':     // an object to remember
    case 'h':     // an object that was remembered
      return 1;
    case 'M':
      return 2;
    case 'J':
    case kRemember:
    case 'j':
      return 4;
    case 'G':
      return 8;
    case '\x8a':  // a number with its length
      return rest.empty() ? 0 : size_t{1} + static_cast<unsigned char>(rest[0]);
    case kText:
      return size_t{4} + number_at(rest, 0, 4);
    case 'c': {  // a class, in two lines
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
    if (operation == kRemember && number_at(pickle, 0, 4) > size)
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
  } catch (const std::exception&) {  // LibTorch says what is wrong when it loads the file
  }
  return "";
}

}  // namespace aten_recompute::command
