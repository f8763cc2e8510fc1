// NumPy's random streams, bit for bit: data order must not change for users of Megatron.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace megatron {

/// numpy.random.RandomState seeded with one integer: MT19937 with NumPy's derived draws.
class NumpyRandomState {
 public:
  /// @param seed in [0, 2^32 - 1]. @throw ConfigError otherwise.
  explicit NumpyRandomState(int64_t seed);

  uint32_t next_u32() { return static_cast<uint32_t>(engine_()); }
  /// Two draws, the first is the high word.
  uint64_t next_u64();
  /// Uniform in [0, 1), 53 bits (`random_sample`).
  double next_double();
  /// Uniform in [0, max], by masked rejection; max == 0 draws nothing.
  uint64_t interval(uint64_t max);

  /// `choice` of a number below the count of `probabilities`, which add up to 1.
  size_t choice(std::span<const double> probabilities);
  /// `binomial(1, p)` for 0 < p <= 1.
  bool bernoulli(double p);
  /// `geometric`: trials up to the first success. Needs 0 < p < 1.
  int64_t geometric(double p);

  /// `shuffle` of a one-dimensional array or list: the draws do not depend on the element type.
  template <class T>
  void shuffle(std::span<T> values) {
    // Targets are drawn a block ahead, so that their memory is prefetched when the swaps come.
    constexpr size_t kBlock = 64;
    std::array<uint64_t, kBlock> target;
    for (size_t last = values.size(); last > 1;) {
      const size_t count = std::min(kBlock, last - 1);
      for (size_t k = 0; k < count; ++k) {
        target[k] = interval(last - 1 - k);
        __builtin_prefetch(&values[target[k]], 1);
      }
      for (size_t k = 0; k < count; ++k) std::swap(values[last - 1 - k], values[target[k]]);
      last -= count;
    }
  }

 private:
  std::mt19937 engine_;
};

/// numpy.random.default_rng(seed): PCG64 (XSL RR 128/64) seeded through SeedSequence.
/// Source: O'Neill 2014, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms".
class NumpyPcg64 {
 public:
  explicit NumpyPcg64(uint64_t seed);

  uint64_t next_u64();
  /// The halves of a 64-bit draw, low half first.
  uint32_t next_u32();
  /// Uniform in [0, 1), 53 bits.
  double next_double();
  /// `integers(low, high, dtype=int32)`: uniform in [low, high), Lemire's method on 32-bit draws. Needs low < high.
  int32_t integer(int32_t low, int32_t high);

 private:
  __extension__ using Word128 = unsigned __int128;
  void step();

  Word128 state_ = 0;
  Word128 increment_ = 0;
  uint32_t saved_half_ = 0;
  bool has_saved_half_ = false;
};

}  // namespace megatron
