#include "runtime/meta_memory.h"

#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/call_context.h"

namespace aten_recompute {
namespace {

void report(void* block, int64_t bytes) {
  c10::reportMemoryUsageToProfiler(block, bytes, 0, 0, at::Device(at::kMeta));
}

// Stands for a block of memory: its address is what a watch knows the block by.
struct MetaBlock {
  int64_t bytes;
  bool is_reported = false;
  bool is_exempt = false;
};

void report_new(MetaBlock& block) {
  if (!CallContext::current().counts_meta_memory || block.is_reported || block.is_exempt)
    return;
  block.is_reported = true;
  report(&block, block.bytes);
}

void release(void* context) {
  const std::unique_ptr<MetaBlock> block(static_cast<MetaBlock*>(context));
  if (block->is_reported)
    report(context, -block->bytes);
}

// Returns nullptr for a tensor that the allocator below did not make.
MetaBlock* block_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_meta() || !tensor.has_storage())
    return nullptr;
  const auto& memory = tensor.storage().data_ptr();
  return memory.get_deleter() == &release ? static_cast<MetaBlock*>(memory.get_context()) : nullptr;
}

// Takes the place of LibTorch's allocator for meta tensors. Neither gives any memory.
class MetaAllocator final : public at::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0)
      return {nullptr, at::Device(at::kMeta)};
    auto block = std::make_unique<MetaBlock>(MetaBlock{static_cast<int64_t>(bytes)});
    report_new(*block);
    return {nullptr, block.release(), &release, at::Device(at::kMeta)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}
};

}  // namespace

CountMetaMemory::CountMetaMemory()
    : counted_before_(std::exchange(CallContext::current().counts_meta_memory, true)) {
  static const bool installed [[maybe_unused]] = [] {
    static MetaAllocator allocator;
    c10::SetAllocator(at::kMeta, &allocator, /*priority=*/1);
    return true;
  }();
}

CountMetaMemory::~CountMetaMemory() {
  CallContext::current().counts_meta_memory = counted_before_;
}

PauseMetaMemory::PauseMetaMemory()
    : counted_before_(std::exchange(CallContext::current().counts_meta_memory, false)) {}

PauseMetaMemory::~PauseMetaMemory() {
  CallContext::current().counts_meta_memory = counted_before_;
}

void count_meta_memory(const at::Tensor& tensor) {
  if (auto* block = block_of(tensor))
    report_new(*block);
}

void exempt_meta_memory(const at::Tensor& tensor) {
  if (auto* block = block_of(tensor))
    block->is_exempt = true;
}

int64_t meta_memory_of(const at::Tensor& tensor) {
  const auto* block = block_of(tensor);
  return block != nullptr && block->is_exempt ? 0 : static_cast<int64_t>(tensor.storage().nbytes());
}

}  // namespace aten_recompute
