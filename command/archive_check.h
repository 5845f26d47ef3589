// A look at an archive before LibTorch reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace aten_recompute::command {

// Reads a little-endian number of so many bytes, at most 8; what is beyond the end counts as 0.
uint64_t number_at(std::string_view text, size_t place, size_t bytes);

// What the directory of a zip archive says.
struct ArchiveSize {
  int64_t file_bytes = 0;
  int64_t record_bytes = 0;  // of all records together, as they become in memory
};

// Reads the directory at the end of the file. Where that is none of a zip archive, `record_bytes`
// is 0: LibTorch says what is wrong.
ArchiveSize archive_size(const std::string& path);

// Returns whether records become so much larger than the file that somebody must have wanted it.
// LibTorch compresses code, which becomes a few times larger, and stores tensors as they are.
bool is_bomb(const ArchiveSize& size);

}  // namespace aten_recompute::command
