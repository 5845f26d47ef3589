// aten-recompute bench: a step as TorchScript runs it beside the lowered step.
#include <aten_recompute/aten_recompute.h>

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command/arguments.h"
#include "command/failure.h"
#include "command/inputs.h"
#include "command/live_memory.h"
#include "command/model_file.h"
#include "command/resident_memory.h"
#include "command/step.h"
#include "command/strategy.h"
#include "command/subcommands.h"
#include "command/texts.h"
#include "command/worker.h"
#include "common/progress.h"

namespace aten_recompute::command {
namespace {

using nlohmann::json;

// The first steps compile, measure, record where tensors lie, and are watched.
constexpr int kWarmUp = 6;

struct BenchArguments : Arguments {
  Strategy strategy;
  int runs = 10;
};

// Measures steps of one module. It lives in a process of its own.
class Stepper {
 public:
  Stepper(torch::jit::Module module, std::string method, std::vector<c10::IValue> inputs,
          bool keeps_gradients)
      : module_(std::move(module)),
        method_(std::move(method)),
        inputs_(std::move(inputs)),
        keeps_gradients_(keeps_gradients) {}

  json answer(const std::string& request) {
    if (request == "warm-up")
      step();
    else if (request == "peak")
      return {{"bytes", live_peak()}};
    else if (request == "rest")
      rest();
    else
      return timed();
    return json::object();
  }

 private:
  void step() {
    run_step(module_, method_, inputs_, keeps_gradients_ ? Gradients::kKept : Gradients::kDropped);
  }

  int64_t live_peak() {
    const LiveMemory memory;
    step();
    return memory.peak_bytes();
  }

  // Reads what is resident when no step has left anything behind.
  void rest() {
    release_memory();
    return_freed_memory();
    rest_ = resident_bytes();
    step();  // takes anew what was given back
  }

  json timed() {
    const bool can_reset = reset_resident_peak();
    const auto begin = std::chrono::steady_clock::now();
    step();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const auto peak = resident_peak_bytes();
    json answer = {{"seconds", seconds.count()}, {"resident_bytes", nullptr}};
    if (can_reset && peak && rest_)
      answer["resident_bytes"] = std::max(*peak - *rest_, int64_t{0});
    return answer;
  }

