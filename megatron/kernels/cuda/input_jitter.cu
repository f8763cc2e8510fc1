#include "megatron/kernels/input_jitter.h"

#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/random.cuh"

namespace megatron::kernels {
namespace {

struct Jitter {
  Operand x, y;
  uint64_t key;
  const StepState* state;
  RowMap rows;
  float lowest, unit;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    const int64_t step = state->step, global = global_row(rows, row);
    Pack out = load(x, row, begin, n);
#pragma unroll
    for (int block = 0; block < kPack / 4; ++block) {
      const Draws draws = draw_four(key, step, global, begin / 4 + block);
#pragma unroll
      for (int i = 0; i < 4; ++i) out.v[4 * block + i] *= lowest + unit * static_cast<float>(draws.w[i]);
    }
    store(y, row, begin, n, out);
  }
};
static_assert(kPack % 4 == 0, "a pack begins with the first draw of a block");

}  // namespace

void input_jitter(const CudaStream& stream, const InputJitterArgs& args) {
  require<NotSupported>(args.y.dtype != DType::kFloat64, "[input_jitter] fp64 has no kernel on CUDA. Use the CPU.");
  for_each_pack(stream, "input_jitter", Extent(args.y),
                Jitter{Operand(args.x), Operand(args.y), args.key.value, args.state, args.rows,
                       static_cast<float>(1 - args.eps), static_cast<float>(2 * args.eps / 4294967296.0)});
}

}  // namespace megatron::kernels
