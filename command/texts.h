// How figures and tables are written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aten_recompute::command {

// Returns "600.0 MiB".
std::string byte_text(int64_t bytes);
// Returns the same with all digits, "28.0 MiB (29360127 B)", where `other` is another number of
// bytes that would look alike.
std::string byte_text_beside(int64_t bytes, int64_t other);
// Returns "1.2 GFLOP".
std::string flop_text(double flops);
// Returns "12.3 ms".
std::string second_text(double seconds);
// Returns the number with two digits behind the point: "1.08".
std::string factor_text(double factor);
// Returns the share of the whole: "43 %"; "" if there is no whole.
std::string share_text(int64_t part, int64_t whole);

// Reads "600MiB", "1.5GB" or "1000000". Throws Failure(kBadArguments) that names the option.
int64_t read_bytes(const std::string& option, const std::string& text);

// Rows of text in columns. The first column begins at the left, the others end at the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  // A row may be shorter than the header.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  // Writes the table to stdout; on a terminal its header is bold, unless NO_COLOR is set.
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace aten_recompute::command
