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

std::array<double, 4> normal4(RandomKey key, int64_t block) {
  const auto r = at_index(key, block);
  std::array<double, 4> z;
  for (size_t i = 0; i < 4; i += 2) {
    const double u = (r[i] + 0.5) * 0x1p-32, angle = 2 * std::numbers::pi * 0x1p-32 * r[i + 1];
    const double radius = std::sqrt(-2 * std::log(u));
    z[i] = radius * std::cos(angle);
    z[i + 1] = radius * std::sin(angle);
  }
  return z;
}

}  // namespace megatron
