#include "megatron/datasets/torch_random.h"

#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

// Above this length torch draws 64-bit numbers and fills inside-out.
constexpr int64_t kLongPermutation = std::numeric_limits<uint32_t>::max() / 20;

}  // namespace

std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed) {
  require(n >= 0, "a permutation of {} elements was requested", n);
  std::mt19937 engine(static_cast<uint32_t>(seed));
  std::vector<int64_t> order(static_cast<size_t>(n));
  if (n < kLongPermutation) {
    std::iota(order.begin(), order.end(), int64_t{0});
    for (size_t i = 0; i + 1 < order.size(); ++i) std::swap(order[i], order[i + engine() % (order.size() - i)]);
    return order;
  }
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t high = engine();
    const size_t target = (high << 32 | engine()) % (i + 1);
    order[i] = order[target];
    order[target] = static_cast<int64_t>(i);
  }
  return order;
}

}  // namespace megatron
