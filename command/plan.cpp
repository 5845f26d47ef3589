// aten-recompute plan: peak and time of a step under budgets, by running it.
#include <aten_recompute/aten_recompute.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command/arguments.h"
#include "command/failure.h"
#include "command/inputs.h"
#include "command/model_file.h"
#include "command/output_file.h"
#include "command/step.h"
#include "command/step_estimate.h"
#include "command/subcommands.h"
#include "command/texts.h"
#include "command/tradeoff_picture.h"

namespace aten_recompute::command {
namespace {

using nlohmann::json;

struct PlanArguments : Arguments {
  std::vector<std::string> budgets;
  bool sweep = false;
  std::string svg;
  int steps = 2;
};

// Returns the options of lower() for a budget.
json with_budget(json options, const std::string& budget) {
  const auto number = json::parse(budget, nullptr, /*allow_exceptions=*/false);
  options["strategy"] = "budget";
  options["memory_budget"] = number.is_number() ? number : json(budget);
  return options;
}

class Planner {
 public:
  explicit Planner(const PlanArguments& arguments)
      : arguments_(arguments),
        options_(options_beside_budgets(arguments)),
        module_(load_module(arguments.path, Tensors::kReal)) {
    if (arguments.train)
      module_.train();
    inputs_ = make_inputs(module_, arguments.method, arguments.inputs, Tensors::kReal);
  }

  // Returns the module as it runs under the budget, after some steps.
  torch::jit::Module run(const std::string& budget) {
    auto lowered = lower(module_, with_budget(options_, budget).dump(), {arguments_.method});
    const auto gradients =
        options_.value("accumulate", false) ? Gradients::kKept : Gradients::kDropped;
    for (int i = 0; i < arguments_.steps; ++i)
      run_step(lowered, arguments_.method, inputs_, gradients);
    return lowered;
  }

  // Returns the figures of the newest plan of the method: predicted_peak_bytes and so on.
  json figures(const torch::jit::Module& lowered) const {
    const auto reported = json::parse(report(lowered));
    for (const auto& method : reported["methods"]) {
      if (method["method"] != arguments_.method || method["specialisations"].empty())
        continue;
      const auto& specialization = method["specialisations"].back();
      if (!specialization["plans"].empty())
        return specialization["plans"].back();
      for (const auto& region : specialization["regions"]) {
        if (!region["variants"].empty())
          return region["variants"].back();
      }
    }
    throw Failure(Exit::kStepFailed, "nothing in the method was planned");
  }

  // Throws Failure(kStepFailed) if no result of the method needs a gradient, so that there is no
  // backward to plan for. The method is run on tensors that take no memory.
  void check_gradient() const {
    try {
      auto described = unlower(load_module(arguments_.path, Tensors::kDescribed));
      if (arguments_.train)
        described.train();
      const auto inputs =
          make_inputs(described, arguments_.method, arguments_.inputs, Tensors::kDescribed);
      results_with_gradient(described.get_method(arguments_.method)(inputs), arguments_.method);
    } catch (const Failure&) {
      throw;
    } catch (const std::exception&) {
      return;  // not known without running the method
    }
  }

  // Returns the plans that no other one beats in both peak and time, by falling peak.
  json tradeoff(const torch::jit::Module& lowered) const {
    const auto drawn = json::parse(timeline(lowered, /*tradeoff=*/true));
    for (const auto& method : drawn["methods"]) {
      if (method["method"] == arguments_.method && !method["charts"].empty())
        return method["charts"][0]["tradeoff"];
    }
    return json::array();
  }

