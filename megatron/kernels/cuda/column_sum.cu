#include "megatron/kernels/cuda/column_sum.h"

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

struct StoreSums {
  const float* partial;
  int64_t num_parts, stride, first;
  bool accumulate;
  Operand out;

  __device__ void operator()(int64_t, int64_t begin, int n) const {
    Pack sum = {};
    for (int64_t part = 0; part < num_parts; ++part)
#pragma unroll
      for (int e = 0; e < kPack; ++e)
        if (e < n) sum.v[e] += partial[part * stride + first + begin + e];
    if (accumulate) {
      const Pack old = load(out, 0, begin, n);
#pragma unroll
      for (int e = 0; e < kPack; ++e) sum.v[e] = old.v[e] + sum.v[e];
    }
    store(out, 0, begin, n, sum);
  }
};

struct AddRow {
  static constexpr int kRowsAhead = 1;
  Operand x;
  __device__ RawPack fetch(int64_t row, int64_t begin, int n) const { return load_raw(x, row, begin, n); }
  __device__ void use(const RawPack& raw, int64_t, int64_t, int, float (*sums)[kPack]) const {
    const Pack values = convert(raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) sums[0][e] += values.v[e];
  }
};

}  // namespace

void store_column_sums(const CudaStream& stream, const float* partial, int64_t num_parts, int64_t stride, int64_t first,
                       const View& out, bool accumulate) {
  for_each_pack(stream, "column_sum", Extent(out),
                StoreSums{partial, num_parts, stride, first, accumulate, Operand(out)});
}

void column_sum(const CudaStream& stream, const ColumnSumArgs& args) {
  sum_columns<1>(stream, "column_sum", Extent(args.x), args.workspace, &args.out, args.accumulate,
                 AddRow{Operand(args.x)});
}

}  // namespace megatron::kernels
