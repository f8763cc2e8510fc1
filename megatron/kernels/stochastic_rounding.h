// Stochastic rounding to bf16, by draws that belong to elements of the whole tensor: no result depends on
// the sharding of the tensor.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "megatron/core/random.h"

namespace megatron::kernels {

/// Numbers in the whole tensor of consecutive elements of a rank's shard. Its shard consists of blocks of
/// equal size, of which each has the same runs of neighbours; one block is one index of the dimensions before the one
/// that is cut. The default is a tensor that is whole.
struct ElementNumbers {
  static constexpr size_t kMostRuns = 4;
  struct Run {
    int64_t begin = std::numeric_limits<int64_t>::max();  // of a block of the shard
    int64_t shift = 0;                                    // from there to the block of the whole tensor
  };
  int64_t first = 0;                                    // of the shard's elements
  int64_t block = std::numeric_limits<int64_t>::max();  // elements of the shard
  int64_t whole_block = 0;                              // elements of the whole tensor
  std::array<Run, kMostRuns> runs = {{{0, 0}, {}, {}, {}}};
};

/// From an element to the end of its run numbers are consecutive.
struct ElementRun {
  int64_t number = 0, length = 0;
};
constexpr ElementRun run_at(const ElementNumbers& numbers, int64_t i) {
  int64_t in_block = numbers.first + i, outer = 0;
  if (in_block >= numbers.block) {
    if ((in_block | numbers.block) >> 32 == 0) {  // a sixth of the instructions on a GPU
      const auto element = static_cast<uint32_t>(in_block), block = static_cast<uint32_t>(numbers.block);
      outer = element / block;
    } else {
      outer = in_block / numbers.block;
    }
    in_block -= outer * numbers.block;
  }
  int64_t end = numbers.block, shift = 0;
  for (const ElementNumbers::Run& run : numbers.runs) {  // without branches, so that a GPU loads all at once
    const bool is_after = run.begin > in_block;
    end = is_after && run.begin < end ? run.begin : end;
    shift = is_after ? shift : run.shift;
  }
  return {outer * numbers.whole_block + in_block + shift, end - in_block};
}

/// How the elements of a parameter are rounded in a step: draw `number % 4` of draw4(key, step, number / 4 in two
/// halves), of which the upper 16 bits are for the parameter and the lower ones for the second moment.
struct StochasticRounding {
  RandomKey key;
  ElementNumbers numbers;
};
constexpr uint32_t parameter_draw(uint32_t draw) { return draw >> 16; }
constexpr uint32_t moment_draw(uint32_t draw) { return draw & 0xFFFFu; }

/// The bits of an fp32 number, rounded to one of the two neighbours in bf16: away from zero where the draw, of 16 bits,
/// is at least 2^16 minus the bits that bf16 drops, so that the mean over all draws is the number itself. Infinities
/// and NaN are unchanged.
constexpr uint32_t round_to_bf16(uint32_t bits, uint32_t draw) {
  constexpr uint32_t kExponent = 0x7F800000u, kQuiet = 0x00400000u, kUpper = 0xFFFF0000u;
  if ((bits & kExponent) == kExponent) return (bits & kUpper) | ((bits & ~kExponent & ~0x80000000u) != 0 ? kQuiet : 0);
  return (bits + draw) & kUpper;
}

}  // namespace megatron::kernels
