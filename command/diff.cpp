// aten-recompute diff: what two plans keep and recompute differently.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command/arguments.h"
#include "command/failure.h"
#include "command/kept_values.h"
#include "command/subcommands.h"
#include "command/texts.h"

namespace aten_recompute::command {
namespace {

using nlohmann::json;

struct DiffArguments : Arguments {
  std::string second;
  bool values = false;
  int depth = 2;
};

// A way in which plans A and B treat a value differently.
struct Change {
  const char* key;   // in JSON
  const char* text;  // above a table
  bool (*holds)(const PlannedValue& a, const PlannedValue& b);
};

bool kept_once_recomputed_once(const PlannedValue& kept, const PlannedValue& other) {
  return kept.is_kept && !other.is_kept && other.is_recomputed;
}

bool kept_once(const PlannedValue& kept, const PlannedValue& other) {
  return kept.is_kept && !other.is_kept && !other.is_recomputed;
}

bool recomputed_once(const PlannedValue& again, const PlannedValue& other) {
  return again.is_recomputed && !other.is_recomputed && again.is_kept == other.is_kept;
}

constexpr std::array<Change, 6> kChanges{{
    {"kept_in_a_recomputed_in_b", "kept in A, recomputed in B", kept_once_recomputed_once},
    {"kept_in_b_recomputed_in_a", "kept in B, recomputed in A",
     [](const PlannedValue& a, const PlannedValue& b) { return kept_once_recomputed_once(b, a); }},
    {"kept_in_a_only", "kept in A, neither kept nor recomputed in B", kept_once},
    {"kept_in_b_only", "kept in B, neither kept nor recomputed in A",
     [](const PlannedValue& a, const PlannedValue& b) { return kept_once(b, a); }},
    {"recomputed_in_a_only", "recomputed in A, otherwise the same in B", recomputed_once},
    {"recomputed_in_b_only", "recomputed in B, otherwise the same in A",
     [](const PlannedValue& a, const PlannedValue& b) { return recomputed_once(b, a); }},
}};

using RegionPairs = std::vector<std::pair<const PlannedRegion*, const PlannedRegion*>>;

// Returns the regions of two plans pair by pair, in their order, if in each pair at least half of
// the values are the same by name and layer; otherwise nothing.
RegionPairs matched_by_names(const PlanOfFile& a, const PlanOfFile& b) {
  RegionPairs pairs;
  if (a.regions.size() != b.regions.size())
    return pairs;
  for (size_t i = 0; i < a.regions.size(); ++i) {
    const auto& in_a = a.regions[i].values;
    const auto& in_b = b.regions[i].values;
    const auto common = std::count_if(in_a.begin(), in_a.end(), [&](const auto& each) {
      const auto found = in_b.find(each.first);
      return found != in_b.end() && found->second.layer == each.second.layer;
    });
    if (2 * static_cast<size_t>(common) < std::max(in_a.size(), in_b.size()))
      return {};
    pairs.emplace_back(&a.regions[i], &b.regions[i]);
  }
  return pairs;
}

// Returns pairs of regions with equal fingerprints, the n-th of one plan and the n-th of the other.
// Where strategies rewrite a region differently, the names of its values decide.
RegionPairs matched(const PlanOfFile& a, const PlanOfFile& b) {
  std::map<std::string, std::vector<const PlannedRegion*>> of_b;
  for (const auto& region : b.regions)
    of_b[region.fingerprint].push_back(&region);
  std::map<std::string, size_t> places;
  RegionPairs pairs;
  for (const auto& region : a.regions) {
    const auto& candidates = of_b[region.fingerprint];
    const auto place = places[region.fingerprint]++;
    if (place >= candidates.size())
      break;
    pairs.emplace_back(&region, candidates[place]);
  }
  if (pairs.size() != a.regions.size() || pairs.size() != b.regions.size())
    pairs = matched_by_names(a, b);
  if (pairs.empty())
    throw Failure(Exit::kBadArguments, a.path + " and " + b.path +
                                           ": plans of different models, methods or versions, "
                                           "which have no value in common to compare");
  return pairs;
}

// Returns {"bytes", "layers": [{"layer", "bytes", "values": [{"value", "bytes"}]}]}, the layers in
// the order of their names, and of values the largest first.
json changed_values(const PlanOfFile& a, const PlanOfFile& b, const Change& change) {
  std::map<std::string, std::vector<std::pair<int64_t, std::string>>> layers;
  for (const auto& [in_a, in_b] : matched(a, b)) {
    auto names = in_a->values;
    names.insert(in_b->values.begin(), in_b->values.end());
    const auto find = [](const PlannedRegion& region, const std::string& name) {
      const auto found = region.values.find(name);
      return found == region.values.end() ? PlannedValue() : found->second;
    };
    for (const auto& [name, value] : names) {
      if (change.holds(find(*in_a, name), find(*in_b, name)))
        layers[value.layer].emplace_back(value.bytes, name);
    }
  }
  int64_t all = 0;
  json list = json::array();
  for (auto& [layer, values] : layers) {
    std::sort(values.begin(), values.end(), [](const auto& x, const auto& y) {
      return x.first != y.first ? x.first > y.first : x.second < y.second;
    });
    int64_t bytes = 0;
    json entries = json::array();
    for (const auto& [size, name] : values) {
      bytes += size;
      entries.push_back({{"value", name}, {"bytes", size}});
    }
    list.push_back({{"layer", layer}, {"bytes", bytes}, {"values", std::move(entries)}});
    all += bytes;
  }
  return {{"bytes", all}, {"layers", std::move(list)}};
}

json figures_of(const PlanOfFile& plan) {
  return {{"file", plan.path},
          {"peak_bytes", plan.peak_bytes},
          {"saved_bytes", plan.saved_bytes},
          {"seconds", plan.seconds},
          {"recompute_seconds", plan.recompute_seconds}};
}

void print_figures(const json& result) {
  Table table({"plan", "peak", "of A", "kept", "time", "of A", "recomputation"});
  const auto& first = result["a"];
  for (const auto& [name, key] : {std::pair{"A", "a"}, std::pair{"B", "b"}}) {
    const auto& plan = result[key];
    const auto base = first["seconds"].get<double>();
    table.add({std::string(name) + "  " + plan["file"].get<std::string>(),
               byte_text(plan["peak_bytes"].get<int64_t>()),
               share_text(plan["peak_bytes"].get<int64_t>(), first["peak_bytes"].get<int64_t>()),
               byte_text(plan["saved_bytes"].get<int64_t>()),
               second_text(plan["seconds"].get<double>()),
               base > 0.0 ? factor_text(plan["seconds"].get<double>() / base) : "",
               second_text(plan["recompute_seconds"].get<double>())});
  }
  table.print();
}

// Returns the first names of a path: "blocks.0" of "blocks.0.attention".
std::string first_names(const std::string& path, int depth) {
  size_t end = 0;
  for (int i = 0; i < depth && end != path.npos; ++i)
    end = path.find('.', i == 0 ? 0 : end + 1);
  return path.empty() ? "(outside of layers)" : path.substr(0, end);
}

void print_values(const json& layers) {
  Table table({"layer", "value", "bytes"});
  for (const auto& layer : layers) {
    for (const auto& value : layer["values"])
      table.add({first_names(layer["layer"].get<std::string>(), 100),
                 value["value"].get<std::string>(), byte_text(value["bytes"].get<int64_t>())});
  }
  table.print();
}

void print_layers(const json& layers, int depth) {
  struct Sum {
    size_t values = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Sum> sums;
  for (const auto& layer : layers) {
    auto& sum = sums[first_names(layer["layer"].get<std::string>(), depth)];
    sum.values += layer["values"].size();
    sum.bytes += layer["bytes"].get<int64_t>();
  }
  Table table({"layer", "values", "bytes"});
  for (const auto& [layer, sum] : sums)
    table.add({layer, std::to_string(sum.values), byte_text(sum.bytes)});
  table.print();
}

void run_diff(const DiffArguments& arguments) {
  const auto a = plan_of_file(arguments.path, arguments);
  const auto b = plan_of_file(arguments.second, arguments);
  json result = {{"a", figures_of(a)}, {"b", figures_of(b)}};
  bool differ = false;
  for (const auto& change : kChanges) {
    result[change.key] = changed_values(a, b, change);
    differ = differ || !result[change.key]["layers"].empty();
  }
  result["differ"] = differ;
  if (arguments.json) {
    print(result);
    return;
  }
  print_figures(result);
  for (const auto& change : kChanges) {
    const auto& layers = result[change.key]["layers"];
    if (layers.empty())
      continue;
    std::printf("\n%s: %s\n", change.text,
                byte_text(result[change.key]["bytes"].get<int64_t>()).c_str());
    if (arguments.values)
      print_values(layers);
    else
      print_layers(layers, arguments.depth);
  }
  if (!differ)
    std::printf("\nBoth keep and recompute the same values.\n");
}

}  // namespace

void add_diff(CLI::App& program) {
  const auto arguments = std::make_shared<DiffArguments>();
  auto* const app = program.add_subcommand(
      "diff", "Shows what two plans of a model keep and recompute differently.");
  app->add_option("a", arguments->path, "a plan file, or a TorchScript module")
      ->required()
      ->type_name("FILE");
  app->add_option("b", arguments->second, "the other one")->required()->type_name("FILE");
  app->add_flag("--json", arguments->json, "write one JSON object instead of text");
  app->add_flag("--values", arguments->values, "name each value, not only the layers");
  app->add_option("--depth", arguments->depth,
                  "how many names the path of a layer that has a row has at most")
      ->check(CLI::Range(1, 100))
      ->capture_default_str()
      ->type_name("COUNT");
  add_call(*app, *arguments, /*optional=*/true);
  app->footer(
      "A plan file is what save_plan writes. A module that was lowered with a plan holds one, "
      "too;\n"
      "for any other module, --input is needed, two steps run, and what was planned is compared. "
      "A\n"
      "module that is not lowered keeps everything. Peak and time are predicted, and modules are\n"
      "measured one after the other, so that their times differ a little even for equal plans.\n\n"
      "Examples:\n"
      "  aten-recompute diff before.json after.json\n"
      "  aten-recompute diff model.pt lowered.pt --input 'float32[8,3,224,224]' --values");
  app->callback([arguments] { run_diff(*arguments); });
}

}  // namespace aten_recompute::command
