#include "megatron/kernels/random_fill.h"

#include <algorithm>

#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {
constexpr int64_t kBlocks = 64;  // of four numbers, drawn at once

/// One contiguous run whose first element is number `first` of the whole tensor.
template <class T>
void fill_run(RandomKey key, int64_t first, int64_t length, double std, T* y) {
  double z[4 * kBlocks];
  for (int64_t done = 0; done < length;) {
    const int64_t block = (first + done) / 4, skip = (first + done) % 4;
    const int64_t n = std::min(4 * kBlocks - skip, length - done);
    simd_for((skip + n + 3) / 4, [=, out = z](int64_t i) {
      const auto four = normal4(key, block + i);
      for (size_t lane = 0; lane < 4; ++lane) out[4 * i + static_cast<int64_t>(lane)] = std * four[lane];
    });
    for (int64_t i = 0; i < n; ++i) y[done + i] = static_cast<T>(z[skip + i]);
    done += n;
  }
}
}  // namespace

void fill_normal(const CpuStream& stream, const NormalFillArgs& args) {
  const Shape& shape = args.y.shape;
  const int64_t length = shape[-1], num_runs = length == 0 ? 0 : shape.num_elements() / length;
  dispatch_floating(args.y.dtype, [&]<class T>() {
    T* y = args.y.as<T>();
#pragma omp parallel for num_threads(stream.num_threads) if (stream.num_threads > 1)
    for (int64_t run = 0; run < num_runs; ++run) {
      int64_t rest = run, local = 0, global = args.global_offset;
      for (int dim = shape.rank() - 2; dim >= 0; --dim) {
        const int64_t index = rest % shape[dim];
        rest /= shape[dim];
        local += index * args.y.strides[dim];
        global += index * args.global_strides[dim];
      }
      fill_run(args.key, global, length, args.std, y + local);
    }
  });
}

}  // namespace megatron::kernels
