#include "backend/pictures/draw_timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "planner/model/simulator.h"
#include "planner/model/step_blocks.h"

namespace aten_recompute {
namespace {

// In points, of which graphviz has 72 in an inch.
constexpr double kWidth = 900.0;
constexpr double kHeight = 320.0;
constexpr double kChartHeight = kHeight + 130.0;  // with title, axes and legend
constexpr double kBar = 1.0;

struct Color {
  const char* fill;
  const char* meaning;
};
constexpr std::array kColors{Color{"#9ecae1", "forward"}, Color{"#fd8d3c", "computed again"},
                             Color{"#969696", "backward"}};
constexpr const char* kUnplannedColor = "#ececec";
constexpr const char* kBudgetColor = "#cb181d";

// One step of a schedule, on the axis of time.
struct Interval {
  double begin = 0.0;  // in seconds, or in steps where there are no times
  double end = 0.0;
  int64_t bytes = 0;
  StepKind kind = StepKind::kForward;
};

struct Walk {
  std::vector<Interval> intervals;
  Simulation simulation;
  double end = 0.0;
  double forward_end = 0.0;
};

Walk walk(const Problem& problem, const RetentionPlan& plan, bool has_times) {
  Simulator simulator(problem);
  Walk result;
  result.simulation = simulator.run(plan);
  const auto& steps = simulator.steps();
  const auto kinds = step_kinds(problem, steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto seconds = has_times ? problem.seconds[steps[i].node] : 1.0;
    const auto kind = kinds[i];
    result.intervals.push_back({result.end, result.end + seconds, simulator.step_bytes()[i], kind});
    result.end += seconds;
    if (problem.is_before_loss(steps[i].slot))
      result.forward_end = result.end;
  }
  return result;
}

// Returns a round number of which at most six multiples fit into `most`: 1, 2 or 5 times a power of
// ten, or a power of two for bytes.
double tick_of(double most, bool in_bytes) {
  double tick = in_bytes ? 1.0 : 1e-9;
  const std::array factors{2.0, 2.5, 2.0};
  for (size_t i = 0; tick * 6.0 < most; ++i)
    tick *= in_bytes ? 2.0 : factors[i % factors.size()];
  return tick;
}

std::string readable_seconds(double seconds) {
  std::array<char, 32> text{};
  if (seconds >= 1.0 || seconds == 0.0)
    std::snprintf(text.data(), text.size(), "%g s", seconds);
  else if (seconds >= 1e-3)
    std::snprintf(text.data(), text.size(), "%g ms", seconds * 1e3);
  else
    std::snprintf(text.data(), text.size(), "%g us", seconds * 1e6);
  return text.data();
}

class Chart {
 public:
  Chart(DotGraph& graph, double bottom) : graph_(graph), bottom_(bottom) {}

  void draw(const Timeline& timeline) {
    const auto& problem = *timeline.problem;
    const bool has_times = std::any_of(problem.seconds.begin(), problem.seconds.end(),
                                       [](double seconds) { return seconds > 0.0; });
    const auto planned = walk(problem, timeline.planned, has_times);
    const auto unplanned = walk(problem, timeline.unplanned, has_times);
    seconds_ = std::max({planned.end, unplanned.end, 1e-12});
    bytes_ = static_cast<double>(
        std::max({planned.simulation.peak_bytes, unplanned.simulation.peak_bytes, int64_t{1}}));
    const bool differs = !(timeline.planned == timeline.unplanned);
    if (differs)
      add_bars(unplanned, /*is_background=*/true);
    add_bars(planned, /*is_background=*/false);
    add_axes(has_times);
    add_line(planned.forward_end, "#525252");
    add_text(x_of(planned.forward_end) - 4.0, kHeight + 8.0, "forward", "r");
    add_text(x_of(planned.forward_end) + 4.0, kHeight + 8.0, "backward", "l");
    add_level(planned.simulation.peak_bytes, "peak", "#252525");
    if (timeline.budget_bytes > 0 && static_cast<double>(timeline.budget_bytes) < 1.2 * bytes_)
      add_level(timeline.budget_bytes, "budget", kBudgetColor);
    add_text(0.0, kHeight + 40.0, title_of(timeline, planned, unplanned), "l", 14);
    add_legend(differs);
  }

 private:
  double x_of(double seconds) const { return seconds / seconds_ * kWidth; }
  double y_of(double bytes) const { return bytes / bytes_ * kHeight; }

  static std::string number(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.4g", value);
    return text.data();
  }
  static std::string number(double value, int digits) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.*f", digits, value);
    return text.data();
  }

  // Adds a box; its place is given by its lower left corner.
  void add_box(double x, double y, double width, double height, DotGraph::Attributes attributes) {
    attributes["pos"] = number(x + width / 2.0, 3) + "," + number(bottom_ + y + height / 2.0, 3);
    attributes["width"] = number(width / 72.0, 5);
    attributes["height"] = number(height / 72.0, 5);
    attributes.emplace("label", "");
    graph_.add_node(DotGraph::kNoCluster, std::move(attributes));
  }

  // `side`: "l", the text begins at x; "r", it ends there; "c", its middle is there.
  void add_text(double x, double y, const std::string& text, const std::string& side, int size = 10,
                const char* color = "#252525") {
    // graphviz centers text; the width of a line is estimated.
    const auto width = static_cast<double>(text.size()) * size * 0.55;
    const auto left = side == "l" ? x : side == "r" ? x - width : x - width / 2.0;
    DotGraph::Attributes attributes{{"label", text + (side == "l"   ? "\\l"
                                                      : side == "r" ? "\\r"
                                                                    : "")},
                                    {"shape", "box"},
                                    {"style", ""},
                                    {"penwidth", "0"},
                                    {"margin", "0"},
                                    {"fontcolor", color},
                                    {"fontsize", std::to_string(size)}};
    add_box(left, y - size / 2.0, width, size, std::move(attributes));
  }

