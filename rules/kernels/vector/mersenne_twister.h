// Random masks in vector instructions, from the Mersenne Twister MT19937 (Matsumoto and Nishimura,
// "Mersenne Twister: a 623-dimensionally equidistributed uniform pseudo-random number generator",
// 1998), with the numbers that at::mt19937 gives.
//
// mersenne_twister.cpp is compiled for processors with AVX2; see batch_norm.h about what it may
// include.
#pragma once

#include <cstdint>

namespace aten_recompute::vector {

// The words of the generator's state, which are replaced together once all have been used.
inline constexpr int64_t kTwisterWords = 624;

// Sets mask[i], for i below `count`, to whether a number of 53 random bits is below `threshold`. A
// number has the lower 21 bits of the next word on top of the word after that. `used` says how many
// words of `state` have been used, and both are advanced.
void draw_mask(uint32_t* state, int64_t* used, uint64_t threshold, uint8_t* mask, int64_t count);

}  // namespace aten_recompute::vector
