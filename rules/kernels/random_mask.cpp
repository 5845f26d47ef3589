#include "rules/kernels/random_mask.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <mutex>
#include <utility>

#include "common/log.h"
#include "rules/kernels/vector/mersenne_twister.h"

namespace aten_recompute {
namespace {

using at::Tensor;

#ifdef __x86_64__

static_assert(vector::kTwisterWords == at::MERSENNE_STATE_N);

// ATen compares a number of 53 bits, divided by 2 to the power of 53, with p. Multiplying p instead
// is exact.
uint64_t threshold_of(double p) {
  return static_cast<uint64_t>(std::ceil(std::ldexp(p, 53)));
}

// at::mt19937 counts the words that are left, and one more.
constexpr auto kWordsAndOne = static_cast<int>(vector::kTwisterWords + 1);

void draw_in_vectors(at::CPUGeneratorImpl& generator, const Tensor& mask, double p) {
  const std::lock_guard<std::mutex> lock(generator.mutex_);
  auto engine = generator.engine();
  auto data = engine.data();
  int64_t used = kWordsAndOne - data.left_;
  vector::draw_mask(data.state_.data(), &used, threshold_of(p),
                    static_cast<uint8_t*>(mask.mutable_data_ptr()), mask.numel());
  data.left_ = kWordsAndOne - static_cast<int>(used);
  data.next_ = static_cast<uint32_t>(used);
  engine.set_data(data);
  generator.set_engine(engine);
}

// ATen has other numbers on processors of Intel, from a generator of MKL.
bool masks_agree_with_aten() {
  constexpr uint64_t kSeed = 20;
  auto expected_generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  // One word is drawn after each mask, so that every second mask starts with an odd one.
  for (const auto& [p, type] :
       {std::pair(0.1, at::kFloat), {0.5, at::kDouble}, {0.9, at::kBool}, {1.0 / 3, at::kHalf}}) {
    for (const int64_t count : {1, 31, 700, 1250}) {
      const auto expected = at::empty({count}, type).bernoulli_(p, expected_generator);
      const auto mask = at::empty({count}, at::kBool);
      draw_in_vectors(*at::check_generator<at::CPUGeneratorImpl>(generator), mask, p);
      if (!mask.equal(expected.to(at::kBool)) ||
          !generator.get_state().equal(expected_generator.get_state()))
        return false;
      at::check_generator<at::CPUGeneratorImpl>(expected_generator)->random();
      at::check_generator<at::CPUGeneratorImpl>(generator)->random();
    }
  }
  return true;
}

#endif

bool choose_kernel() {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && masks_agree_with_aten())
    return true;
  log_info(LogTopic::kRules,
           "masks of dropouts are drawn by ATen: those of this library have other numbers here");
#endif
  return false;
}

bool draws_in_vectors() {
  static const bool chosen = choose_kernel();
  return chosen;
}

}  // namespace

Tensor draw_random_mask(Tensor mask, at::ScalarType type, double p) {
#ifdef __x86_64__
  if (mask.device().is_cpu() && mask.is_non_overlapping_and_dense() && mask.numel() > 0 &&
      draws_in_vectors()) {
    draw_in_vectors(*at::get_generator_or_default<at::CPUGeneratorImpl>(
                        std::nullopt, at::detail::getDefaultCPUGenerator()),
                    mask, p);
    return mask;
  }
#endif
  // MKL's generator advances differently for doubles and gives other numbers. On other devices than
  // the CPU each type may have numbers of its own.
  if (mask.device().is_cpu() && type != at::kDouble)
    return mask.bernoulli_(p);
  return at::empty_like(mask, mask.options().dtype(type)).bernoulli_(p).to(at::kBool);
}

void choose_mask_kernel() {
  draws_in_vectors();
}

}  // namespace aten_recompute
