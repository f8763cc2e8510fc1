// The streams of NumPy and PyTorch, against tests/golden/data/rng.
#include <gtest/gtest.h>

#include <numeric>

#include "megatron/base/error.h"
#include "megatron/datasets/numpy_random.h"
#include "megatron/datasets/torch_random.h"
#include "tests/datasets/golden.h"

namespace megatron {
namespace {

using testing::golden;
using testing::list;

template <class T>
std::vector<T> shuffled(NumpyRandomState& random, size_t n) {
  std::vector<T> values(n);
  std::iota(values.begin(), values.end(), T{0});
  random.shuffle(std::span(values));
  return values;
}

template <class T>
std::string md5_of_values(const std::vector<T>& values) {
  return md5_hex(std::as_bytes(std::span(values)));
}

TEST(NumpyRandomState, DrawsAndShufflesAsNumpy) {
  for (const auto& record : golden("rng/rng.json")["random_state"]) {
    const auto seed = record["seed"].get<int64_t>();
    SCOPED_TRACE(seed);
    NumpyRandomState words(seed), doubles(seed), hundred(seed);
    for (uint32_t word : list<uint32_t>(record["u32"])) EXPECT_EQ(words.next_u32(), word);
    for (double value : list<double>(record["random"])) EXPECT_EQ(doubles.next_double(), value);
    for (uint64_t value : list<uint64_t>(record["randint_0_100"])) EXPECT_EQ(hundred.interval(99), value);
    for (const auto& [name, order] : record.items()) {  // shuffle_10
      const std::string n = name.starts_with("shuffle_") ? name.substr(8) : "";
      if (n.empty() || n.find_first_not_of("0123456789") != std::string::npos) continue;
      NumpyRandomState random(seed);
      EXPECT_EQ(shuffled<int32_t>(random, std::stoul(n)), list<int32_t>(order)) << name;
    }
    NumpyRandomState choices(seed), rare(seed), frequent(seed);
    const std::vector<double> probabilities = {6.0 / 11, 3.0 / 11, 2.0 / 11};
    for (size_t value : list<size_t>(record["choice_3"])) EXPECT_EQ(choices.choice(probabilities), value - 1);
    for (int64_t value : list<int64_t>(record["geometric_0.2"])) EXPECT_EQ(rare.geometric(0.2), value);
    for (int64_t value : list<int64_t>(record["geometric_0.5"])) EXPECT_EQ(frequent.geometric(0.5), value);
    NumpyRandomState random(seed);
    EXPECT_EQ(shuffled<int64_t>(random, 9), list<int64_t>(record["shuffle_9_then_7"][0]));
    EXPECT_EQ(shuffled<uint32_t>(random, 7), list<uint32_t>(record["shuffle_9_then_7"][1]));
  }
}

TEST(NumpyRandomState, ShufflesManyBlocksAsNumpy) {
  NumpyRandomState random(1234);
  EXPECT_EQ(md5_of_values(shuffled<uint32_t>(random, 100000)),
            golden("rng/rng.json")["shuffle_100000_seed_1234_md5_u32"]);
}

TEST(NumpyRandomState, RejectsSeedsThatNumpyRejects) {
  for (const auto& bad : golden("rng/rng.json")["bad_seeds"]) {
    EXPECT_THROW(NumpyRandomState(bad["seed"].get<int64_t>()), ConfigError);
  }
}

TEST(NumpyRandomState, AnIntervalOfOneValueDrawsNothing) {
  NumpyRandomState random(7), untouched(7);
  EXPECT_EQ(random.interval(0), 0u);
  EXPECT_EQ(random.next_u32(), untouched.next_u32());
}

TEST(NumpyRandomState, WideIntervalsTakeTheHighWordFirst) {
  NumpyRandomState random(42), words(42);
  const uint64_t high = words.next_u32(), low = words.next_u32();
  EXPECT_EQ(random.interval(~uint64_t{0}), high << 32 | low);
}

TEST(NumpyPcg64, DrawsAsNumpy) {
  for (const auto& record : golden("rng/rng.json")["default_rng"]) {
    const auto seed = record["seed"].get<uint64_t>();
    SCOPED_TRACE(seed);
    NumpyPcg64 doubles(seed), small(seed), lengths(seed);
    for (double value : list<double>(record["random"])) EXPECT_EQ(doubles.next_double(), value);
    for (int32_t value : list<int32_t>(record["integers_0_10"])) EXPECT_EQ(small.integer(0, 10), value);
    for (int32_t value : list<int32_t>(record["integers_1_4096_i32"])) EXPECT_EQ(lengths.integer(1, 4096), value);
  }
}

TEST(TorchRandperm, PermutesAsTorch) {
  const auto& rng = golden("rng/rng.json");
  for (const auto& record : rng["torch_randperm"]) {
    EXPECT_EQ(torch_randperm(record["n"].get<int64_t>(), record["seed"].get<uint64_t>()),
              list<int64_t>(record["result"]));
  }
  EXPECT_EQ(md5_of_values(torch_randperm(100000, 3)), rng["torch_randperm_100000_seed_3_md5_i64"]);
}

}  // namespace
}  // namespace megatron