 private:
  const PlanArguments& arguments_;
  json options_;
  torch::jit::Module module_;
  std::vector<c10::IValue> inputs_;
};

// Returns the plans that the table and the picture show, by falling peak: first the one that
// recomputes nothing, then those of smaller peaks that no other one beats in both peak and time.
json undominated(const json& plans, const json& unplanned) {
  const auto all = unplanned["unplanned_peak_bytes"].get<int64_t>();
  auto first = plans.front();
  if (first["peak_bytes"].get<int64_t>() < all) {
    first["peak_bytes"] = all;
    first["saved_bytes"] = unplanned["predicted_saved_bytes"];
    first["seconds"] =
        std::min(first["seconds"].get<double>(), unplanned["unplanned_seconds"].get<double>());
  }
  json kept = json::array();
  double fastest = std::numeric_limits<double>::infinity();
  for (auto plan = plans.rbegin(); plan != plans.rend(); ++plan) {  // by rising peak
    auto each = *plan;
    // Times of operators that cancel out may leave a little less than nothing.
    const auto seconds = std::max(each["seconds"].get<double>(), first["seconds"].get<double>());
    if (seconds >= fastest || each["peak_bytes"] >= first["peak_bytes"])
      continue;
    fastest = seconds;
    each["seconds"] = seconds;
    kept.push_back(std::move(each));
  }
  kept.push_back(std::move(first));
  std::reverse(kept.begin(), kept.end());
  return kept;
}

// Returns {"budget", "reachable", "predicted_peak_bytes", ...}.
json plan_budget(Planner& planner, const std::string& budget) {
  json plan = {{"budget", budget}, {"reachable", true}};
  try {
    const auto figures = planner.figures(planner.run(budget));
    for (const char* key : {"predicted_peak_bytes", "measured_peak_bytes", "predicted_saved_bytes",
                            "unplanned_peak_bytes", "predicted_seconds", "unplanned_seconds"}) {
      if (figures.contains(key))
        plan[key] = figures[key];
    }
  } catch (const std::exception& error) {
    const auto typed = typed_error(error);
    const auto* const budget_error = dynamic_cast<const BudgetUnreachableError*>(typed.get());
    if (budget_error == nullptr)
      throw;
    planner.check_gradient();
    plan["reachable"] = false;
    plan["budget_bytes"] = budget_error->limit_bytes;
    plan["smallest_peak_bytes"] = budget_error->smallest_peak_bytes;
    plan["unplanned_peak_bytes"] = budget_error->unplanned_peak_bytes;
  }
  return plan;
}

void print_budgets(const json& budgets) {
  Table table({"plan", "peak", "of all", "measured", "kept", "time", "of all"});
  const json* first = nullptr;
  for (const auto& budget : budgets) {
    if (budget["reachable"].get<bool>() && first == nullptr)
      first = &budget;
  }
  if (first != nullptr)
    table.add({"no recomputation", byte_text((*first)["unplanned_peak_bytes"].get<int64_t>()),
               "100 %", "", "", second_text((*first)["unplanned_seconds"].get<double>()), "1.00"});
  for (const auto& budget : budgets) {
    const auto name = "budget " + budget["budget"].get<std::string>();
    if (!budget["reachable"].get<bool>()) {
      table.add({name, "unreachable"});
      continue;
    }
    const auto peak = budget["predicted_peak_bytes"].get<int64_t>();
    const auto seconds = budget["predicted_seconds"].get<double>();
    const auto unplanned = budget["unplanned_seconds"].get<double>();
    table.add({name, byte_text(peak),
               share_text(peak, budget["unplanned_peak_bytes"].get<int64_t>()),
               budget.contains("measured_peak_bytes")
                   ? byte_text(budget["measured_peak_bytes"].get<int64_t>())
                   : "",
               byte_text(budget["predicted_saved_bytes"].get<int64_t>()), second_text(seconds),
               unplanned > 0.0 ? factor_text(seconds / unplanned) : ""});
  }
  table.print();
}

// Prints at most `kRows` of the plans, evenly over their peaks, with a bar for each peak.
void print_tradeoff(const json& tradeoff, const json& unplanned) {
  constexpr int64_t kRows = 16;
  constexpr double kBar = 30.0;
  const auto all = unplanned["predicted_peak_bytes"].get<int64_t>();
  const auto base = unplanned["predicted_seconds"].get<double>();
  Table table({"peak", "of all", "time", "of all", ""});
  const auto most = tradeoff.front()["peak_bytes"].get<int64_t>();
  const auto least = tradeoff.back()["peak_bytes"].get<int64_t>();
  int64_t shown = 0;
  for (const auto& point : tradeoff) {
    const auto peak = point["peak_bytes"].get<int64_t>();
    const auto wanted = static_cast<double>(most) - static_cast<double>((most - least) * shown) /
                                                        static_cast<double>(kRows - 1);
    if (static_cast<double>(peak) > wanted)
      continue;
    while (shown < kRows &&
           static_cast<double>(peak) <=
               static_cast<double>(most) -
                   static_cast<double>((most - least) * shown) / static_cast<double>(kRows - 1))
      ++shown;
    const auto seconds = point["seconds"].get<double>();
    std::string bar(static_cast<size_t>(kBar * static_cast<double>(peak) /
                                        static_cast<double>(std::max(most, int64_t{1}))),
                    '#');
    bar.resize(static_cast<size_t>(kBar), ' ');
    table.add({byte_text(peak), share_text(peak, all), second_text(seconds),
               base > 0.0 ? factor_text(seconds / base) : "", bar});
    if (most == least)
      break;
  }
  table.print();
}

std::string picture_of(const PlanArguments& arguments, const json& result, const json& unplanned) {
  Tradeoff tradeoff{.title = arguments.path + ": one step of " + arguments.method,
                    .curve = {},
                    .marks = {},
                    .unplanned = {unplanned["unplanned_peak_bytes"].get<int64_t>(),
                                  unplanned["unplanned_seconds"].get<double>(), ""}};
  for (const auto& point : result["tradeoff"])
    tradeoff.curve.push_back(
        {point["peak_bytes"].get<int64_t>(), point["seconds"].get<double>(), ""});
  for (const auto& budget : result["budgets"]) {
    if (!budget["reachable"].get<bool>())
      continue;
    // Each budget has a profile of its own, so that only multiples of its own time compare.
    const auto unplanned_seconds = budget["unplanned_seconds"].get<double>();
    const auto factor =
        unplanned_seconds > 0.0 ? tradeoff.unplanned.seconds / unplanned_seconds : 1.0;
    tradeoff.marks.push_back({budget["predicted_peak_bytes"].get<int64_t>(),
                              factor * budget["predicted_seconds"].get<double>(),
                              "budget " + budget["budget"].get<std::string>()});
  }
  if (tradeoff.curve.empty())
    throw Failure(Exit::kStepFailed,
                  "--svg: the method has several regions that are planned one by "
                  "one, of which there is no trade-off");
  return tradeoff_svg(tradeoff);
}

void run_plan(const PlanArguments& arguments) {
  if (arguments.budgets.empty() && !arguments.sweep)
    throw Failure(Exit::kBadArguments, "--budget or --sweep is required");
  if (!arguments.svg.empty()) {
    auto files = files_beside(arguments);
    files.push_back(arguments.path);
    check_output(arguments.svg, files);
  }
  Planner planner(arguments);
  std::optional<OutputFile> picture;  // a file that cannot be written is told before steps run
  if (!arguments.svg.empty())
    picture.emplace(arguments.svg);
  json result = {{"file", arguments.path}, {"method", arguments.method}};
  result["budgets"] = json::array();
  for (const auto& budget : arguments.budgets)
    result["budgets"].push_back(plan_budget(planner, budget));
  json unplanned;
  if (arguments.sweep) {
    const auto lowered = planner.run("1.0");
    unplanned = planner.figures(lowered);
    result["tradeoff"] = planner.tradeoff(lowered);
    if (!result["tradeoff"].empty())
      result["tradeoff"] = undominated(result["tradeoff"], unplanned);
  }
  if (picture) {
    picture->write(picture_of(arguments, result, unplanned));
    picture->commit();
    result["svg"] = arguments.svg;
  }
  if (arguments.json) {
    print(result);
  } else {
    if (!arguments.budgets.empty())
      print_budgets(result["budgets"]);
    if (!arguments.budgets.empty() && arguments.sweep)
      std::printf("\n");
    if (arguments.sweep && !result["tradeoff"].empty())
      print_tradeoff(result["tradeoff"], unplanned);
    if (picture)
      std::printf("\n%s: written\n", arguments.svg.c_str());
  }
  for (const auto& budget : result["budgets"]) {
    if (!budget["reachable"].get<bool>())
      fail_unreachable(budget["budget"].get<std::string>(), budget["budget_bytes"].get<int64_t>(),
                       budget["smallest_peak_bytes"].get<int64_t>());
  }
}

}  // namespace

void add_plan(CLI::App& program) {
  const auto arguments = std::make_shared<PlanArguments>();
  auto* const app = program.add_subcommand(
      "plan", "Runs training steps under budgets and tells their peak and time.");
  add_file(*app, *arguments);
  add_call(*app, *arguments);
  add_budgets(*app, arguments->budgets);
  auto* const sweep = app->add_flag(
      "--sweep", arguments->sweep,
      wrapped("show the trade-off: the plans that no other one beats in both peak and "
              "time, from no recomputation to the smallest peak"));
  app->add_option("--svg", arguments->svg,
                  wrapped("with --sweep: write the trade-off to this file as a picture, with the "
                          "budgets in it"))
      ->needs(sweep)
      ->type_name("FILE");
  app->add_option("--steps", arguments->steps,
                  wrapped("training steps to run for each budget; from the second on, the peak is "
                          "measured, too"))
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("COUNT");
  add_settings(*app, *arguments);
  app->footer(
      "A step is the method, and the backward of the sum of its results. The first one measures\n"
      "operators and searches for a plan. Peaks are above what is in memory before a step; times\n"
      "are predicted from the measured operators. Exit status 5: a budget cannot be reached.\n\n"
      "Examples:\n"
      "  aten-recompute plan resnet.pt --input 'float32[8,3,224,224]' --budget 0.5,600MiB\n"
      "  aten-recompute plan resnet.pt --input 'float32[8,3,224,224]' --sweep --svg resnet.svg");
  app->callback([arguments] { run_plan(*arguments); });
}

}  // namespace aten_recompute::command
