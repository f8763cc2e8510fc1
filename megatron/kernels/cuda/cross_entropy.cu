#include "megatron/kernels/cross_entropy.h"

#include "megatron/kernels/cuda/reduce.cuh"

namespace megatron::kernels {
namespace {

constexpr int kMaxThreads = 256;
constexpr int64_t kMostColumns = int64_t{1} << 30;  // the kernels count them in 32 bits

/// Logits of real tokens, without the padded columns.
struct Logits {
  Operand rows;
  int64_t num_columns, first_id;  // true columns

  Logits(const ConstView& logits, const VocabularyColumns& columns)
      : rows(logits),
        num_columns(std::clamp<int64_t>(columns.vocab_size - columns.first_id, 0, logits.shape[-1])),
        first_id(columns.first_id) {
    require<NotSupported>(logits.shape[-1] <= kMostColumns, "[cross_entropy] {} columns: at most {} on CUDA.",
                          logits.shape[-1], kMostColumns);
  }
  /// Column of a token, -1 if it is not among these.
  __device__ int64_t column_of(int64_t id) const {
    return id >= first_id && id < first_id + num_columns ? id - first_id : -1;
  }
  __device__ float at(int64_t row, int64_t column) const {
    return load_scalar(rows.data, rows.dtype, rows.at(row, column));
  }
};

/// One row in packs at multiples of 16 bytes, so that rows of any length (50257) are read in whole packs, all
/// but the first and the last. Pack p holds the columns [begin(p), begin(p) + kPack), of which those before 0 and past
/// the end are -infinity.
template <DType kType>
class RowPacks {
 public:
  static constexpr int kSize = kType == DType::kFloat32 ? 4 : 2;
  struct Raw {
    uint32_t words[2 * kSize];
  };

  __device__ RowPacks(const Operand& x, int64_t row, int64_t num_columns)
      : data_(x.data + x.at(row, 0) * kSize), columns_(static_cast<int>(num_columns)) {
    const int skip = static_cast<int>(-reinterpret_cast<uintptr_t>(data_) % 16) / kSize;
    shift_ = (kPack - skip) % kPack;
  }
  __device__ int begin(int p) const { return p * kPack - shift_; }
  __device__ bool is_whole(int p) const { return begin(p) >= 0 && begin(p) + kPack <= columns_; }
  __device__ Raw load(int p) const {
    Raw raw;
    if (is_whole(p)) {
      const auto* address = reinterpret_cast<const uint4*>(data_ + int64_t{kSize} * begin(p));
#pragma unroll
      for (int i = 0; i < kSize / 2; ++i) {
        const uint4 quad = address[i];
        raw.words[4 * i] = quad.x, raw.words[4 * i + 1] = quad.y;
        raw.words[4 * i + 2] = quad.z, raw.words[4 * i + 3] = quad.w;
      }
      return raw;
    }
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const int column = begin(p) + e;
      const bool is_inside = column >= 0 && column < columns_;
      if constexpr (kSize == 4) {
        raw.words[e] = is_inside ? reinterpret_cast<const uint32_t*>(data_)[column] : 0xFF800000u;
      } else {
        constexpr uint32_t kMinusInfinity = kType == DType::kBFloat16 ? 0xFF80u : 0xFC00u;
        const uint32_t bits = is_inside ? reinterpret_cast<const uint16_t*>(data_)[column] : kMinusInfinity;
        raw.words[e / 2] = e % 2 == 0 ? bits : raw.words[e / 2] | bits << 16;
      }
    }
    return raw;
  }
  __device__ static Pack convert(const Raw& raw) {
    RawPack pack;
    pack.dtype = kType;
    pack.low = make_uint4(raw.words[0], raw.words[1], raw.words[2], raw.words[3]);
    if constexpr (kSize == 4) pack.high = make_uint4(raw.words[4], raw.words[5], raw.words[6], raw.words[7]);
    return kernels::convert(pack);
  }

