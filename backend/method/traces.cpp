#include <aten_recompute/timeline.h>
#include <aten_recompute/traces.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "backend/pictures/memory_snapshot.h"
#include "backend/pictures/perfetto_trace.h"
#include "backend/pictures/step_chart.h"
#include "common/pickle.h"

namespace aten_recompute {
namespace {

using nlohmann::json;

std::vector<MethodChart> charts_of(const std::string& text, const std::string& asked) {
  const auto described = json::parse(text);
  auto charts = method_charts(described);
  if (std::any_of(charts.begin(), charts.end(),
                  [](const MethodChart& chart) { return !chart.walks.empty(); }))
    return charts;
  const auto& methods = described.at("methods");
  const bool has_run = std::any_of(methods.begin(), methods.end(), [](const json& method) {
    return method.at("has_run").get<bool>();
  });
  throw std::invalid_argument(
      asked + (has_run
                   ? ": there is no profile: lower with strategy budget, min_cut or segments, "
                     "or with the option \"profile\""
                   : ": nothing has been compiled yet: run a training step first, with gradients"));
}

template <class Target>
std::string perfetto_of(Target& target) {
  return perfetto_trace(charts_of(timeline(target), "perfetto")).dump();
}

template <class Target>
std::string memory_viz_of(Target& target) {
  return pickle_of(memory_snapshot(charts_of(timeline(target), "memory_viz")));
}

}  // namespace

std::string perfetto(const torch::jit::Module& module) {
  return perfetto_of(module);
}

std::string perfetto(torch::jit::Function& function) {
  return perfetto_of(function);
}

std::string memory_viz(const torch::jit::Module& module) {
  return memory_viz_of(module);
}

std::string memory_viz(torch::jit::Function& function) {
  return memory_viz_of(function);
}

}  // namespace aten_recompute
