#include "runtime/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <c10/core/Device.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <mutex>
#include <utility>
#include <vector>

#include "runtime/call_context.h"

namespace aten_recompute {
namespace {

using torch::jit::pop;
using torch::jit::Stack;

std::vector<CallContext::AutocastBlock>& open_blocks() {
  return CallContext::current().autocast_blocks;
}

constexpr std::array kDevices{at::kCPU, at::kCUDA};  // in the order of AutocastState::on

// Returns whether a block does what its `enabled` says: torch.autocast switches itself off for a
// type that it has no casts to.
bool has_casts_to(c10::DeviceType device, c10::ScalarType type) {
  return device == at::kCUDA || type == at::kBFloat16 || type == at::kHalf;
}

void set(const AutocastState& state) {
  for (size_t i = 0; i < kDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kDevices[i], state.on[i]);
    at::autocast::set_autocast_dtype(kDevices[i], state.types[i]);
  }
  at::autocast::set_autocast_cache_enabled(state.is_cache_on);
}

void enter(Stack& stack) {
  const auto cache_enabled = pop(stack).toOptional<bool>();
  const auto dtype = pop(stack).toScalarType();
  const auto enabled = pop(stack).toBool();
  const auto device = c10::Device(pop(stack).toStringRef()).type();
  open_blocks().push_back({device, at::autocast::is_autocast_enabled(device),
                           at::autocast::get_autocast_dtype(device),
                           at::autocast::is_autocast_cache_enabled()});
  at::autocast::set_autocast_enabled(device, enabled && has_casts_to(device, dtype));
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
  if (cache_enabled)
    at::autocast::set_autocast_cache_enabled(*cache_enabled);
}

void close_last_block() {
  const auto block = open_blocks().back();
  open_blocks().pop_back();
  if (at::autocast::decrement_nesting() == 0)
    at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(block.device, block.enabled);
  at::autocast::set_autocast_dtype(block.device, block.dtype);
  at::autocast::set_autocast_cache_enabled(block.cache_enabled);
}

void exit(Stack& /*stack*/) {
  TORCH_CHECK(!open_blocks().empty(), "aten_recompute::exit_autocast: no block is open");
  close_last_block();
}

}  // namespace

bool AutocastState::is_on(c10::DeviceType device) const {
  for (size_t i = 0; i < kDevices.size(); ++i) {
    if (kDevices[i] == device)
      return on[i];
  }
  return false;
}

c10::ScalarType AutocastState::type(c10::DeviceType device) const {
  for (size_t i = 0; i < kDevices.size(); ++i) {
    if (kDevices[i] == device)
      return types[i];
  }
  return c10::ScalarType::Undefined;
}

void AutocastState::enter(c10::DeviceType device, bool enabled, c10::ScalarType type,
                          std::optional<bool> cache_enabled) {
  for (size_t i = 0; i < kDevices.size(); ++i) {
    if (kDevices[i] != device)
      continue;
    on[i] = enabled && has_casts_to(device, type);
    types[i] = type;
  }
  is_cache_on = cache_enabled.value_or(is_cache_on);
  is_in_block = true;
}

AutocastState AutocastState::current() {
  AutocastState state;
  for (size_t i = 0; i < kDevices.size(); ++i) {
    state.on[i] = at::autocast::is_autocast_enabled(kDevices[i]);
    state.types[i] = at::autocast::get_autocast_dtype(kDevices[i]);
  }
  state.is_cache_on = at::autocast::is_autocast_cache_enabled();
  at::autocast::increment_nesting();
  state.is_in_block = at::autocast::decrement_nesting() > 0;
  return state;
}

uint64_t generation_of_cast_cache() {
  static std::mutex mutex;
  static uint64_t generation = 0;
  static at::Tensor cast;
  // A tensor that only this function casts: while the cache keeps that, it returns the same cast.
  static const auto source = at::ones({1}, at::kFloat).requires_grad_();
  const std::lock_guard<std::mutex> lock(mutex);
  const at::AutoGradMode grad(true);
  auto now =
      at::autocast::cached_cast(at::autocast::get_autocast_dtype(at::kCPU), source, at::kCPU);
  if (!now.is_same(cast)) {
    cast = std::move(now);
    ++generation;
  }
  return generation;
}

WithAutocast::WithAutocast(const AutocastState& state) : before_(AutocastState::current()) {
  set(state);
}

WithAutocast::~WithAutocast() {
  set(before_);
}

bool autocast_enabled() {
  return at::autocast::is_autocast_enabled(at::kCPU) ||
         at::autocast::is_autocast_enabled(at::kCUDA);
}

WithoutAutocastCache::WithoutAutocastCache() : was_on_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(false);
}

WithoutAutocastCache::~WithoutAutocastCache() {
  at::autocast::set_autocast_cache_enabled(was_on_);
}

CloseAutocastBlocks::CloseAutocastBlocks() : open_(open_blocks().size()) {}

CloseAutocastBlocks::~CloseAutocastBlocks() {
  while (open_blocks().size() > open_)
    close_last_block();
}

void register_autocast_operators() {
  using torch::jit::Operator;
  static const torch::jit::RegisterOperators registered({
      Operator("aten_recompute::enter_autocast(str device, bool enabled, int dtype, bool? "
               "cache_enabled) -> ()",
               enter, c10::AliasAnalysisKind::CONSERVATIVE),
      Operator("aten_recompute::exit_autocast() -> ()", exit, c10::AliasAnalysisKind::CONSERVATIVE),
  });
}

}  // namespace aten_recompute
