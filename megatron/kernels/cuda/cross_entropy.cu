#include "megatron/kernels/cuda/cross_entropy.h"

#include "megatron/kernels/cuda/reduce.cuh"

namespace megatron::kernels {
namespace {

constexpr int kMaxThreads = 512, kAhead = 4;  // packs that are loaded before the first is used

/// Logits of tokens that exist: the padded columns are cut off.
struct Logits {
  Operand rows;
  int64_t num_columns, first_id;  // true columns

  Logits(const ConstView& logits, const VocabularyColumns& columns)
      : rows(logits),
        num_columns(std::clamp<int64_t>(columns.vocab_size - columns.first_id, 0, logits.shape[-1])),
        first_id(columns.first_id) {}
  /// Column of a token, -1 if it is not among these.
  __device__ int64_t column_of(int64_t id) const {
    return id >= first_id && id < first_id + num_columns ? id - first_id : -1;
  }
  __device__ float at(int64_t row, int64_t column) const {
    return load_scalar(rows.data, rows.dtype, rows.at(row, column));
  }
};

/// Largest logit so far and the sum of exp(x - max).
struct Running {
  float max, sum;
};
struct Join {
  __device__ Running operator()(const Running& a, const Running& b) const {
    const float max = a.max > b.max || a.max != a.max ? a.max : b.max;
    if (max == -INFINITY) return {max, 0};
    return {max, a.sum * __expf(a.max - max) + b.sum * __expf(b.max - max)};
  }
};

__device__ Running shuffle(const Running& value, int offset) {
  return {__shfl_xor_sync(~0u, value.max, offset), __shfl_xor_sync(~0u, value.sum, offset)};
}

/// reduce_row for a pair.
__device__ Running join_row(Running value) {
  __shared__ Running warps[kMaxRowThreads / kWarp];
  const Join join;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value = join(value, shuffle(value, offset));
  if (blockDim.x == kWarp) return value;
  __syncthreads();
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warps[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) value = join(value, warps[warp]);
  return value;
}

__device__ Running add_pack(Running running, const Pack& x, int n) {
  float max = running.max;
#pragma unroll
  for (int e = 0; e < kPack; ++e)
    if (e < n && (x.v[e] > max || x.v[e] != x.v[e])) max = x.v[e];
  if (max == -INFINITY) return running;
  float sum = running.sum * __expf(running.max - max);
#pragma unroll
  for (int e = 0; e < kPack; ++e)
    if (e < n) sum += __expf(x.v[e] - max);
  return {max, sum};
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

/// Largest logit only, or all sums with the largest logit given (`max_in`) or found on the way.
__global__ void __launch_bounds__(kMaxThreads) statistics_kernel(Statistics args, Extent extent) {
  const int64_t row = row_of_block();
  const bool is_row = row < extent.true_rows();
  const int64_t columns = is_row ? args.logits.num_columns : 0;
  const bool has_total = args.total || args.smoothing != 0;
  Running running = {args.max_in && is_row ? args.max_in[row] : -INFINITY, 0};
  double sum = 0;
  const int64_t stride = blockDim.x * kPack;
  for (int64_t first = threadIdx.x * kPack; first < columns; first += kAhead * stride) {
    RawPack raw[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (first + k * stride < columns)
        raw[k] = load_raw(args.logits.rows, row, first + k * stride, pack_size(columns, first + k * stride));
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (first + k * stride >= columns) continue;
      const Pack x = convert(raw[k]);
      running = add_pack(running, x, pack_size(columns, first + k * stride));
      if (!has_total) continue;
#pragma unroll
      for (int e = 0; e < kPack; ++e) sum += x.v[e];
    }
  }
  running = join_row(running);
  if (has_total) sum = reduce_row(sum, Plus());
  if (threadIdx.x != 0 || !is_row) return;
  const double total = sum - static_cast<double>(running.max) * static_cast<double>(columns);
  if (args.max) args.max[row] = running.max;
  if (args.sum_exp) args.sum_exp[row] = running.sum;
  if (args.total) args.total[row] = static_cast<float>(total);
  if (!args.target && !args.loss) return;
  const int64_t column = args.logits.column_of(args.targets[row]);
  const float target = column < 0 ? 0 : args.logits.at(row, column) - running.max;
  if (args.target) args.target[row] = target;
  if (!args.loss) return;
  const double weight = args.mask ? args.mask[row] : 1;
  args.loss[row] =
      weight == 0 ? 0
                  : static_cast<float>(weight * loss_of(running.sum, target, total, args.smoothing, args.vocab_size));
}

void run_statistics(const CudaStream& stream, const ConstView& logits, const Statistics& args) {
  const Extent extent(logits);
  if (extent.rows == 0) return;
  const RowBlock block(extent.columns, 1, kMaxThreads);
  statistics_kernel<<<block.blocks(extent.rows), block.threads(), 0, stream.stream>>>(args, extent);
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

__global__ void __launch_bounds__(kMaxThreads) backward_kernel(Backward args, Extent extent) {
  const int64_t row = row_of_block();
  if (row >= extent.true_rows()) return;
  const double factor = args.d_loss[row] * (args.mask ? args.mask[row] : 1);
  const int64_t target = args.logits.column_of(args.targets[row]), tokens = factor == 0 ? 0 : args.logits.num_columns;
  const float max = args.max[row], scale = static_cast<float>(factor), inverse = 1 / args.sum_exp[row];
  const float at_target = static_cast<float>(factor * (1 - args.smoothing));
  for (int64_t begin = threadIdx.x * kPack; begin < extent.columns; begin += blockDim.x * kPack) {
    const int n = pack_size(extent.columns, begin);
    Pack out = begin < tokens ? load(args.logits.rows, row, begin, n) : Pack{};
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const float gradient = scale * (__expf(out.v[e] - max) * inverse - args.smooth);
      out.v[e] = begin + e >= tokens ? 0 : begin + e == target ? gradient - at_target : gradient;
    }
    store(args.d_logits, row, begin, n, out);
  }
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
  backward_kernel<<<block.blocks(extent.rows), block.threads(), 0, stream.stream>>>(
      {Logits(args.logits, args.columns), Indices(args.targets), args.max.as<float>(), args.sum_exp.as<float>(),
       Scalars(args.loss_mask), Scalars(args.d_loss), args.label_smoothing, smooth, Operand(args.d_logits)},
      extent);
  check_launch("cross_entropy_backward");
}

}  // namespace megatron::kernels
