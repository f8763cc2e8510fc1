#include "megatron/core/random.h"

namespace megatron {

double uniform(RandomKey key, int64_t index) {
  const auto r = draw4(key, index);
  return static_cast<double>(((uint64_t{r[0]} << 32) | r[1]) >> 11) * 0x1p-53;
}

}  // namespace megatron
