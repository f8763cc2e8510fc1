#include "megatron/kernels/sgd.h"

#include "megatron/kernels/cuda/optimizer_ranges.cuh"

namespace megatron::kernels {
namespace {

struct RangeStep {
  FlatOperand parameter, gradient, momentum_buffer, model_weight;
  float momentum, lr, decay, factor;

  __device__ void operator()(int64_t begin, int n) const {
    const RawPack p_raw = load_raw(parameter, begin, n), g_raw = load_raw(gradient, begin, n);
    Pack m = momentum_buffer ? load(momentum_buffer, begin, n) : Pack{};
    Pack p = convert(p_raw);
    const Pack g = convert(g_raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      m.v[e] = momentum * m.v[e] + (g.v[e] * factor + decay * p.v[e]);
      p.v[e] -= lr * m.v[e];
    }
    store(parameter, begin, n, p);
    if (momentum_buffer) store(momentum_buffer, begin, n, m);
    if (model_weight) store(model_weight, begin, n, p);
  }
};

struct Step {
  DType gradient_dtype, momentum_dtype, weight_dtype;
  float momentum;
  double learning_rate_multiplier;
  const StepState* state;

  Step(const SgdRangesArgs& args, double multiplier)
      : gradient_dtype(args.ranges.dtypes.gradient),
        momentum_dtype(args.ranges.dtypes.first_moment),
        weight_dtype(args.ranges.dtypes.model_weight),
        momentum(static_cast<float>(args.momentum)),
        learning_rate_multiplier(multiplier),
        state(args.state) {}

  __device__ void operator()(const OptimizerRange& range, int64_t first, int64_t end) const {
    for_chunk_packs(first, end, of(range));
  }
  __device__ RangeStep of(const OptimizerRange& range) const {
    return {.parameter = {range.parameter, DType::kFloat32},
            .gradient = {range.gradient, gradient_dtype},
            .momentum_buffer = {range.first_moment, momentum_dtype},
            .model_weight = {range.model_weight, weight_dtype},
            .momentum = momentum,
            .lr = static_cast<float>((range.learning_rate ? *range.learning_rate : state->learning_rate) *
                                     learning_rate_multiplier),
            .decay = static_cast<float>(state->weight_decay * range.weight_decay_multiplier),
            .factor = static_cast<float>(state->inverse_scale * state->clip_factor)};
  }
};

}  // namespace

void sgd(const CudaStream& stream, const SgdArgs& args) {
  const int64_t n = args.parameter.num_elements();
  const SingleRange range{{.parameter = flat_data("sgd", args.parameter, n),
                           .gradient = flat_data("sgd", args.gradient, n),
                           .first_moment = flat_data("sgd", args.momentum_buffer, n),
                           .model_weight = flat_data("sgd", args.model_weight, n),
                           .learning_rate = args.learning_rate,
                           .weight_decay_multiplier = args.weight_decay_multiplier,
                           .size = n}};
  const RangeDTypes dtypes{.parameter = args.parameter.dtype,
                           .gradient = args.gradient.dtype,
                           .model_weight = args.model_weight.dtype,
                           .first_moment = args.momentum_buffer.dtype};
  check_range_dtypes("sgd", dtypes);
  for_each_range(stream, "sgd", range, num_range_chunks(n),
                 Step({.ranges = {.dtypes = dtypes}, .momentum = args.momentum, .state = args.state},
                      args.learning_rate_multiplier));
}

void sgd_ranges(const CudaStream& stream, const SgdRangesArgs& args) {
  check_range_dtypes("sgd", args.ranges.dtypes);
  for_each_range(stream, "sgd", RangeTable{args.ranges.table, args.ranges.num_ranges}, args.ranges.num_chunks,
                 Step(args, 1));
}

}  // namespace megatron::kernels
