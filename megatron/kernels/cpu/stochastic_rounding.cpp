#include "megatron/kernels/cpu/stochastic_rounding.h"

#include <algorithm>

namespace megatron::kernels {
namespace {
constexpr int64_t kBlocks = 64;  // of four draws, made at once

void draws_of_run(RandomKey key, int64_t step, int64_t number, int64_t length, uint32_t* draws) {
  uint32_t four[4 * kBlocks];
  for (int64_t done = 0; done < length;) {
    const int64_t block = (number + done) / 4, skip = (number + done) % 4;
    const int64_t n = std::min(4 * kBlocks - skip, length - done);
    simd_for((skip + n + 3) / 4, [=, out = four](int64_t i) {
      const std::array<uint32_t, 4> drawn = draw4(key, step, (block + i) >> 32, block + i);
      for (size_t lane = 0; lane < 4; ++lane) out[4 * i + static_cast<int64_t>(lane)] = drawn[lane];
    });
    std::copy_n(four + skip, n, draws + done);
    done += n;
  }
}
}  // namespace

void rounding_draws(const StochasticRounding& rounding, int64_t step, int64_t begin, int64_t n, uint32_t* draws) {
  for (int64_t done = 0; done < n;) {
    const ElementRun run = run_at(rounding.numbers, begin + done);
    const int64_t length = std::min(run.length, n - done);
    draws_of_run(rounding.key, step, run.number, length, draws + done);
    done += length;
  }
}

}  // namespace megatron::kernels