 private:
  const char* data_;
  int columns_, shift_;
};

/// Calls use(pack's first column, pack) for this thread's packs of a row, with kAhead of them in flight while one
/// is used. Packs past the end are -infinity.
template <int kAhead, DType kType, class Use>
__device__ void for_row_packs(const RowPacks<kType>& packs, int columns, const Use& use) {
  const int stride = static_cast<int>(blockDim.x);
  typename RowPacks<kType>::Raw next[kAhead];
  int first = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int k = 0; k < kAhead; ++k) next[k] = packs.load(first + k * stride);
  for (; packs.begin(first) < columns; first += kAhead * stride) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      Pack now = RowPacks<kType>::convert(next[k]);
      next[k] = packs.load(first + (kAhead + k) * stride);
      use(packs.begin(first + k * stride), now);
    }
  }
}
template <DType kType>
constexpr int kPacksAhead = kType == DType::kFloat32 ? 2 : 4;

__device__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// The larger number; NaN if one is NaN.
__device__ float larger(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

/// exp(x - max) is 2^(x log2 e - c) correction, with c = max log2 e rounded: one multiplication and addition for each
/// x, and the correction once a row.
constexpr float kLog2E = 1.44269504f;
__device__ float exponent_of(float max) { return __fmul_rn(max, kLog2E); }
__device__ float correction_of(float max) { return power_of_two(-fmaf(max, kLog2E, -exponent_of(max))); }

/// Largest logit so far and the sum of 2^(x log2 e - exponent_of(max)).
struct Running {
  float max, sum;
};
__device__ Running join(const Running& a, const Running& b) {
  const float max = larger(a.max, b.max), exponent = exponent_of(max);
  if (max == -INFINITY) return {max, 0};
  return {max,
          a.sum * power_of_two(exponent_of(a.max) - exponent) + b.sum * power_of_two(exponent_of(b.max) - exponent)};
}

/// reduce_row for a pair.
__device__ Running join_row(Running value) {
  __shared__ Running warps[kMaxRowThreads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = join(value, {__shfl_xor_sync(~0u, value.max, offset), __shfl_xor_sync(~0u, value.sum, offset)});
  if (blockDim.x == kWarp) return value;
  __syncthreads();
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warps[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) value = join(value, warps[warp]);
  return value;
}

__device__ Running add_pack(Running running, const Pack& x) {
  float max = running.max;
#pragma unroll
  for (int e = 0; e < kPack; ++e) max = larger(max, x.v[e]);
  if (max == -INFINITY) return running;
  const float exponent = exponent_of(max);
  float even = running.sum * power_of_two(exponent_of(running.max) - exponent), odd = 0;
#pragma unroll
  for (int e = 0; e < kPack; e += 2) {
    even += power_of_two(fmaf(x.v[e], kLog2E, -exponent));
    odd += power_of_two(fmaf(x.v[e + 1], kLog2E, -exponent));
  }
  return {max, even + odd};
}

/// -(1 - a) log p_target - a * mean over the vocabulary of log p; total is the sum of x - max.
__device__ double loss_of(float sum_exp, float target, double total, double smoothing, int64_t vocab_size) {
  const double log_sum = log(static_cast<double>(sum_exp));
  const double mean = smoothing != 0 ? total / static_cast<double>(vocab_size) - log_sum : 0;
  return (1 - smoothing) * (log_sum - target) - smoothing * mean;
}

struct Statistics {
  Logits logits;
  Indices targets;
  Scalars mask;
  const float* max_in;
  float *max, *sum_exp, *target, *total, *loss;
  double smoothing;
  int64_t vocab_size;
};

/// Largest logit only, or all sums with the largest logit given (`max_in`) or computed in the same pass.
template <DType kType>
__global__ void __launch_bounds__(kMaxThreads) statistics_kernel(Statistics args, Extent extent) {
  const int64_t row = row_of_block();
  const bool is_row = row < extent.true_rows();
  const int64_t columns = is_row ? args.logits.num_columns : 0;
  const bool has_total = args.total || args.smoothing != 0;
  const bool has_target = is_row && (args.target || args.loss);
  const int64_t column = has_target && threadIdx.x == 0 ? args.logits.column_of(args.targets[row]) : -1;
  const float at_target = column < 0 ? 0 : args.logits.at(row, column);
  Running running = {args.max_in && is_row ? args.max_in[row] : -INFINITY, 0};
  double sum = 0;
  const RowPacks<kType> packs(args.logits.rows, is_row ? row : 0, columns);
  for_row_packs<kPacksAhead<kType>>(packs, static_cast<int>(columns), [&](int begin, const Pack& x) {
    running = add_pack(running, x);
    if (!has_total) return;
#pragma unroll
    for (int e = 0; e < kPack; ++e) sum += begin + e >= 0 && begin + e < columns ? x.v[e] : 0;
  });
  running = join_row(running);
  if (has_total) sum = reduce_row(sum, Plus());
  if (threadIdx.x != 0 || !is_row) return;
  const double total = sum - static_cast<double>(running.max) * static_cast<double>(columns);
  const float sum_exp = running.sum > 0 ? running.sum * correction_of(running.max) : running.sum;
  if (args.max) args.max[row] = running.max;
  if (args.sum_exp) args.sum_exp[row] = sum_exp;
  if (args.total) args.total[row] = static_cast<float>(total);
  const float target = column < 0 ? 0 : at_target - running.max;
  if (args.target) args.target[row] = target;
  if (!args.loss) return;
  const double weight = args.mask ? args.mask[row] : 1;
  args.loss[row] =
      weight == 0 ? 0 : static_cast<float>(weight * loss_of(sum_exp, target, total, args.smoothing, args.vocab_size));
}

/// Calls run(constant) with the dtype as a compile-time constant.
template <class Run>
void with_dtype(DType dtype, const Run& run) {
  if (dtype == DType::kFloat32)
    run(std::integral_constant<DType, DType::kFloat32>());
  else if (dtype == DType::kBFloat16)
    run(std::integral_constant<DType, DType::kBFloat16>());
  else
    run(std::integral_constant<DType, DType::kFloat16>());
}

void run_statistics(const CudaStream& stream, const ConstView& logits, const Statistics& args) {
  const Extent extent(logits);
  if (extent.rows == 0) return;
  const RowBlock block(extent.columns, 1, kMaxThreads);
  with_dtype(logits.dtype, [&](auto dtype) {
    statistics_kernel<dtype><<<block.blocks(extent.rows), block.threads(), 0, stream.stream>>>(args, extent);
  });
  check_launch("cross_entropy");
}

struct Loss {
  const float *sum_exp, *target, *total;
  Scalars mask;
  double smoothing;
  int64_t vocab_size;
  float* loss;

  __device__ void operator()(int64_t, int64_t begin, int n) const {
    for (int64_t i = begin; i < begin + n; ++i) {
      const double weight = mask ? mask[i] : 1;
      const double value = loss_of(sum_exp[i], target[i], smoothing != 0 ? total[i] : 0, smoothing, vocab_size);
      loss[i] = weight == 0 ? 0 : static_cast<float>(weight * value);
    }
  }
};

struct Backward {
  Logits logits;
  Indices targets;
  const float *max, *sum_exp;
  Scalars mask, d_loss;
  double smoothing;
  float smooth;
  Operand d_logits;
};

template <DType kType>
__global__ void __launch_bounds__(kMaxThreads) backward_kernel(Backward args, Extent extent) {
  const int64_t row = row_of_block();
  if (row >= extent.true_rows()) return;
  const double factor = args.d_loss[row] * (args.mask ? args.mask[row] : 1);
  const int columns = static_cast<int>(extent.columns);
  const int target = static_cast<int>(args.logits.column_of(args.targets[row]));
  const int tokens = factor == 0 ? 0 : static_cast<int>(args.logits.num_columns);
  const float max = args.max[row], scale = static_cast<float>(factor), exponent = exponent_of(max);
  const float share = scale * correction_of(max) / args.sum_exp[row], smooth = scale * args.smooth;
  const float at_target = static_cast<float>(factor * (1 - args.smoothing));
  const int64_t out_row = args.d_logits.at(row, 0), out_size = args.d_logits.dtype == DType::kFloat32 ? 4 : 2;
  char* out = args.d_logits.data + out_row * out_size;
  const RowPacks<kType> packs(args.logits.rows, row, tokens);
  const bool is_aligned = reinterpret_cast<uintptr_t>(out + packs.begin(1) * out_size) % 16 == 0;
  for_row_packs<kPacksAhead<kType>>(packs, columns, [&](int begin, Pack& x) {
    if (begin >= columns) return;
#pragma unroll
    for (int e = 0; e < kPack; ++e) x.v[e] = fmaf(power_of_two(fmaf(x.v[e], kLog2E, -exponent)), share, -smooth);
    // Few packs reach past the tokens or have the target: the others skip the comparisons.
    if (begin + kPack > tokens || (target >= begin && target < begin + kPack)) {
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        if (begin + e >= tokens)
          x.v[e] = 0;
        else if (begin + e == target)
          x.v[e] -= at_target;
      }
    }
    if (is_aligned && begin >= 0 && begin + kPack <= columns)
      return store_whole(out + begin * out_size, args.d_logits.dtype, x);
#pragma unroll
    for (int e = 0; e < kPack; ++e)
      if (begin + e >= 0 && begin + e < columns) store_scalar(out, args.d_logits.dtype, begin + e, x.v[e]);
  });
}

const float* floats(const ConstView& view) { return view.defined() ? view.as<float>() : nullptr; }

}  // namespace

