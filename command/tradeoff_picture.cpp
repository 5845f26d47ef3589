#include "command/tradeoff_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include "command/texts.h"

namespace aten_recompute::command {
namespace {

// In pixels. The chart itself lies within the margins.
constexpr double kWidth = 820.0;
constexpr double kHeight = 460.0;
constexpr double kLeft = 74.0;
constexpr double kRight = 36.0;
constexpr double kTop = 62.0;
constexpr double kBottom = 58.0;
constexpr double kLongest = 2.0;  // times beyond this multiple are not drawn to scale
constexpr double kLetter = 7.0;   // the width of one, in a label

constexpr const char* kStyle =
    "<style>\n"
    "text { font: 12px Helvetica, Arial, sans-serif; fill: #252525 }\n"
    ".title { font-size: 15px; font-weight: bold }\n"
    ".paper { fill: #ffffff }\n"
    ".grid { stroke: #e3e3e3; stroke-width: 1 }\n"
    ".axis { stroke: #8a8a8a; stroke-width: 1 }\n"
    ".lead { stroke: #8a8a8a; stroke-width: 0.7 }\n"
    ".curve { fill: none; stroke: #2171b5; stroke-width: 2 }\n"
    ".plan { fill: #2171b5 }\n"
    ".mark { fill: #d9662b; stroke: #ffffff; stroke-width: 1.5 }\n"
    ".end { fill: #525252; stroke: #ffffff; stroke-width: 1.5 }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  text { fill: #e6e6e6 } .paper { fill: #1b1d20 } .grid { stroke: #34383d }\n"
    "  .axis { stroke: #7d848c } .curve { stroke: #6baed6 } .plan { fill: #6baed6 }\n"
    "  .mark { stroke: #1b1d20 } .end { fill: #bdbdbd; stroke: #1b1d20 }\n"
    "}\n"
    "</style>\n";

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
}

std::string escaped_for_svg(std::string_view text) {
  std::string xml;
  for (const char c : text) {
    switch (c) {
      case '&':
        xml += "&amp;";
        break;
      case '<':
        xml += "&lt;";
        break;
      case '>':
        xml += "&gt;";
        break;
      case '"':
        xml += "&quot;";
        break;
      // XML cannot hold most control characters, nor bytes that are no UTF-8.
      default:
        xml += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return xml;
}

// Replaces bytes that are no UTF-8, which file names may have.
std::string as_utf8(const std::string& text) {
  std::string valid;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = byte < 0x80                   ? 1
                          : byte >= 0xC2 && byte < 0xE0 ? 2
                          : (byte & 0xF0) == 0xE0       ? 3
                          : byte >= 0xF0 && byte < 0xF5 ? 4
                                                        : 0;
    size_t end = i + 1;
    while (end < text.size() && end < i + length && (text[end] & 0xC0) == 0x80)
      ++end;
    if (length == 0 || end != i + length) {
      valid += '?';
      ++i;
    } else {
      valid += text.substr(i, length);
      i = end;
    }
  }
  return valid;
}

// A scale of an axis, with round numbers at its ticks.
struct Axis {
  double from = 0.0;
  double to = 1.0;
  double tick = 1.0;
};

// Returns the axis for numbers from `least` to `most` with about six ticks, which are `unit` times
// 1, 2 or 5 times a power of ten.
Axis axis_of(double least, double most, double unit) {
  const double room = std::max({most - least, 0.02 * std::abs(most), 1e-12}) / unit;
  const double power = std::pow(10.0, std::floor(std::log10(room / 6.0)));
  double tick = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    tick = factor * power;
    if (room / tick <= 6.0)
      break;
  }
  tick *= unit;
  Axis axis{std::floor(least / tick) * tick, std::ceil(most / tick) * tick, tick};
  if (axis.to <= axis.from)
    axis.to = axis.from + tick;
  return axis;
}

// The unit in which bytes of this size are written.
double byte_unit(double bytes) {
  double unit = 1.0;
  while (bytes / unit >= 1024.0)
    unit *= 1024.0;
  return unit;
}

struct Box {
  double left, top, right, bottom;
};

bool overlap(const Box& a, const Box& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

class Picture {
 public:
  explicit Picture(const Tradeoff& tradeoff) : tradeoff_(tradeoff) {
    base_ = tradeoff.unplanned.seconds > 0.0 ? tradeoff.unplanned.seconds : 1.0;
    auto points = tradeoff.curve;
    points.insert(points.end(), tradeoff.marks.begin(), tradeoff.marks.end());
    points.push_back(tradeoff.unplanned);
    double most_bytes = 0.0, least = value_of(points.front()), most = least;
    for (const auto& point : points) {
      most_bytes = std::max(most_bytes, static_cast<double>(point.peak_bytes));
      least = std::min(least, value_of(point));
      most = std::max(most, value_of(point));
    }
    // The last few bytes may cost many times the time, and would leave no room for the rest.
    double most_shown = kLongest * value_of(tradeoff.unplanned);
    for (const auto& mark : tradeoff.marks)
      most_shown = std::max(most_shown, value_of(mark));
    x_ = axis_of(0.0, std::max(most_bytes, 1.0), byte_unit(most_bytes));
    y_ = axis_of(least, std::min(most, most_shown), 1.0);
  }

  std::string svg() {
    svg_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(kWidth) + " " +
           number(kHeight) + "\" width=\"" + number(kWidth) + "\" height=\"" + number(kHeight) +
           "\" role=\"img\">\n<title>" + text_of(tradeoff_.title) + "</title>\n" + kStyle;
    svg_ += "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n";
    add_text(kLeft, 26.0, tradeoff_.title, "start", "title");
    add_axes();
    add_curve();
    add_points();
    return svg_ + "</svg>\n";
  }

 private:
  double value_of(const PlanPoint& point) const { return point.seconds / base_; }
  double x_of(double bytes) const {
    return kLeft + (bytes - x_.from) / (x_.to - x_.from) * (kWidth - kLeft - kRight);
  }
  double y_of(double value) const {
    return kHeight - kBottom -
           (std::min(value, y_.to) - y_.from) / (y_.to - y_.from) * (kHeight - kTop - kBottom);
  }
  static std::string text_of(const std::string& text) { return escaped_for_svg(as_utf8(text)); }

  void add_text(double x, double y, const std::string& text, const std::string& anchor,
                const std::string& type = "") {
    svg_ += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\"" +
            (type.empty() ? "" : " class=\"" + type + "\"") + ">" + text_of(text) + "</text>\n";
  }

  void add_line(double x1, double y1, double x2, double y2, const std::string& type) {
    svg_ += "<line class=\"" + type + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) +
            "\" x2=\"" + number(x2) + "\" y2=\"" + number(y2) + "\"/>\n";
  }

  void add_axes() {
    const auto bottom = y_of(y_.from);
    const int digits = y_.tick >= 1.0 ? 0 : y_.tick >= 0.1 ? 1 : y_.tick >= 0.01 ? 2 : 3;
    for (int i = 0; x_.from + i * x_.tick <= x_.to * (1.0 + 1e-9); ++i) {
      const auto bytes = x_.from + i * x_.tick;
      add_line(x_of(bytes), y_of(y_.to), x_of(bytes), bottom, "grid");
      add_text(x_of(bytes), bottom + 18.0, byte_text(static_cast<int64_t>(std::llround(bytes))),
               "middle");
    }
    for (int i = 0; y_.from + i * y_.tick <= y_.to + 1e-9 * y_.tick; ++i) {
      const auto value = y_.from + i * y_.tick;
      std::array<char, 32> label{};
      std::snprintf(label.data(), label.size(), "%.*f", digits, value);
      add_line(kLeft, y_of(value), x_of(x_.to), y_of(value), "grid");
      add_text(kLeft - 8.0, y_of(value) + 4.0, label.data(), "end");
    }
    add_line(kLeft, bottom, x_of(x_.to), bottom, "axis");
    add_line(kLeft, bottom, kLeft, y_of(y_.to), "axis");
    add_text(0.5 * (kLeft + kWidth - kRight), kHeight - 14.0, "predicted peak of a step", "middle");
    add_text(kLeft, kTop - 14.0,
             tradeoff_.unplanned.seconds > 0.0
                 ? "time of a step, as a multiple of that without recomputation"
                 : "seconds of a step",
             "start");
  }

  // With less memory than a plan needs, the next leaner one is the fastest: the curve has steps.
  void add_curve() {
    auto x = x_of(x_.to), y = y_of(value_of(tradeoff_.curve.front()));
    auto path = "M" + number(x) + " " + number(y);
    for (const auto& point : tradeoff_.curve) {
      const auto left = x_of(static_cast<double>(point.peak_bytes));
      const auto up = y_of(value_of(point));
      path += "V" + number(up) + "H" + number(left);
      taken_.push_back({x - 1.0, up - 1.0, x + 1.0, y + 1.0});
      taken_.push_back({left - 1.0, up - 1.0, x + 1.0, up + 1.0});
      x = left;
      y = up;
    }
    svg_ += "<path class=\"curve\" d=\"" + path + "\"/>\n";
  }

  void add_point(const PlanPoint& point, double radius, const std::string& type,
                 const std::string& name) {
    const auto x = x_of(static_cast<double>(point.peak_bytes)), y = y_of(value_of(point));
    if (!name.empty())
      taken_.push_back({x - radius, y - radius, x + radius, y + radius});
    const auto title =
        "<title>" +
        text_of((name.empty() ? "" : name + ": ") + byte_text(point.peak_bytes) + ", " +
                second_text(point.seconds) + ", " + factor_text(value_of(point))) +
        "</title>";
    if (value_of(point) > y_.to)  // an arrow to where it would be
      svg_ += "<path class=\"" + type + "\" d=\"M" + number(x - radius) + " " + number(y + radius) +
              "L" + number(x) + " " + number(y - radius) + "L" + number(x + radius) + " " +
              number(y + radius) + "Z\">" + title + "</path>\n";
    else
      svg_ += "<circle class=\"" + type + "\" cx=\"" + number(x) + "\" cy=\"" + number(y) +
              "\" r=\"" + number(radius) + "\">" + title + "</circle>\n";
  }

  // Writes a label near a point, where neither the curve nor another label is, and a line to it
  // where that is further away.
  void add_label(const PlanPoint& point, const std::string& text) {
    const auto x = x_of(static_cast<double>(point.peak_bytes));
    const auto y = y_of(value_of(point));
    const auto width = kLetter * static_cast<double>(text.size());
    for (const double distance : {10.0, 26.0, 42.0, 58.0, 74.0, 90.0, 120.0, 150.0}) {
      for (const auto& [left, up] :
           {std::pair{x + distance, y - distance}, std::pair{x - width / 2.0, y - distance - 4.0},
            std::pair{x - distance - width, y - distance},
            std::pair{x - distance - width, y + distance + 8.0},
            std::pair{x + distance, y + distance + 8.0}}) {
        const Box box{left - 3.0, up - 12.0, left + width + 3.0, up + 5.0};
        if (!is_free(box))
          continue;
        taken_.push_back(box);
        if (distance > 10.0)
          add_line(x, y, std::clamp(x, box.left, box.right), up > y ? box.top : box.bottom, "lead");
        add_text(left, up, text, "start");
        return;
      }
    }
    // There is no room: the title of the point, which a pointer shows, has to do.
  }

  bool is_free(const Box& box) const {
    return box.left > kLeft && box.right < kWidth - 4.0 && box.top > kTop - 8.0 &&
           box.bottom < kHeight - kBottom - 1.0 &&
           std::none_of(taken_.begin(), taken_.end(),
                        [&](const Box& other) { return overlap(box, other); });
  }

  void add_points() {
    if (tradeoff_.curve.size() <= 200) {
      for (const auto& point : tradeoff_.curve)
        add_point(point, 2.5, "plan", "");
    }
    const auto& leanest = tradeoff_.curve.back();
    add_point(tradeoff_.unplanned, 5.0, "end", "no recomputation");
    add_point(leanest, 5.0, "end", "smallest peak");
    for (const auto& mark : tradeoff_.marks)
      add_point(mark, 5.5, "mark", mark.name);
    add_label(tradeoff_.unplanned,
              "no recomputation: " + byte_text(tradeoff_.unplanned.peak_bytes));
    std::string beyond;
    if (value_of(leanest) > y_.to)
      beyond = tradeoff_.unplanned.seconds > 0.0
                   ? ", " + factor_text(value_of(leanest)) + " times as long"
                   : ", " + second_text(leanest.seconds);
    add_label(leanest, "smallest peak: " + byte_text(leanest.peak_bytes) + beyond);
    for (const auto& mark : tradeoff_.marks)
      add_label(mark, mark.name + ": " + byte_text(mark.peak_bytes));
  }

  const Tradeoff& tradeoff_;
  double base_ = 1.0;
  Axis x_, y_;
  std::vector<Box> taken_;  // by labels, points and the curve
  std::string svg_;
};

}  // namespace

std::string tradeoff_svg(const Tradeoff& tradeoff) {
  return Picture(tradeoff).svg();
}

}  // namespace aten_recompute::command
