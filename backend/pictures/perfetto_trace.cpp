#include "backend/pictures/perfetto_trace.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace aten_recompute {
namespace {

using nlohmann::json;

std::string phase_of(const ChartMoment& moment) {
  return moment.kind == "recomputed" ? "recomputation" : moment.kind;
}

// Appends the events of one walk.
class WalkEvents {
 public:
  WalkEvents(const ChartWalk& walk, int pid, json& events)
      : walk_(walk), times_(walk.microseconds()), pid_(pid), events_(events) {}

  void append() {
    metadata("process_name", {{"name", walk_.title}});
    metadata("process_sort_index", {{"sort_index", pid_}});
    metadata("thread_name", {{"name", "operators"}});
    for (size_t begin = 0; begin < walk_.moments.size();)
      begin = append_phase(begin);
    append_memory();
  }

 private:
  void metadata(const char* name, json args) {
    events_.push_back(
        {{"name", name}, {"ph", "M"}, {"pid", pid_}, {"tid", 1}, {"args", std::move(args)}});
  }

  // A slice from the beginning of the moment `begin` to that of the moment `end`.
  void slice(const std::string& name, const char* category, size_t begin, size_t end, json args) {
    events_.push_back({{"name", name},
                       {"cat", category},
                       {"ph", "X"},
                       {"ts", times_[begin]},
                       {"dur", times_[end] - times_[begin]},
                       {"pid", pid_},
                       {"tid", 1},
                       {"args", std::move(args)}});
  }

  // Appends the phase that begins there, and returns where the next one does.
  size_t append_phase(size_t begin) {
    const auto& moments = walk_.moments;
    size_t end = begin;
    while (end < moments.size() && moments[end].kind == moments[begin].kind)
      ++end;
    slice(phase_of(moments[begin]), "phase", begin, end, json::object());
    for (size_t layer = begin; layer < end;) {
      size_t layer_end = layer;
      while (layer_end < end && moments[layer_end].layer == moments[layer].layer)
        ++layer_end;
      if (!moments[layer].layer.empty())
        slice(moments[layer].layer, "layer", layer, layer_end,
              {{"phase", phase_of(moments[layer])}});
      for (; layer < layer_end; ++layer)
        append_operator(layer);
    }
    return end;
  }

  void append_operator(size_t i) {
    const auto& moment = walk_.moments[i];
    slice(moment.name, "operator", i, i + 1,
          {{"phase", phase_of(moment)},
           {"layer", moment.layer},
           {"source", moment.source},
           {"bytes", moment.bytes}});
  }

  void counter(const std::string& name, size_t moment, int64_t bytes) {
    events_.push_back({{"name", name},
                       {"ph", "C"},
                       {"ts", times_[moment]},
                       {"pid", pid_},
                       {"args", {{"bytes", bytes}}}});
  }

  void append_memory() {
    constexpr std::array kKinds{
        std::pair<std::string_view, const char*>{"kept", "memory kept for the backward"},
        std::pair<std::string_view, const char*>{"recomputed", "memory computed again"}};
    for (size_t i = 0; i < walk_.moments.size(); ++i)
      counter("memory", i, walk_.moments[i].bytes);
    for (const auto& [kind, name] : kKinds) {
      std::vector<int64_t> changes(walk_.moments.size() + 1);
      for (const auto& block : walk_.blocks) {
        if (block.kind == kind) {
          changes[static_cast<size_t>(block.begin)] += block.bytes;
          changes[static_cast<size_t>(block.end)] -= block.bytes;
        }
      }
      int64_t alive = 0;
      for (size_t i = 0; i < walk_.moments.size(); ++i) {
        alive += changes[i];
        if (changes[i] != 0 || i == 0)
          counter(name, i, alive);
      }
    }
  }

  const ChartWalk& walk_;
  std::vector<double> times_;
  int pid_;
  json& events_;
};

}  // namespace

json perfetto_trace(const std::vector<MethodChart>& methods) {
  auto events = json::array();
  int pid = 0;
  for (const auto& method : methods) {
    for (const auto& walk : method.walks)
      WalkEvents(walk, ++pid, events).append();
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

}  // namespace aten_recompute