void cross_entropy_max(const CudaStream& stream, const CrossEntropyMaxArgs& args) {
  Statistics statistics{Logits(args.logits, args.columns)};
  statistics.max = args.max.as<float>();
  run_statistics(stream, args.logits, statistics);
}

void cross_entropy_sums(const CudaStream& stream, const CrossEntropySumsArgs& args) {
  Statistics statistics{Logits(args.logits, args.columns), Indices(args.targets)};
  statistics.max_in = args.max.as<float>();
  statistics.sum_exp = args.sum_exp.as<float>();
  statistics.target = args.target.as<float>();
  statistics.total = args.total.defined() ? args.total.as<float>() : nullptr;
  run_statistics(stream, args.logits, statistics);
}

void cross_entropy_loss(const CudaStream& stream, const CrossEntropyLossArgs& args) {
  ConstView loss = args.loss;
  loss.shape = Shape{args.loss.num_elements()};
  for_each_pack(stream, "cross_entropy_loss", Extent(loss),
                Loss{args.sum_exp.as<float>(), args.target.as<float>(), floats(args.total), Scalars(args.loss_mask),
                     args.label_smoothing, args.vocab_size, args.loss.as<float>()});
}

void cross_entropy_forward(const CudaStream& stream, const CrossEntropyForwardArgs& args) {
  Statistics statistics{Logits(args.logits, args.columns), Indices(args.targets), Scalars(args.loss_mask)};
  statistics.max = args.max.as<float>();
  statistics.sum_exp = args.sum_exp.as<float>();
  statistics.loss = args.loss.as<float>();
  statistics.smoothing = args.label_smoothing;
  statistics.vocab_size = args.columns.vocab_size;
  run_statistics(stream, args.logits, statistics);
}

void cross_entropy_backward(const CudaStream& stream, const CrossEntropyBackwardArgs& args) {
  const Extent extent(args.logits);
  if (extent.is_empty()) return;
  const RowBlock block(extent.columns, 1, kMaxThreads);
  const auto smooth = static_cast<float>(args.label_smoothing / static_cast<double>(args.columns.vocab_size));
  const Backward backward{Logits(args.logits, args.columns),
                          Indices(args.targets),
                          args.max.as<float>(),
                          args.sum_exp.as<float>(),
                          Scalars(args.loss_mask),
                          Scalars(args.d_loss),
                          args.label_smoothing,
                          smooth,
                          Operand(args.d_logits)};
  with_dtype(args.logits.dtype, [&](auto dtype) {
    backward_kernel<dtype><<<block.blocks(extent.rows), block.threads(), 0, stream.stream>>>(backward, extent);
  });
  check_launch("cross_entropy_backward");
}

}  // namespace megatron::kernels
