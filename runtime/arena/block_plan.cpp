#include "runtime/arena/block_plan.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <tuple>
#include <utility>

namespace aten_recompute {
namespace {

constexpr int64_t kAlignment = 64;  // bytes; what LibTorch's own allocator gives

// Returns how many orders are tried before the first step that is served. That step waits for it:
// one try takes time in proportion to the number of blocks, and a step in proportion to its bytes.
size_t first_tries(size_t num_blocks, int64_t alive_bytes) {
  constexpr size_t kPlacedBlocks = 50'000;
  constexpr int64_t kBytesPerBlock = 300;
  const auto placed = kPlacedBlocks + static_cast<size_t>(alive_bytes / kBytesPerBlock);
  return placed / std::max<size_t>(1, num_blocks);
}

bool is_before(const BlockKey& a, const BlockKey& b) {
  const auto all = [](const BlockKey& key) {
    return std::tuple(key.pass.run, key.pass.pass, key.instruction, key.ordinal);
  };
  return all(a) < all(b);
}

}  // namespace

size_t StepRecord::add(const BlockKey& key, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_.push_back({key, bytes, num_events_++});
  return blocks_.size() - 1;
}

void StepRecord::end(size_t block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!is_finished_)
    blocks_[block].end = num_events_++;
}

std::vector<StepRecord::Block> StepRecord::blocks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return blocks_;
}

void StepRecord::finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_finished_ = true;
}

bool StepRecord::is_finished() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_finished_;
}

BlockPlan::BlockPlan(std::vector<StepRecord::Block> blocks) : blocks_(std::move(blocks)) {
  std::stable_sort(blocks_.begin(), blocks_.end(),
                   [](const auto& a, const auto& b) { return is_before(a.key, b.key); });
  search_ = std::make_shared<PlacementSearch>(to_place(blocks_), kAlignment);
  search_->improve(first_tries(blocks_.size(), search_->bound()));
  place();
}

BlockPlan::BlockPlan(std::vector<StepRecord::Block> blocks, std::shared_ptr<PlacementSearch> search)
    : blocks_(std::move(blocks)), search_(std::move(search)) {
  place();
}

std::vector<Block> BlockPlan::to_place(const std::vector<StepRecord::Block>& blocks) {
  std::vector<Block> placed;
  for (const auto& block : blocks) {
    if (!block.leaves())
      placed.push_back({block.bytes, block.begin, block.end});
  }
  return placed;
}

int64_t BlockPlan::alive_bytes(const std::vector<StepRecord::Block>& blocks) {
  return most_alive_bytes(to_place(blocks), kAlignment);
}

void BlockPlan::place() {
  const auto placement = search_->placement();
  arena_bytes_ = placement.arena_bytes;
  alive_bytes_ = search_->bound();
  size_t num_placed = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto& block = blocks_[i];
    needed_.push_back(block.bytes);
    passes_.resize(std::max(passes_.size(), block.key.pass.run + 1));
    auto& passes = passes_[block.key.pass.run];
    passes.resize(std::max(passes.size(), block.key.pass.pass + 1));
    auto& pass = passes[block.key.pass.pass];
    while (pass.first.size() <= block.key.instruction)
      pass.first.push_back(pass.places.size());
    pass.places.push_back({block.leaves() ? -1 : placement.offsets[num_placed++], block.bytes, i});
  }
  for (auto& passes : passes_) {
    for (auto& pass : passes)
      pass.first.push_back(pass.places.size());
  }
}

std::shared_ptr<BlockPlan> BlockPlan::improved(double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kMostTries = 20'000, kTriesAtOnce = 1;
  // The memory of the arena has to be touched anew when places change.
  constexpr int64_t kShareThatPays = 50, kShareThatPaysAtTheEnd = 200;
  if (search_ == nullptr)
    return nullptr;
  const auto is_done = [&] {
    return num_tries_ >= kMostTries || search_->arena_bytes() <= search_->bound();
  };
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  try {
    while (!is_done() && Clock::now() < end) {
      search_->improve(kTriesAtOnce);
      num_tries_ += kTriesAtOnce;
    }
  } catch (const std::bad_alloc&) {
    search_ = nullptr;  // is half-way through a change, and places are good enough without it
    return nullptr;
  }
  // Dropped here if it is over, because it takes memory.
  const auto search = is_done() ? std::exchange(search_, nullptr) : search_;
  const auto share = search_ == nullptr ? kShareThatPaysAtTheEnd : kShareThatPays;
  if (search->arena_bytes() >= arena_bytes_ - arena_bytes_ / share)
    return nullptr;
  auto better = std::shared_ptr<BlockPlan>(new BlockPlan(blocks_, search));
  better->search_ = search_;
  better->num_tries_ = num_tries_;
  const std::lock_guard<std::mutex> lock(mutex_);
  better->needed_ = needed_;
  better->is_too_small_ = is_too_small_;
  return better;
}

const BlockPlan::Place* BlockPlan::find(const BlockKey& key) const {
  if (key.pass.run >= passes_.size() || key.pass.pass >= passes_[key.pass.run].size())
    return nullptr;
  const auto& pass = passes_[key.pass.run][key.pass.pass];
  if (key.instruction + 1 >= pass.first.size())
    return nullptr;
  const auto place = pass.first[key.instruction] + key.ordinal;
  return place < pass.first[key.instruction + 1] ? &pass.places[place] : nullptr;
}

std::vector<BlockPlan::PlacedBlock> BlockPlan::placed_blocks() const {
  std::vector<PlacedBlock> placed;
  for (const auto& passes : passes_) {
    for (const auto& pass : passes) {
      for (const auto& place : pass.places)
        placed.push_back({blocks_[place.block], place.offset});
    }
  }
  return placed;
}

void BlockPlan::note_larger(const Place& place, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  needed_[place.block] = std::max(needed_[place.block], bytes);
  is_too_small_ = true;
}

std::shared_ptr<BlockPlan> BlockPlan::enlarged() const {
  auto blocks = blocks_;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_too_small_)
      return nullptr;
    for (size_t i = 0; i < blocks.size(); ++i)
      blocks[i].bytes = needed_[i];
  }
  return std::make_shared<BlockPlan>(std::move(blocks));
}

}  // namespace aten_recompute
