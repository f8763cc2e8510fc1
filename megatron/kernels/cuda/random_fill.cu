// This file is compiled without fused multiply-add, so that its numbers equal those of core/box_muller.h bit for bit.
#include "megatron/kernels/random_fill.h"

#include "megatron/core/box_muller.h"
#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/random.cuh"

namespace megatron::kernels {
namespace {

/// The Box-Muller transform of box_muller, with the device's square root.
__device__ double2 two_normals(uint32_t radius_draw, uint32_t angle_draw) {
  const double radius = sqrt(-2 * series_log((radius_draw + 0.5) * 0x1p-32));
  const SineCosine angle = turn(angle_draw);
  return {radius * angle.cosine, radius * angle.sine};
}

struct FillNormal {
  Operand y;
  DeviceOffsets global_rows;
  uint64_t key;
  int64_t global_offset;
  double std;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    const int64_t first = global_offset + global_rows(row) + begin;
    Pack pack = {};
    // At most three blocks of four numbers.
    double z[4];
    int64_t block = -1;
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      if (e >= n) continue;
      if ((first + e) / 4 != block) {
        block = (first + e) / 4;
        const Draws r = draw_four(key, 0, block >> 32, block);
        const double2 a = two_normals(r.w[0], r.w[1]), b = two_normals(r.w[2], r.w[3]);
        z[0] = a.x, z[1] = a.y, z[2] = b.x, z[3] = b.y;
      }
      const int lane = static_cast<int>((first + e) % 4);
      const double value = lane == 0 ? z[0] : lane == 1 ? z[1] : lane == 2 ? z[2] : z[3];
      pack.v[e] = static_cast<float>(std * value);
    }
    store(y, row, begin, n, pack);
  }
};

}  // namespace

void fill_normal(const CudaStream& stream, const NormalFillArgs& args) {
  const DeviceOffsets global_rows(args.y.shape, args.global_strides, args.y.shape.rank() - 1);
  for_each_pack(stream, "fill_normal", Extent(args.y),
                FillNormal{Operand(args.y), global_rows, args.key.value, args.global_offset, args.std});
}

}  // namespace megatron::kernels
