#include "backend/pictures/step_chart.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace aten_recompute {
namespace {

using nlohmann::json;

// Tables hold indices of texts; -1 stands for a text that is not known.
std::string text_at(const json& texts, const json& index) {
  const auto i = index.get<int64_t>();
  return i < 0 ? "" : texts.at(static_cast<size_t>(i)).get<std::string>();
}

// A moment or a block has these four.
template <class Row>
Row labeled_row(const json& table, size_t i, const json& texts, const json& kinds) {
  Row row;
  row.name = text_at(texts.at("names"), table.at("name")[i]);
  row.layer = text_at(texts.at("layers"), table.at("layer")[i]);
  row.source = text_at(texts.at("sources"), table.at("source")[i]);
  row.kind = text_at(kinds, table.at("kind")[i]);
  row.bytes = table.at("bytes")[i].get<int64_t>();
  return row;
}

std::vector<ChartBlock> blocks_of(const json& table, const json& texts, const json& kinds) {
  std::vector<ChartBlock> blocks;
  for (size_t i = 0; i < table.at("name").size(); ++i) {
    auto& block = blocks.emplace_back(labeled_row<ChartBlock>(table, i, texts, kinds));
    block.begin = table.at("begin")[i].get<int64_t>();
    block.end = table.at("end")[i].get<int64_t>();
    block.offset = table.at("offset")[i].get<int64_t>();
  }
  return blocks;
}

ChartWalk walk_of(const json& walk, const json& chart, const json& timeline, std::string title) {
  ChartWalk result;
  result.title = std::move(title);
  result.has_times = chart.at("has_times").get<bool>();
  const auto& moments = walk.at("moments");
  for (size_t i = 0; i < moments.at("name").size(); ++i) {
    result.moments.push_back(
        labeled_row<ChartMoment>(moments, i, chart, timeline.at("moment_kinds")));
    result.moments.back().seconds = moments.at("seconds")[i].get<double>();
  }
  result.blocks = blocks_of(walk.at("blocks"), chart, timeline.at("block_kinds"));
  result.arena_bytes = walk.at("blocks").at("arena_bytes").get<int64_t>();
  return result;
}

ChartArena arena_of(const json& arena, const std::string& method) {
  ChartArena result;
  result.title = method + ", the arena of its steps";
  if (arena.is_null())
    return result;
  result.blocks = blocks_of(arena.at("blocks"), arena, arena.at("kinds"));
  result.bytes = arena.at("bytes").get<int64_t>();
  for (const auto& block : result.blocks)
    result.num_moments = std::max(result.num_moments, block.end + 1);
  result.blocks.erase(std::remove_if(result.blocks.begin(), result.blocks.end(),
                                     [](const ChartBlock& block) { return block.offset < 0; }),
                      result.blocks.end());
  return result;
}

}  // namespace

std::vector<double> ChartWalk::microseconds() const {
  std::vector<double> times{0.0};
  for (const auto& moment : moments)
    times.push_back(times.back() + (has_times ? 1e6 * moment.seconds : 1.0));
  return times;
}

std::vector<MethodChart> method_charts(const json& timeline) {
  std::vector<MethodChart> methods;
  for (const auto& method : timeline.at("methods")) {
    auto& result = methods.emplace_back();
    result.name =
        method.at("class").get<std::string>() + "." + method.at("method").get<std::string>();
    for (const auto& chart : method.at("charts")) {
      const auto region = chart.at("region").get<std::string>();
      const auto title = region.empty() ? result.name : result.name + ", " + region;
      result.walks.push_back(walk_of(chart.at("planned"), chart, timeline, title + ", as planned"));
      result.walks.push_back(
          walk_of(chart.at("unplanned"), chart, timeline, title + ", with nothing recomputed"));
    }
    result.arena = arena_of(method.value("arena", json()), result.name);
  }
  return methods;
}

}  // namespace aten_recompute