  torch::jit::Module module_;
  std::string method_;
  std::vector<c10::IValue> inputs_;
  bool keeps_gradients_;
  std::optional<int64_t> rest_;
};

// Returns the options that the lowered step runs with: those that are asked for, or those of the
// file.
json options_of_bench(const BenchArguments& arguments) {
  if (!arguments.strategy.name.empty() || !arguments.strategy.budget.empty())
    return with_plan_file(options_of(arguments.strategy, arguments));
  auto options =
      options_in_file(load_module(arguments.path, Tensors::kDescribed), arguments.method);
  if (options.is_null())
    throw Failure(Exit::kBadArguments,
                  arguments.path + ": is not lowered, so --strategy or --budget is required");
  if (!arguments.settings.empty())
    throw Failure(Exit::kBadArguments,
                  "--set: needs --strategy or --budget, because the file is "
                  "lowered with options of its own");
  return options;
}

// Runs in the process that measures.
Answer start(const BenchArguments& arguments, const json& options, bool is_lowered) {
  setenv("RECOMPUTE_PROGRESS", "0", /*overwrite=*/1);  // the terminal has the bar of this program
  auto module = unlower(load_module(arguments.path, Tensors::kReal));
  if (arguments.train)
    module.train();
  torch::manual_seed(0);  // both processes have the same inputs
  const auto inputs = make_inputs(module, arguments.method, arguments.inputs, Tensors::kReal);
  if (is_lowered)
    module = lower(module, options.dump(), {arguments.method});
  const auto stepper = std::make_shared<Stepper>(module, arguments.method, inputs,
                                                 options.value("accumulate", false));
  return [stepper](const std::string& request) { return stepper->answer(request); };
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

// What was measured of one of the two.
struct Side {
  const char* name;
  std::unique_ptr<Worker> worker;
  int64_t peak_bytes = 0;
  std::vector<double> seconds{};
  std::vector<double> resident{};  // empty where the system does not tell

  json to_json() const {
    return {{"peak_bytes", peak_bytes},
            {"resident_bytes",
             resident.empty() ? json() : json(static_cast<int64_t>(median(resident)))},
            {"seconds", median(seconds)},
            {"all_seconds", seconds}};
  }
};

void measure(std::vector<Side>& sides, int runs) {
  Progress progress("bench");
  const double share =
      1.0 / (static_cast<double>(sides.size()) * static_cast<double>(kWarmUp + 2 + runs));
  double done = 0.0;
  const auto ask = [&](Side& side, const std::string& request, const std::string& now) {
    progress.set(done, std::string(side.name) + " " + now);
    auto answer = side.worker->ask(request);
    done += share;
    return answer;
  };
  for (auto& side : sides) {
    side.worker->ask("");
    for (int i = 0; i < kWarmUp; ++i)
      ask(side, "warm-up", i == 0 ? "starts" : "warms up");
    side.peak_bytes = ask(side, "peak", "peak")["bytes"].get<int64_t>();
    ask(side, "rest", "at rest");
  }
  for (int i = 0; i < runs; ++i) {
    for (auto& side : sides) {
      const auto answer = ask(side, "time", std::to_string(i + 1) + "/" + std::to_string(runs));
      side.seconds.push_back(answer["seconds"].get<double>());
      if (!answer["resident_bytes"].is_null())
        side.resident.push_back(answer["resident_bytes"].get<double>());
    }
  }
}

void print_bench(const BenchArguments& arguments, const json& result) {
  const auto& stock = result["torchscript"];
  const auto text_of = [](const json& bytes) {
    return bytes.is_null() ? std::string("unknown") : byte_text(bytes.get<int64_t>());
  };
  const auto factor = [](const json& ours, const json& theirs) {
    if (ours.is_null() || theirs.is_null() || theirs.get<double>() <= 0.0)
      return std::string();
    return factor_text(ours.get<double>() / theirs.get<double>());
  };
  std::printf("%s: one step of %s\n\n", arguments.path.c_str(), arguments.method.c_str());
  Table table({"step", "peak", "of it", "resident", "of it", "time", "of it"});
  for (const auto& [name, key] :
       {std::pair{"TorchScript", "torchscript"}, std::pair{"lowered", "lowered"}}) {
    const auto& side = result[key];
    table.add(
        {name, text_of(side["peak_bytes"]), factor(side["peak_bytes"], stock["peak_bytes"]),
         text_of(side["resident_bytes"]), factor(side["resident_bytes"], stock["resident_bytes"]),
         second_text(side["seconds"].get<double>()), factor(side["seconds"], stock["seconds"])});
  }
  table.print();
  std::printf(
      "\nTime and resident memory are medians of %d steps of each, in turns, after %d "
      "others.\n",
      arguments.runs, kWarmUp + 2);
  std::printf("Lowered with %s\n", result["options"].dump().c_str());
}

void run_bench(const BenchArguments& arguments) {
  const auto options = options_of_bench(arguments);
  {
    const auto module = load_module(arguments.path, Tensors::kDescribed);
    make_inputs(module, arguments.method, arguments.inputs,
                Tensors::kDescribed);  // throws if they are wrong
  }
  std::vector<Side> sides;
  for (const bool is_lowered : {false, true}) {
    const auto* const name = is_lowered ? "lowered" : "TorchScript";
    sides.push_back({.name = name, .worker = std::make_unique<Worker>(name, [&, is_lowered] {
                                     return start(arguments, options, is_lowered);
                                   })});
  }
  measure(sides, arguments.runs);
  const json result = {{"file", arguments.path},       {"method", arguments.method},
                       {"options", options},           {"runs", arguments.runs},
                       {"warm_up_steps", kWarmUp + 2}, {"torchscript", sides[0].to_json()},
                       {"lowered", sides[1].to_json()}};
  if (arguments.json)
    print(result);
  else
    print_bench(arguments, result);
}

}  // namespace

void add_bench(CLI::App& program) {
  const auto arguments = std::make_shared<BenchArguments>();
  auto* const app = program.add_subcommand(
      "bench", "Measures a training step as TorchScript runs it beside the lowered one.");
  add_file(*app, *arguments);
  add_call(*app, *arguments);
  add_strategy(*app, arguments->strategy);
  add_settings(*app, *arguments);
  app->add_option("--runs", arguments->runs, "steps of each that are timed")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str()
      ->type_name("COUNT");
  app->footer(
      "Each of both runs in a process of its own, and they take turns step by step.\n"
      "\"peak\" is the most bytes of tensors that a step has alive above what was in memory "
      "before\n"
      "it, gradients included unless accumulate is set. \"resident\" is the most memory that the\n"
      "process has in a step above what it has at rest, as Linux counts it. A lowered file needs\n"
      "no strategy.\n\n"
      "Examples:\n"
      "  aten-recompute bench resnet.pt --input 'float32[8,3,224,224]' --budget 0.5\n"
      "  aten-recompute bench lowered.pt --input 'float32[8,3,224,224]' --runs 20 --json");
  app->callback([arguments] { run_bench(*arguments); });
}

}  // namespace aten_recompute::command
