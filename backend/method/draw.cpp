#include <aten_recompute/draw.h>
#include <aten_recompute/errors.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "backend/method/planned_methods.h"
#include "backend/method/step_problems.h"
#include "backend/pictures/draw_dot.h"
#include "backend/pictures/draw_graph.h"
#include "backend/pictures/draw_timeline.h"
#include "backend/pictures/picture_file.h"
#include "backend/planning/method_plans.h"
#include "common/did_you_mean.h"
#include "common/join.h"
#include "common/parse_options.h"

namespace aten_recompute {
namespace {

using torch::jit::Module;

constexpr std::array kParts{std::pair{"joint", DrawnPart::kJoint},
                            std::pair{"forward", DrawnPart::kForward},
                            std::pair{"backward", DrawnPart::kBackward}};
constexpr const char* kTimeline = "timeline";

std::string quoted(const std::string& text) {
  return "\"" + text + "\"";
}

void check_what(const std::string& what) {
  std::vector<std::string> known{kTimeline};
  for (const auto& [name, part] : kParts)
    known.emplace_back(name);
  if (std::find(known.begin(), known.end(), what) == known.end()) {
    throw std::invalid_argument("what is " + quoted(what) +
                                "; accepted are joint, forward, backward and timeline" +
                                did_you_mean(what, known));
  }
}

// What is drawn of a module.
struct Drawn {
  c10::intrusive_ptr<LoweredMethod> method;
  CompiledCall call;
};

Drawn choose_method(const PlannedMethods& methods, const std::string& method) {
  std::vector<Drawn> have_run;
  std::vector<std::string> names;
  std::vector<std::string> names_of_run;
  for (const auto& each : methods) {
    names.push_back(each->name());
    if (!method.empty() && each->name() != method)
      continue;
    if (auto call = each->latest_call(); !call.runs.empty()) {
      names_of_run.push_back(each->name());
      have_run.push_back({each, std::move(call)});
    }
  }
  if (!method.empty() && std::find(names.begin(), names.end(), method) == names.end()) {
    throw std::invalid_argument("no method " + quoted(method) + " is lowered; lowered are " +
                                join(names));
  }
  if (have_run.empty()) {
    throw std::invalid_argument(
        "nothing has been compiled yet: run a training step first, with gradients");
  }
  if (have_run.size() > 1) {
    throw std::invalid_argument("several methods have run (" + join(names_of_run) +
                                "); choose one of them with \"method\"");
  }
  return std::move(have_run.front());
}

PlanMetrics metrics_of_call(const CompiledCall& call) {
  if (call.plan != nullptr)
    return call.plan->metrics;
  const auto* plan = call.runs.front().compiled_region->plan();
  return plan == nullptr ? PlanMetrics{} : plan->metrics;
}

std::string title_of(const Drawn& drawn, const std::string& what) {
  const auto& options = drawn.method->options();
  auto title = drawn.method->class_name() + "." + drawn.method->name() + ", " + what + " (" +
               describe(options) + ")";
  const auto metrics = metrics_of_call(drawn.call);
  const bool is_whole = drawn.call.plan != nullptr || drawn.call.runs.size() == 1;
  if (is_whole && metrics.unplanned_peak_bytes > 0) {
    title += "\\npredicted peak " + readable_bytes(metrics.predicted_peak_bytes) + ", " +
             readable_bytes(metrics.unplanned_peak_bytes) + " with nothing recomputed; " +
             readable_bytes(metrics.predicted_saved_bytes) + " kept for the backward";
  }
  return title;
}

// Returns, for each run, its place among the runs that take part in the plan; -1 for others.
std::vector<int32_t> places_in_plan(const CompiledCall& call) {
  std::vector<int32_t> places;
  int32_t next = 0;
  for (const auto& run : call.runs) {
    const bool has_part = run.compiled_region->plan() != nullptr;
    places.push_back(has_part ? next++ : -1);
  }
  return places;
}

std::vector<DrawnHandover> handovers_of(const CompiledCall& call) {
  std::vector<DrawnHandover> handovers;
  if (call.plan == nullptr)
    return handovers;
  const auto places = places_in_plan(call);
  const auto run_at = [&](int32_t place) {
    return static_cast<size_t>(std::find(places.begin(), places.end(), place) - places.begin());
  };
  const auto& linked = call.plan->linked;
  for (size_t to = 0; to < linked.size(); ++to) {
    for (const auto& given : linked[to].given) {
      if (given.from.run < 0 || given.from.value < 0)
        continue;
      handovers.push_back(
          {run_at(given.from.run), linked[given.from.run].problem->value_names[given.from.value],
           run_at(static_cast<int32_t>(to)), linked[to].problem->value_names[given.value]});
    }
  }
  return handovers;
}

DotGraph dot_timeline_of(const Drawn& drawn) {
  const auto title = drawn.method->class_name() + "." + drawn.method->name();
  const auto steps = step_problems(drawn.call, drawn.method->options());
  std::vector<Timeline> timelines;
  for (const auto& step : steps) {
    const auto region = step.region.empty() ? "" : ", " + step.region;
    timelines.push_back(
        {title + region, step.problem.get(), step.planned, step.unplanned, step.budget_bytes});
  }
  if (timelines.empty()) {
    throw std::invalid_argument(
        "a timeline needs a profile: lower with strategy budget, min_cut or segments, or with the "
        "option profile");
  }
  return draw_timelines(timelines);
}

DotGraph dot_graph_of(const Drawn& drawn, const std::string& what, const std::string& layer) {
  if (what == kTimeline) {
    if (!layer.empty())
      throw std::invalid_argument("a timeline shows the whole step and takes no layer");
    return dot_timeline_of(drawn);
  }
  std::vector<DrawnRegion> regions;
  for (const auto& run : drawn.call.runs) {
    regions.push_back(
        {"region " + std::to_string(run.region), run.compiled_region, run.is_attribute});
  }
  const auto* part = std::find_if(kParts.begin(), kParts.end(),
                                  [&](const auto& each) { return each.first == what; });
  return draw_graph(regions, handovers_of(drawn.call), part->second, layer, title_of(drawn, what));
}

}  // namespace

namespace {

// Draws what `methods` returns, which is asked for after the other arguments are checked.
template <class Methods>
void draw_methods(const Methods& methods, const std::string& path, const std::string& what,
                  const std::string& layer, const std::string& method) {
  const std::string prefix = "draw: ";
  try {
    check_what(what);
    const auto format = picture_format(path);
    write_picture(path, format, dot_graph_of(choose_method(methods(), method), what, layer).text());
  } catch (const std::invalid_argument& error) {
    std::string message = error.what();
    if (message.rfind(prefix, 0) != 0)
      message = prefix + message;
    if (const auto typed = typed_error(error))
      typed->with_message(message)->raise_as_invalid_argument();
    throw std::invalid_argument(message);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(prefix + error.what());
  }
}

}  // namespace

void draw(const Module& module, const std::string& path, const std::string& what,
          const std::string& layer, const std::string& method) {
  draw_methods([&] { return planned_methods_of(module, "draw"); }, path, what, layer, method);
}

void draw(torch::jit::Function& function, const std::string& path, const std::string& what,
          const std::string& layer) {
  draw_methods([&] { return planned_methods_of(function, "draw"); }, path, what, layer, "");
}

}  // namespace aten_recompute
