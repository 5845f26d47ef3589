#include "command/texts.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "command/failure.h"

namespace aten_recompute::command {
namespace {

std::string with_digits(double number, int digits, const char* unit) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f%s", digits, number, unit);
  return text.data();
}

template <size_t kCount>
std::string scaled(double number, double base, const std::array<const char*, kCount>& units) {
  size_t i = 0;
  while (i + 1 < kCount && std::abs(number) >= base) {
    number /= base;
    ++i;
  }
  return with_digits(number, i == 0 ? 0 : 1, units[i]);
}

// Columns that the text takes on a terminal: bytes of UTF-8 that continue a letter take none.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool uses_colors() {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || *no_color == '\0');
}

}  // namespace

std::string byte_text(int64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024.0,
                std::array{" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string byte_text_beside(int64_t bytes, int64_t other) {
  const auto text = byte_text(bytes);
  return bytes != other && text == byte_text(other) ? text + " (" + std::to_string(bytes) + " B)"
                                                    : text;
}

std::string flop_text(double flops) {
  return scaled(flops, 1000.0, std::array{" FLOP", " kFLOP", " MFLOP", " GFLOP", " TFLOP"});
}

std::string second_text(double seconds) {
  if (seconds >= 1.0)
    return with_digits(seconds, 2, " s");
  if (seconds >= 1e-3)
    return with_digits(seconds * 1e3, 1, " ms");
  return with_digits(seconds * 1e6, 0, " us");
}

std::string factor_text(double factor) {
  return with_digits(factor, 2, "");
}

std::string share_text(int64_t part, int64_t whole) {
  if (whole <= 0)
    return "";
  return with_digits(100.0 * static_cast<double>(part) / static_cast<double>(whole), 0, " %");
}

int64_t read_bytes(const std::string& option, const std::string& text) {
  constexpr std::array<std::pair<std::string_view, double>, 10> kUnits{{
      {"", 1.0},
      {"B", 1.0},
      {"KB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
      {"KiB", 1024.0},
      {"MiB", 1048576.0},
      {"GiB", 1073741824.0},
      {"TiB", 1099511627776.0},
  }};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string_view unit = end;
  while (!unit.empty() && unit.front() == ' ')
    unit.remove_prefix(1);
  for (const auto& [name, factor] : kUnits) {
    if (name == unit && end != text.c_str() && number * factor >= 1.0 && number * factor < 9e18)
      return static_cast<int64_t>(number * factor);
  }
  throw Failure(Exit::kBadArguments,
                option + " " + text + ": a size is a number and a unit, such as 600MiB, and at " +
                    "least 1 B (units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)");
}

void Table::print() const {
  std::vector<size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], width_of(row[i]));
  }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width_of(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (i == 0 ? row[i] + space : space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (&row == &rows_.front() && uses_colors())
      line = "\x1b[1m" + line + "\x1b[0m";
    std::printf("%s\n", line.c_str());
  }
}

}  // namespace aten_recompute::command
