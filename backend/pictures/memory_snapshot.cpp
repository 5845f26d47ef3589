#include "backend/pictures/memory_snapshot.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

namespace aten_recompute {
namespace {

using nlohmann::json;

// Devices have addresses of their own, as far from 0 as real ones are.
constexpr int64_t kFirstAddress = 0x7f0000000000;
constexpr int64_t kBetweenDevices = int64_t{1} << 40;

json frame(const std::string& file, int64_t line, const std::string& name) {
  return {{"filename", file}, {"line", line}, {"name", name}};
}

// The value with its source line, and below it the layers that it is in, the innermost first.
json frames_of(const ChartBlock& block) {
  std::string file = block.source;
  int64_t line = 0;
  const auto colon = file.rfind(':');
  if (colon != std::string::npos && colon + 1 < file.size() && file.size() - colon < 10 &&
      std::all_of(file.begin() + static_cast<std::ptrdiff_t>(colon) + 1, file.end(),
                  [](unsigned char each) { return std::isdigit(each) != 0; })) {
    line = std::stoll(file.substr(colon + 1));
    file.resize(colon);
  }
  auto frames = json::array(
      {frame(file.empty() ? "unknown" : file, line, block.name + " (" + block.kind + ")")});
  for (auto layer = block.layer; !layer.empty();) {
    frames.push_back(frame("layer", 0, layer));
    const auto dot = layer.rfind('.');
    layer.resize(dot == std::string::npos ? 0 : dot);
  }
  return frames;
}

json gap(int64_t begin, int64_t end) {
  return {{"address", begin},
          {"size", end - begin},
          {"requested_size", 0},
          {"state", "inactive"},
          {"frames", json::array()}};
}

// One device: the allocations and releases of its blocks, and the memory that they lie in.
class Device {
 public:
  Device(const std::vector<ChartBlock>& blocks, std::vector<double> microseconds, int64_t bytes,
         int64_t index)
      : microseconds_(std::move(microseconds)),
        bytes_(bytes),
        index_(index),
        base_(kFirstAddress + index * kBetweenDevices) {
    for (const auto& block : blocks) {
      if (block.bytes > 0)
        blocks_.push_back(&block);
    }
  }

  // In the order of time. At one moment, what ends comes before what begins: its memory may be
  // taken over.
  json events() const {
    std::vector<std::tuple<int64_t, bool, const ChartBlock*>> order;
    for (const auto* block : blocks_) {
      order.emplace_back(block->begin, true, block);
      if (!is_alive_at_end(*block))
        order.emplace_back(block->end, false, block);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return std::pair(std::get<0>(a), std::get<1>(a)) < std::pair(std::get<0>(b), std::get<1>(b));
    });
    auto events = json::array();
    for (const auto& [moment, begins, block] : order) {
      json event{{"addr", base_ + block->offset},
                 {"size", block->bytes},
                 {"stream", 0},
                 {"time_us", static_cast<int64_t>(microseconds_[static_cast<size_t>(moment)])},
                 {"frames", frames_of(*block)}};
      for (const char* action :
           begins ? std::vector{"alloc"} : std::vector{"free_requested", "free_completed"}) {
        event["action"] = action;
        events.push_back(event);
      }
    }
    return events;
  }

  json segment() const {
    std::vector<const ChartBlock*> alive;
    std::copy_if(blocks_.begin(), blocks_.end(), std::back_inserter(alive),
                 [this](const ChartBlock* block) { return is_alive_at_end(*block); });
    std::sort(alive.begin(), alive.end(),
              [](const ChartBlock* a, const ChartBlock* b) { return a->offset < b->offset; });
    auto blocks = json::array();
    auto address = base_;
    int64_t used = 0;
    for (const auto* block : alive) {
      const auto begin = base_ + block->offset;
      if (begin > address)
        blocks.push_back(gap(address, begin));
      blocks.push_back({{"address", begin},
                        {"size", block->bytes},
                        {"requested_size", block->bytes},
                        {"state", "active_allocated"},
                        {"frames", frames_of(*block)}});
      address = begin + block->bytes;
      used += block->bytes;
    }
    if (address < base_ + bytes_)
      blocks.push_back(gap(address, base_ + bytes_));
    return {{"device", index_},
            {"address", base_},
            {"total_size", bytes_},
            {"allocated_size", used},
            {"active_size", used},
            {"requested_size", used},
            {"stream", 0},
            {"segment_type", "large"},
            {"is_expandable", false},
            {"segment_pool_id", {0, 0}},
            {"frames", json::array()},
            {"blocks", std::move(blocks)}};
  }

 private:
  bool is_alive_at_end(const ChartBlock& block) const {
    return block.end + 1 >= static_cast<int64_t>(microseconds_.size());
  }

  std::vector<const ChartBlock*> blocks_;
  std::vector<double> microseconds_;
  int64_t bytes_;
  int64_t index_;
  int64_t base_;
};

}  // namespace

json memory_snapshot(const std::vector<MethodChart>& methods) {
  auto segments = json::array();
  auto traces = json::array();
  auto names = json::array();
  const auto add = [&](const std::string& name, const Device& device) {
    names.push_back(name);
    traces.push_back(device.events());
    segments.push_back(device.segment());
  };
  const auto next = [&] { return static_cast<int64_t>(names.size()); };
  for (const auto& method : methods) {
    for (const auto& walk : method.walks)
      add(walk.title, Device(walk.blocks, walk.microseconds(), walk.arena_bytes, next()));
    if (const auto& arena = method.arena; !arena.blocks.empty()) {
      std::vector<double> moments(static_cast<size_t>(arena.num_moments) + 1);
      for (size_t i = 0; i < moments.size(); ++i)
        moments[i] = static_cast<double>(i);
      add(arena.title, Device(arena.blocks, std::move(moments), arena.bytes, next()));
    }
  }
  return {{"segments", std::move(segments)},
          {"device_traces", std::move(traces)},
          {"allocator_settings", json::object()},
          {"devices", std::move(names)}};
}

}  // namespace aten_recompute
