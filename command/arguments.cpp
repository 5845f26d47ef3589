#include "command/arguments.h"

#include <cstdio>
#include <sstream>
#include <utility>

#include "command/failure.h"
#include "command/inputs.h"
#include "command/model_file.h"

namespace aten_recompute::command {

std::string wrapped(const std::string& text) {
  constexpr size_t kWidth = 66;
  std::string lines;
  size_t length = 0;
  std::istringstream words(text);
  for (std::string word; words >> word; length += word.size()) {
    if (length + 1 + word.size() > kWidth) {
      lines += '\n';
      length = 0;
    } else if (length > 0) {
      lines += ' ';
      ++length;
    }
    lines += word;
  }
  return lines;
}

CLI::Option* add_repeatable(CLI::App& app, const std::string& name,
                            std::vector<std::string>& values, const std::string& help) {
  return app.add_option(name, values, wrapped(help))->allow_extra_args(false);
}

void add_file(CLI::App& app, Arguments& arguments) {
  app.add_option("file", arguments.path,
                 wrapped("a TorchScript module, as torch.jit.save or module.save writes it"))
      ->required()
      ->type_name("FILE");
  app.add_flag("--json", arguments.json, "write one JSON object instead of text");
}

void add_call(CLI::App& app, Arguments& arguments, bool optional) {
  add_repeatable(app, "-i,--input", arguments.inputs, kInputHelp)
      ->required(!optional)
      ->type_name("VALUE");
  app.add_option("--method", arguments.method, "the method that a step runs")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_flag("--train", arguments.train,
               wrapped("switch the module to training first; by default it is as it was saved"));
}

void add_budgets(CLI::App& app, std::vector<std::string>& budgets) {
  add_repeatable(
      app, "-b,--budget", budgets,
      "a limit of the peak: a share of the peak without recomputation, such as 0.5 or "
      "40%, or a size such as 600MiB; repeat the option, or write commas between several")
      ->delimiter(',')
      ->type_name("BUDGET");
}

void add_device(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "where the step would run: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str()
      ->type_name("DEVICE");
}

void add_settings(CLI::App& app, Arguments& arguments) {
  add_repeatable(app, "--set", arguments.settings,
                 "an option of docs/options.md, such as accumulate=true; repeat it for more")
      ->type_name("NAME=VALUE");
}

nlohmann::json options_of(const Arguments& arguments) {
  auto options = nlohmann::json::object();
  for (const auto& setting : arguments.settings) {
    const auto equals = setting.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Failure(Exit::kBadArguments,
                    "--set " + setting + ": an option is name=value, such as accumulate=true");
    const auto name = setting.substr(0, equals);
    const auto text = setting.substr(equals + 1);
    if (options.contains(name))
      throw Failure(Exit::kBadArguments, "--set " + setting + ": " + name + " was given before");
    auto value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    options[name] = value.is_discarded() ? nlohmann::json(text) : std::move(value);
  }
  return options;
}

nlohmann::json options_beside_budgets(const Arguments& arguments,
                                      const std::vector<std::string>& refused) {
  auto options = options_of(arguments);
  for (const char* key : {"strategy", "memory_budget"}) {
    if (options.contains(key))
      throw Failure(Exit::kBadArguments, std::string("--set ") + key + ": use --budget");
  }
  for (const auto& key : refused) {
    if (options.contains(key))
      throw Failure(Exit::kBadArguments,
                    "--set " + key + ": what it does is not known without running a step");
  }
  return options;
}

nlohmann::json with_plan_file(nlohmann::json options) {
  if (options.value("strategy", "") != "plan")
    return options;
  if (!options.contains("plan"))
    throw Failure(Exit::kBadArguments,
                  "--strategy plan: --set plan=FILE names the plan, a file that save_plan wrote");
  if (options["plan"].is_string())
    read_file(options["plan"].get<std::string>());  // throws if it cannot be read
  options.erase("strategy");
  return options;
}

std::vector<std::string> files_beside(const Arguments& arguments) {
  auto files = arguments.inputs;
  const std::string plan = "plan=";
  for (const auto& setting : arguments.settings) {
    if (setting.rfind(plan, 0) == 0)
      files.push_back(setting.substr(plan.size()));
  }
  return files;
}

void print(const nlohmann::json& object) {
  // Paths and names of a file may have bytes that are not UTF-8, which JSON cannot hold.
  const auto text = object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

}  // namespace aten_recompute::command