  void add_line(double seconds, const char* color) {
    add_box(x_of(seconds), 0.0, 0.0, kHeight + 14.0,
            {{"style", "dashed"}, {"penwidth", "0.7"}, {"color", color}});
  }

  void add_level(int64_t bytes, const std::string& name, const char* color) {
    const auto y = y_of(static_cast<double>(bytes));
    add_box(0.0, y, kWidth, 0.0, {{"style", "dashed"}, {"penwidth", "1"}, {"color", color}});
    add_text(kWidth + 4.0, name == "budget" ? y - 6.0 : y + 6.0, name + " " + readable_bytes(bytes),
             "l", 10, color);
  }

  // A bar shows the most that is alive in its stretch of time, in the color of what ran then.
  void add_bars(const Walk& walk, bool is_background) {
    struct Bar {
      int64_t bytes = -1;
      StepKind kind = StepKind::kForward;
    };
    std::vector<Bar> bars(static_cast<size_t>(kWidth / kBar));
    for (const auto& interval : walk.intervals) {
      const auto last = static_cast<double>(bars.size() - 1);
      const auto first = static_cast<size_t>(std::clamp(x_of(interval.begin) / kBar, 0.0, last));
      const auto end = static_cast<size_t>(std::clamp(std::ceil(x_of(interval.end) / kBar),
                                                      static_cast<double>(first + 1), last + 1.0));
      for (auto i = first; i < end; ++i) {
        if (interval.bytes > bars[i].bytes)
          bars[i] = {interval.bytes, interval.kind};
      }
    }
    for (size_t i = 0; i < bars.size();) {
      size_t end = i + 1;
      while (end < bars.size() && bars[end].bytes == bars[i].bytes &&
             (is_background || bars[end].kind == bars[i].kind))
        ++end;
      if (bars[i].bytes > 0) {
        const auto& color = kColors[static_cast<size_t>(bars[i].kind)];
        const std::string what = is_background ? "nothing recomputed" : color.meaning;
        // Bars overlap a little: renderers leave a seam between boxes that only touch.
        add_box(static_cast<double>(i) * kBar, 0.0, static_cast<double>(end - i) * kBar + 0.4,
                y_of(static_cast<double>(bars[i].bytes)),
                {{"style", "filled"},
                 {"penwidth", "0"},
                 {"fillcolor", is_background ? kUnplannedColor : color.fill},
                 {"tooltip", what + ": " + readable_bytes(bars[i].bytes)}});
      }
      i = end;
    }
  }

  void add_axes(bool has_times) {
    const DotGraph::Attributes thin{{"style", "solid"}, {"penwidth", "0.5"}, {"color", "#bdbdbd"}};
    const auto byte_tick = tick_of(bytes_, /*in_bytes=*/true);
    for (double bytes = 0.0; bytes <= bytes_; bytes += byte_tick) {
      add_box(0.0, y_of(bytes), kWidth, 0.0, thin);
      add_text(-6.0, y_of(bytes), readable_bytes(static_cast<int64_t>(bytes)), "r");
    }
    const auto tick =
        has_times ? tick_of(seconds_, /*in_bytes=*/false) : std::ceil(tick_of(seconds_, false));
    for (double at = 0.0; at <= seconds_; at += tick) {
      add_box(x_of(at), -4.0, 0.0, 4.0, thin);
      add_text(x_of(at), -12.0,
               has_times ? readable_seconds(std::round(at / tick) * tick) : number(at), "c");
    }
    add_text(kWidth / 2.0, -28.0, has_times ? "time of operators" : "steps", "c");
  }

  void add_legend(bool differs) {
    double x = 0.0;
    const auto add = [&](const char* fill, const std::string& text) {
      add_box(x, kHeight + 18.0, 10.0, 10.0,
              {{"style", "filled"}, {"penwidth", "0"}, {"fillcolor", fill}});
      add_text(x + 14.0, kHeight + 23.0, text, "l");
      x += 30.0 + static_cast<double>(text.size()) * 5.5;
    };
    for (const auto& color : kColors)
      add(color.fill, color.meaning);
    if (differs)
      add(kUnplannedColor, "with nothing recomputed");
  }

  static std::string title_of(const Timeline& timeline, const Walk& planned,
                              const Walk& unplanned) {
    return timeline.title + ": peak " + readable_bytes(planned.simulation.peak_bytes) + ", " +
           readable_bytes(unplanned.simulation.peak_bytes) + " with nothing recomputed; " +
           readable_bytes(planned.simulation.saved_bytes) + " kept for the backward";
  }

  DotGraph& graph_;
  double bottom_;
  double seconds_ = 1.0;
  double bytes_ = 1.0;
};

}  // namespace

DotGraph draw_timelines(const std::vector<Timeline>& timelines) {
  // nop2 takes all places as they are given.
  DotGraph graph(
      {{"layout", "nop2"}, {"bgcolor", "white"}, {"outputorder", "nodesfirst"}, {"pad", "0.3"}},
      {{"shape", "box"}, {"fixedsize", "true"}, {"fontname", "Helvetica"}, {"label", ""}}, {});
  for (size_t i = 0; i < timelines.size(); ++i) {
    const auto bottom = static_cast<double>(timelines.size() - 1 - i) * kChartHeight;
    Chart(graph, bottom).draw(timelines[i]);
  }
  return graph;
}

}  // namespace aten_recompute
