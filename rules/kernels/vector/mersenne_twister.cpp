#include "rules/kernels/vector/mersenne_twister.h"

#include <immintrin.h>

namespace aten_recompute::vector {
namespace {

constexpr int64_t kDistance = 397;
constexpr uint64_t kNumberBits = (uint64_t{1} << 53) - 1;

inline uint32_t twisted(uint32_t word, uint32_t next) {
  const uint32_t mixed = (word & 0x80000000U) | (next & 0x7fffffffU);
  return (mixed >> 1) ^ ((0U - (next & 1U)) & 0x9908b0dfU);
}

// Both loops read words at a distance of those that they write, so the compiler makes vectors of
// them.
void renew(uint32_t* state) {
  for (int64_t i = 0; i < kTwisterWords - kDistance; ++i)
    state[i] = state[i + kDistance] ^ twisted(state[i], state[i + 1]);
  for (int64_t i = kTwisterWords - kDistance; i < kTwisterWords - 1; ++i)
    state[i] = state[i - (kTwisterWords - kDistance)] ^ twisted(state[i], state[i + 1]);
  state[kTwisterWords - 1] = state[kDistance - 1] ^ twisted(state[kTwisterWords - 1], state[0]);
}

void temper(const uint32_t* state, int64_t count, uint32_t* words) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t word = state[i];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680U;
    word ^= (word << 15) & 0xefc60000U;
    word ^= word >> 18;
    words[i] = word;
  }
}

// Returns all bits of each lane set where the number from its two words is below the threshold.
inline __m256 four_below(const uint32_t* words, __m256i threshold) {
  const auto pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
  const auto swapped = _mm256_shuffle_epi32(pairs, _MM_SHUFFLE(2, 3, 0, 1));
  const auto numbers =
      _mm256_and_si256(swapped, _mm256_set1_epi64x(static_cast<int64_t>(kNumberBits)));
  return _mm256_castsi256_ps(_mm256_cmpgt_epi64(threshold, numbers));
}

// Eight lanes of 32 bits, in the order 0 1 4 5 2 3 6 7.
inline __m256i eight_below(const uint32_t* words, __m256i threshold) {
  return _mm256_castps_si256(_mm256_shuffle_ps(
      four_below(words, threshold), four_below(words + 8, threshold), _MM_SHUFFLE(2, 0, 2, 0)));
}

void compare(const uint32_t* words, uint64_t threshold, uint8_t* mask, int64_t count) {
  const auto thresholds = _mm256_set1_epi64x(static_cast<int64_t>(threshold));
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const auto* from = words + 2 * i;
    const auto low = _mm256_packs_epi32(eight_below(from, thresholds),  //
                                        eight_below(from + 16, thresholds));
    const auto high =
        _mm256_packs_epi32(eight_below(from + 32, thresholds), eight_below(from + 48, thresholds));
    // Packing works on both halves of a register apart: one has bytes 0 1 4 5 8 9 ..., the other
    // 2 3 6 7 10 11 ...
    const auto bytes = _mm256_and_si256(_mm256_packs_epi16(low, high), _mm256_set1_epi8(1));
    const auto even = _mm256_castsi256_si128(bytes);
    const auto odd = _mm256_extracti128_si256(bytes, 1);
    auto* to = reinterpret_cast<__m128i*>(mask + i);
    _mm_storeu_si128(to, _mm_unpacklo_epi16(even, odd));
    _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(even, odd));
  }
  for (; i < count; ++i) {
    // The analyzer does not see that temper() writes all words that are read here and below.
    // NOLINTNEXTLINE(clang-analyzer-core.*)
    const auto upper = static_cast<uint64_t>(words[2 * i]) << 32;
    const auto number = (upper | words[2 * i + 1]) & kNumberBits;
    mask[i] = number < threshold ? 1 : 0;
  }
}

}  // namespace

void draw_mask(uint32_t* state, int64_t* used, uint64_t threshold, uint8_t* mask, int64_t count) {
  uint32_t words[kTwisterWords + 1];
  int64_t carried = 0;  // 1: words[0] is the last one of the state before
  while (count > 0) {
    if (*used == kTwisterWords) {
      renew(state);
      *used = 0;
    }
    temper(state + *used, kTwisterWords - *used, words + carried);
    const auto available = (carried + kTwisterWords - *used) / 2;
    const auto drawn = count < available ? count : available;
    compare(words, threshold, mask, drawn);
    mask += drawn;
    count -= drawn;
    *used += 2 * drawn - carried;
    carried = count > 0 ? kTwisterWords - *used : 0;
    if (carried > 0) {
      words[0] = words[2 * drawn];  // NOLINT(clang-analyzer-core.*)
      *used = kTwisterWords;
    }
  }
}

}  // namespace aten_recompute::vector
