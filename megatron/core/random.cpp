#include "megatron/core/random.h"

#include <numbers>

namespace megatron {
namespace {
std::array<uint32_t, 4> at_index(RandomKey key, int64_t index) {
  return philox(key.value, {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0});
}
double unit53(uint32_t high, uint32_t low) {
  return static_cast<double>(((uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}
}  // namespace

double uniform(RandomKey key, int64_t index) {
  const auto r = at_index(key, index);
  return unit53(r[0], r[1]);
}

double normal(RandomKey key, int64_t index) {
  const auto r = at_index(key, index / 2);
  const double u = unit53(r[0], r[1]), v = unit53(r[2], r[3]);
  const double radius = std::sqrt(-2 * std::log1p(-u)), angle = 2 * std::numbers::pi * v;
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace megatron
