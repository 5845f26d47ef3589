#include "command/archive_check.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string_view>

namespace aten_recompute::command {
namespace {

// Numbers of the format, in bytes from the beginning of a record of the directory.
constexpr size_t kEndBytes = 22, kLongestComment = 65535;
constexpr size_t kLocatorBytes = 20, kLongEndBytes = 56;
constexpr size_t kEntryBytes = 46;
constexpr std::string_view kEnd = "PK\x05\x06";
constexpr std::string_view kLongEnd = "PK\x06\x06";
constexpr std::string_view kLocator = "PK\x06\x07";
constexpr std::string_view kEntry = "PK\x01\x02";
constexpr uint64_t kIsLong = 0xffffffff;

std::string read_part(std::ifstream& file, uint64_t place, uint64_t bytes) {
  std::string part(static_cast<size_t>(bytes), '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(place));
  file.read(part.data(), static_cast<std::streamsize>(part.size()));
  part.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return part;
}

// Returns the bytes that the entry's record has in memory.
uint64_t record_bytes(std::string_view entry) {
  const auto bytes = number_at(entry, 24, 4);
  if (bytes != kIsLong)
    return bytes;
  // The number is the first one of the extra field with the number 1.
  const auto begin = kEntryBytes + number_at(entry, 28, 2);
  const auto end = begin + number_at(entry, 30, 2);
  for (auto place = begin; place + 4 <= end; place += 4 + number_at(entry, place + 2, 2)) {
    if (number_at(entry, place, 2) == 1)
      return number_at(entry, place + 4, 8);
  }
  return bytes;
}

}  // namespace

uint64_t number_at(std::string_view text, size_t place, size_t bytes) {
  uint64_t number = 0;
  for (size_t i = bytes; i-- > 0;) {
    const auto byte =
        place + i < text.size() ? static_cast<unsigned char>(text[place + i]) : uint64_t{0};
    number = number << 8 | byte;
  }
  return number;
}

ArchiveSize archive_size(const std::string& path) {
  ArchiveSize size;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  size.file_bytes = static_cast<int64_t>(file.tellg());
  if (!file || size.file_bytes < static_cast<int64_t>(kEndBytes))
    return size;
  const auto file_bytes = static_cast<uint64_t>(size.file_bytes);
  const auto tail_bytes =
      std::min<uint64_t>(file_bytes, kEndBytes + kLongestComment + kLocatorBytes);
  const auto tail = read_part(file, file_bytes - tail_bytes, tail_bytes);
  const auto end = tail.rfind(kEnd, tail.size() - kEndBytes);  // LibTorch takes the last whole one
  if (end == tail.npos)
    return size;
  uint64_t bytes = number_at(tail, end + 12, 4), begin = number_at(tail, end + 16, 4);
  if (end >= kLocatorBytes && tail.compare(end - kLocatorBytes, kLocator.size(), kLocator) == 0) {
    const auto long_end = read_part(
        file, std::min(number_at(tail, end - kLocatorBytes + 8, 8), file_bytes), kLongEndBytes);
    if (long_end.starts_with(kLongEnd)) {
      bytes = number_at(long_end, 40, 8);
      begin = number_at(long_end, 48, 8);
    }
  }
  if (begin > file_bytes || bytes > file_bytes - begin)
    return size;
  constexpr uint64_t kLargestDirectory = uint64_t{64} << 20;  // of half a million records
  if (bytes > kLargestDirectory) {
    size.record_bytes = std::numeric_limits<int64_t>::max();
    return size;
  }
  const auto directory = read_part(file, begin, bytes);
  uint64_t sum = 0;
  for (size_t place = 0; directory.compare(place, kEntry.size(), kEntry) == 0;) {
    const auto entry = std::string_view(directory).substr(place);
    const auto next = record_bytes(entry);
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    sum = next > kMost - sum ? kMost : sum + next;
    place +=
        kEntryBytes + number_at(entry, 28, 2) + number_at(entry, 30, 2) + number_at(entry, 32, 2);
    if (place >= directory.size())
      break;
  }
  size.record_bytes = static_cast<int64_t>(sum);
  return size;
}

bool is_bomb(const ArchiveSize& size) {
  constexpr int64_t kAlways = int64_t{64} << 20;
  constexpr int64_t kMostTimes = 16;
  return size.record_bytes > kAlways && size.record_bytes / kMostTimes > size.file_bytes;
}

}  // namespace aten_recompute::command
