// aten-recompute profile: what operators and layers of a step cost.
#include <aten_recompute/aten_recompute.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "command/arguments.h"
#include "command/failure.h"
#include "command/inputs.h"
#include "command/model_file.h"
#include "command/subcommands.h"
#include "command/texts.h"

namespace aten_recompute::command {
namespace {

using nlohmann::json;

struct ProfileArguments : Arguments {
  bool meta = false;
  std::string device = "cpu";
  std::string by = "layer";
  int depth = 2;
  int limit = 0;  // 0: all rows
};

// The sums of a layer, or of all operators of a name.
struct Sums {
  std::string name;
  int64_t forward_operators = 0;
  int64_t backward_operators = 0;
  int64_t bytes = 0;  // of results of the forward
  int64_t kept_bytes = 0;
  double forward_flops = 0.0;
  double backward_flops = 0.0;
  double forward_seconds = 0.0;
  double backward_seconds = 0.0;

  void add(const json& node) {
    const auto flops = node["flops"].get<double>();
    const auto seconds = node["seconds"].is_null() ? 0.0 : node["seconds"].get<double>();
    if (node["phase"] == "forward") {
      ++forward_operators;
      bytes += node["bytes"].get<int64_t>();
      kept_bytes += node["kept_bytes"].get<int64_t>();
      forward_flops += flops;
      forward_seconds += seconds;
    } else {
      ++backward_operators;
      backward_flops += flops;
      backward_seconds += seconds;
    }
  }
};

// Returns "", "blocks" and "blocks.0" for "blocks.0.attention" and a depth of 2.
std::vector<std::string> prefixes(const std::string& path, int depth) {
  std::vector<std::string> found{""};
  for (size_t end = 0; depth > 0 && !path.empty() && end != path.npos; --depth) {
    end = path.find('.', found.size() == 1 ? 0 : end + 1);
    found.push_back(path.substr(0, end));
  }
  return found;
}

// Returns the sums in the order in which their operators first run. The first are those of all.
std::vector<Sums> sums_of(const json& nodes, const ProfileArguments& arguments) {
  std::vector<Sums> sums;
  std::map<std::string, size_t> places;
  for (const auto& node : nodes) {
    const auto names = arguments.by == "layer"
                           ? prefixes(node["module"].get<std::string>(), arguments.depth)
                           : std::vector<std::string>{"", node["operator"].get<std::string>()};
    for (const auto& name : names) {
      const auto [place, is_new] = places.emplace(name, sums.size());
      if (is_new)
        sums.push_back({.name = name});
      sums[place->second].add(node);
    }
  }
  return sums;
}

json to_json(const Sums& sums, bool has_seconds) {
  return {{"name", sums.name},
          {"forward_operators", sums.forward_operators},
          {"backward_operators", sums.backward_operators},
          {"bytes", sums.bytes},
          {"kept_bytes", sums.kept_bytes},
          {"forward_flops", sums.forward_flops},
          {"backward_flops", sums.backward_flops},
          {"forward_seconds", has_seconds ? json(sums.forward_seconds) : json()},
          {"backward_seconds", has_seconds ? json(sums.backward_seconds) : json()}};
}

// Returns which of `count` rows are shown: all, or those that cost most, in their order.
template <class Cost>
std::vector<size_t> shown(size_t count, int limit, const Cost& cost) {
  std::vector<size_t> rows(count);
  for (size_t i = 0; i < count; ++i)
    rows[i] = i;
  if (limit <= 0 || static_cast<size_t>(limit) >= count)
    return rows;
  std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) { return cost(a) > cost(b); });
  rows.resize(static_cast<size_t>(limit));
  std::sort(rows.begin(), rows.end());
  return rows;
}

void print_sums(const std::vector<Sums>& sums, const ProfileArguments& arguments) {
  std::vector<std::string> header{arguments.by, "operators", "results",
                                  "kept",       "forward",   "backward"};
  if (!arguments.meta)
    header.insert(header.end(), {"forward time", "backward time", "of all"});
  Table table(header);
  const auto cost = [&](size_t i) {
    return arguments.meta ? sums[i].forward_flops + sums[i].backward_flops
                          : sums[i].forward_seconds + sums[i].backward_seconds;
  };
  for (const auto i : shown(sums.size(), arguments.limit, cost)) {
    const auto& each = sums[i];
    std::vector<std::string> row{each.name.empty() ? "(all)" : each.name,
                                 std::to_string(each.forward_operators + each.backward_operators),
                                 byte_text(each.bytes),
                                 byte_text(each.kept_bytes),
                                 flop_text(each.forward_flops),
                                 flop_text(each.backward_flops)};
    if (!arguments.meta) {
      row.push_back(second_text(each.forward_seconds));
      row.push_back(second_text(each.backward_seconds));
      // Microseconds, because shares are those of whole numbers.
      row.push_back(
          share_text(static_cast<int64_t>(1e6 * cost(i)), static_cast<int64_t>(1e6 * cost(0))));
    }
    table.add(std::move(row));
  }
  table.print();
}

