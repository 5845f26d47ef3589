#include "command/kept_values.h"

#include <aten_recompute/aten_recompute.h>

#include <algorithm>
#include <optional>

#include "command/failure.h"
#include "command/inputs.h"
#include "command/model_file.h"
#include "command/step.h"
#include "command/strategy.h"

namespace aten_recompute::command {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "aten_recompute.plan/1";
// The first step plans with assumptions about the caller, the second with what the first one saw.
constexpr int kSteps = 2;

[[noreturn]] void refuse_plan_file(const std::string& path, const std::string& why) {
  throw Failure(Exit::kBadFile, path + ": not a plan file: " + why);
}

PlannedRegion read_region(const json& part) {
  PlannedRegion region{.fingerprint = part.at("region").get<std::string>(), .values = {}};
  const auto read = [&](const char* key, bool PlannedValue::*state) {
    for (const auto& each : part.at(key)) {
      auto& value = region.values[each.at("value").get<std::string>()];
      value.layer = each.value("layer", "");
      value.bytes = each.at("bytes").get<int64_t>();
      value.*state = true;
    }
  };
  read("saved", &PlannedValue::is_kept);
  read("recomputed", &PlannedValue::is_recomputed);
  return region;
}

PlanOfFile read_plan(const std::string& path, const std::string& text) {
  PlanOfFile plan;
  plan.path = path;
  const auto file = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded())
    refuse_plan_file(path, "no valid JSON");
  if (!file.is_object() || file.value("format", json()) != kFormat)
    refuse_plan_file(path, std::string("\"format\" is not \"") + kFormat + "\"");
  try {
    for (const auto& part : file.at("regions")) {
      if (!part.contains("recomputed"))
        refuse_plan_file(
            path,
            "it was written by version 0.1, which did not name what is recomputed: save the "
            "plan again");
      plan.regions.push_back(read_region(part));
      plan.peak_bytes = std::max(plan.peak_bytes, part.at("peak_bytes").get<int64_t>());
      plan.saved_bytes += part.at("saved_bytes").get<int64_t>();
      plan.seconds += part.at("seconds").get<double>();
      plan.recompute_seconds += part.at("recompute_seconds").get<double>();
    }
    // Sums of times that cancel out may leave a little less than nothing.
    plan.recompute_seconds = std::max(plan.recompute_seconds, 0.0);
  } catch (const json::exception& error) {
    const std::string what = error.what();  // "[json.exception.type_error.302] type must be ..."
    refuse_plan_file(path, what.substr(std::min(what.find("] ") + 2, what.size())));
  }
  return plan;
}

// Returns the figures of the newest plan of the method; null if there is none.
json newest_figures(const json& reported, const std::string& method) {
  for (const auto& each : reported["methods"]) {
    if (each["method"] != method || each["specialisations"].empty())
      continue;
    const auto& newest = each["specialisations"].back();
    if (!newest["plans"].empty())
      return newest["plans"].back();
    if (newest["regions"].size() == 1 && !newest["regions"][0]["variants"].empty())
      return newest["regions"][0]["variants"].back();
  }
  return nullptr;
}

PlanOfFile run_module(const std::string& path, const Arguments& arguments) {
  auto module = load_module(path, Tensors::kReal);
  auto options = options_in_file(module, arguments.method);
  const auto embedded = options.is_null() ? json() : options.value("plan", json());
  if (arguments.inputs.empty()) {
    if (embedded.is_string())
      return read_plan(path, embedded.get<std::string>());
    if (embedded.is_object())
      return read_plan(path, embedded.dump());
    throw Failure(Exit::kBadArguments, path +
                                           ": has no plan before a step has run, so --input is "
                                           "required");
  }
  // The whole peak as a budget keeps everything, and has the figures and the graph of other
  // budgets: the strategy `none` foresees no second step, and writes some results over their
  // operands.
  if (options.is_null())
    options = {{"strategy", "budget"}, {"memory_budget", 1.0}};
  options["profile"] = true;  // without one, a plan is not known in bytes
  module = unlower(module);
  if (arguments.train)
    module.train();
  const auto inputs = make_inputs(module, arguments.method, arguments.inputs, Tensors::kReal);
  auto lowered = lower(module, options.dump(), {arguments.method});
  for (int i = 0; i < kSteps; ++i)
    run_step(lowered, arguments.method, inputs);
  auto found = read_plan(path, plan(lowered));
  if (found.regions.empty())
    throw Failure(Exit::kStepFailed, path + ": nothing in " + arguments.method + " was planned");
  if (const auto figures = newest_figures(json::parse(report(lowered)), arguments.method);
      !figures.is_null()) {
    found.peak_bytes = figures["predicted_peak_bytes"].get<int64_t>();
    found.saved_bytes = figures["predicted_saved_bytes"].get<int64_t>();
    found.seconds = figures["predicted_seconds"].get<double>();
  }
  return found;
}

}  // namespace

PlanOfFile plan_of_file(const std::string& path, const Arguments& arguments) {
  const auto text = read_file(path);
  // A module is a zip archive.
  if (text.rfind("PK", 0) == 0)
    return run_module(path, arguments);
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] != '{')
    throw Failure(Exit::kBadFile, path + ": neither a plan file nor a TorchScript module");
  return read_plan(path, text);
}

}  // namespace aten_recompute::command
