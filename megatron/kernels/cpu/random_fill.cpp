#include "megatron/kernels/random_fill.h"

namespace megatron::kernels {
namespace {
/// One contiguous run whose first element is number `first` of the whole tensor.
template <class T>
void fill_run(RandomKey key, int64_t first, int64_t length, double std, T* y) {
  for (int64_t i = 0; i < length;) {
    const auto z = normal4(key, (first + i) / 4);
    for (int64_t lane = (first + i) % 4; lane < 4 && i < length; ++lane, ++i)
      y[i] = static_cast<T>(std * z[static_cast<size_t>(lane)]);
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