std::string result_text(const json& node) {
  if (node["results"].empty())
    return "";
  const auto& first = node["results"][0];
  return first["dtype"].get<std::string>() + first["sizes"].dump();
}

void print_operators(const json& nodes, const ProfileArguments& arguments) {
  std::vector<std::string> header{"operator", "phase", "layer",     "result",
                                  "bytes",    "kept",  "workspace", "operations"};
  if (!arguments.meta)
    header.emplace_back("time");
  Table table(header);
  const auto cost = [&](size_t i) {
    return (arguments.meta ? nodes[i]["flops"] : nodes[i]["seconds"]).get<double>();
  };
  for (const auto i : shown(nodes.size(), arguments.limit, cost)) {
    const auto& node = nodes[i];
    std::vector<std::string> row{node["operator"].get<std::string>(),
                                 node["phase"].get<std::string>(),
                                 node["module"].get<std::string>(),
                                 result_text(node),
                                 byte_text(node["bytes"].get<int64_t>()),
                                 byte_text(node["kept_bytes"].get<int64_t>()),
                                 byte_text(node["workspace_bytes"].get<int64_t>()),
                                 flop_text(node["flops"].get<double>())};
    if (!arguments.meta)
      row.push_back(second_text(node["seconds"].get<double>()));
    table.add(std::move(row));
  }
  table.print();
}

void run_profile(const ProfileArguments& arguments) {
  if (!arguments.meta && arguments.device != "cpu")
    throw Failure(Exit::kBadArguments, "--device " + arguments.device +
                                           ": needs --meta, because operators are timed on "
                                           "the CPU");
  const auto tensors = arguments.meta ? Tensors::kDescribed : Tensors::kReal;
  const auto options = options_of(arguments);
  auto module = load_module(arguments.path, tensors);
  if (arguments.train)
    module.train();
  const auto inputs = make_inputs(module, arguments.method, arguments.inputs, tensors);
  auto result = json::parse(
      profile(module, inputs, arguments.meta,
              {.method = arguments.method, .device = arguments.device, .options = options.dump()}));
  if (arguments.by == "single") {
    if (arguments.json)
      print(result);
    else
      print_operators(result["nodes"], arguments);
    return;
  }
  const auto sums = sums_of(result["nodes"], arguments);
  if (!arguments.json) {
    print_sums(sums, arguments);
    return;
  }
  auto& list = result[arguments.by + "s"] = json::array();
  for (const auto& each : sums)
    list.push_back(to_json(each, /*has_seconds=*/!arguments.meta));
  print(result);
}

}  // namespace

void add_profile(CLI::App& program) {
  const auto arguments = std::make_shared<ProfileArguments>();
  auto* const app =
      program.add_subcommand("profile", "Tells what operators and layers of a training step cost.");
  add_file(*app, *arguments);
  add_call(*app, *arguments);
  app->add_flag("--meta", arguments->meta,
                wrapped("run nothing and allocate nothing of the size of the model: sizes and "
                        "operations only, no times"));
  app->add_option("--by", arguments->by,
                  wrapped("what a row is: a layer with all that is in it, all operators of one "
                          "name, or a single operator"))
      ->check(CLI::IsMember({"layer", "operator", "single"}))
      ->capture_default_str()
      ->type_name("ROW");
  app->add_option("--depth", arguments->depth,
                  "how many names the path of a layer that has a row has at most")
      ->check(CLI::Range(1, 100))
      ->capture_default_str()
      ->type_name("COUNT");
  app->add_option("--limit", arguments->limit,
                  wrapped("how many rows are shown at most: those that cost most time, or most "
                          "operations with --meta"))
      ->check(CLI::Range(1, 1000000))
      ->type_name("COUNT");
  add_device(*app, arguments->device);
  add_settings(*app, *arguments);
  app->footer(
      "Without --meta, the forward runs once, and one operator of each kind is timed. Operators "
      "of\n"
      "the backward count for the layer of their forward. \"results\" is what the forward "
      "allocates,\nand \"kept\" what the backward keeps of it if nothing is recomputed. Operations "
      "are\nfloating-point operations; a multiply-add counts as two.\n\n"
      "Examples:\n"
      "  aten-recompute profile resnet.pt --input 'float32[8,3,224,224]'\n"
      "  aten-recompute profile resnet.pt --input 'float32[8,3,224,224]' --meta --by operator");
  app->callback([arguments] { run_profile(*arguments); });
}

}  // namespace aten_recompute::command
