#include "megatron/datasets/numpy_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr double kTwoToMinus53 = 0x1p-53;

/// NumPy's SeedSequence: hashes the seed into a pool of four words and draws eight words of state from it.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    std::vector<uint32_t> entropy = {static_cast<uint32_t>(seed)};
    if (seed >> 32 != 0) entropy.push_back(static_cast<uint32_t>(seed >> 32));
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i < entropy.size() ? entropy[i] : 0);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from]));
      }
    }
  }

  /// Eight words as four little-endian 64-bit numbers.
  std::array<uint64_t, 4> state() const {
    std::array<uint64_t, 4> words{};
    uint32_t multiplier = 0x8b51f9ddu;
    for (size_t i = 0; i < 8; ++i) {
      uint32_t value = pool_[i % pool_.size()] ^ multiplier;
      multiplier *= 0x58f38dedu;
      value *= multiplier;
      value ^= value >> 16;
      words[i / 2] |= uint64_t{value} << (32 * (i % 2));
    }
    return words;
  }

 private:
  uint32_t hash(uint32_t value) {
    value ^= multiplier_;
    multiplier_ *= 0x931e8875u;
    value *= multiplier_;
    return value ^ (value >> 16);
  }
  static uint32_t mix(uint32_t a, uint32_t b) {
    const uint32_t mixed = 0xca01f9ddu * a - 0x4973f715u * b;
    return mixed ^ (mixed >> 16);
  }

  std::array<uint32_t, 4> pool_{};
  uint32_t multiplier_ = 0x43b0d7e5u;
};

}  // namespace

NumpyRandomState::NumpyRandomState(int64_t seed) {
  require<ConfigError>(seed >= 0 && seed <= std::numeric_limits<uint32_t>::max(),
                       "random seed {} is outside of [0, 4294967295], the range of the datasets' generator. "
                       "Choose --seed in that range.",
                       seed);
  engine_.seed(static_cast<uint32_t>(seed));
}

uint64_t NumpyRandomState::next_u64() {
  const uint64_t high = next_u32();
  return high << 32 | next_u32();
}

double NumpyRandomState::next_double() {
  const uint32_t high = next_u32() >> 5, low = next_u32() >> 6;
  return (high * 67108864.0 + low) * kTwoToMinus53;
}

uint64_t NumpyRandomState::interval(uint64_t max) {
  if (max == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(max);
  uint64_t value = 0;
  do {
    value = (max <= std::numeric_limits<uint32_t>::max() ? next_u32() : next_u64()) & mask;
  } while (value > max);
  return value;
}

size_t NumpyRandomState::choice(std::span<const double> probabilities) {
  std::vector<double> ends(probabilities.size());
  std::partial_sum(probabilities.begin(), probabilities.end(), ends.begin());
  const double all = ends.back();
  for (double& end : ends) end /= all;
  return static_cast<size_t>(std::ranges::upper_bound(ends, next_double()) - ends.begin());
}

/// NumPy inverts the distribution of the rarer outcome, and draws again where rounding has left both behind.
bool NumpyRandomState::bernoulli(double p) {
  const bool counts_failures = p > 0.5;
  const double rare = counts_failures ? 1 - p : p, common = 1 - rare;
  const double none = std::exp(std::log(common));
  while (true) {
    const double drawn = next_double();
    if (drawn <= none) return counts_failures;
    if (drawn - none <= rare * none / common) return !counts_failures;
  }
}

int64_t NumpyRandomState::geometric(double p) {
  constexpr double kSearchFrom = 1.0 / 3;
  const double drawn = next_double();
  if (p < kSearchFrom) return static_cast<int64_t>(std::ceil(std::log1p(-drawn) / std::log(1 - p)));
  int64_t trials = 1;
  double probability = p;
  for (double sum = p; drawn > sum; sum += probability) {
    probability *= 1 - p;
    ++trials;
  }
  return trials;
}

NumpyPcg64::NumpyPcg64(uint64_t seed) {
  const std::array<uint64_t, 4> words = SeedSequence(seed).state();
  const Word128 initial_state = Word128{words[0]} << 64 | words[1];
  const Word128 initial_sequence = Word128{words[2]} << 64 | words[3];
  increment_ = initial_sequence << 1 | 1;
  step();
  state_ += initial_state;
  step();
}

void NumpyPcg64::step() {
  constexpr Word128 kMultiplier = Word128{0x2360ED051FC65DA4u} << 64 | 0x4385DF649FCCF645u;
  state_ = state_ * kMultiplier + increment_;
}

uint64_t NumpyPcg64::next_u64() {
  step();
  const auto high = static_cast<uint64_t>(state_ >> 64), low = static_cast<uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(state_ >> 122));
}

uint32_t NumpyPcg64::next_u32() {
  if (has_saved_half_) {
    has_saved_half_ = false;
    return saved_half_;
  }
  const uint64_t word = next_u64();
  saved_half_ = static_cast<uint32_t>(word >> 32);
  has_saved_half_ = true;
  return static_cast<uint32_t>(word);
}

double NumpyPcg64::next_double() { return static_cast<double>(next_u64() >> 11) * kTwoToMinus53; }

int32_t NumpyPcg64::integer(int32_t low, int32_t high) {
  require(low < high, "integer({}, {}) has an empty range", low, high);
  const auto range = static_cast<uint32_t>(int64_t{high} - low);
  if (range == 1) return low;
  uint64_t product = uint64_t{next_u32()} * range;
  if (static_cast<uint32_t>(product) < range) {
    const auto threshold = static_cast<uint32_t>((uint64_t{1} << 32) % range);
    while (static_cast<uint32_t>(product) < threshold) product = uint64_t{next_u32()} * range;
  }
  return static_cast<int32_t>(low + static_cast<int64_t>(product >> 32));
}

}  // namespace megatron
