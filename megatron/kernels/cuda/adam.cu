#include "megatron/kernels/cuda/adam.h"

#include "megatron/kernels/cuda/main_halves.cuh"
#include "megatron/kernels/cuda/optimizer_ranges.cuh"
#include "megatron/kernels/cuda/stochastic_rounding.cuh"

namespace megatron::kernels {
namespace {

/// The main parameters of a range in their own memory, or in two halves, which are the model weights too, or the bf16
/// weights themselves.
struct WholeMain {
  static __device__ FlatOperand of(const OptimizerRange& range) { return {range.parameter, DType::kFloat32}; }
};
struct RoundedMain {
  static __device__ FlatOperand of(const OptimizerRange& range) { return {range.parameter, DType::kBFloat16}; }
};
struct HalvedMain {
  static __device__ MainHalves of(const OptimizerRange& range) {
    return {static_cast<uint16_t*>(range.model_weight), static_cast<uint16_t*>(range.remainder)};
  }
};

struct Moments {
  float beta1, rest1, beta2, rest2, epsilon;
};

/// What of a range is rounded stochastically: the second moment in any case but kNothing.
enum class Rounds { kNothing, kSecondMoment, kParameter };

/// Of one range, with the numbers of the step. Its rounding stays where it is: registers are for what is loaded.
template <class Parameter, Rounds kRounds>
struct RangeStep {
  Parameter parameter;
  FlatOperand gradient, first_moment, second_moment, model_weight;
  Moments moments;
  float lr, penalty, decay, factor, unbias1, unbias2;
  const StochasticRounding* rounding;
  int64_t step;

  __device__ void operator()(int64_t begin, int n) const {
    const RawPack p_raw = load_raw(parameter, begin, n), g_raw = load_raw(gradient, begin, n);
    const RawPack m_raw = load_raw(first_moment, begin, n), v_raw = load_raw(second_moment, begin, n);
    Pack p = convert(p_raw), m = convert(m_raw), v = convert(v_raw);
    const Pack g = convert(g_raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const float scaled = g.v[e] * factor + penalty * p.v[e];
      m.v[e] = moments.beta1 * m.v[e] + moments.rest1 * scaled;
      v.v[e] = moments.beta2 * v.v[e] + moments.rest2 * scaled * scaled;
      const float update = m.v[e] * unbias1 / (sqrtf(v.v[e] * unbias2) + moments.epsilon) + decay * p.v[e];
      p.v[e] -= lr * update;
    }
    if constexpr (kRounds != Rounds::kNothing) {
      const PackDraws draws = rounding_draws(*rounding, step, begin, n);
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        if (second_moment.dtype == DType::kBFloat16) v.v[e] = rounded_to_bf16(v.v[e], moment_draw(draws.w[e]));
        if (kRounds == Rounds::kParameter) p.v[e] = rounded_to_bf16(p.v[e], parameter_draw(draws.w[e]));
      }
    }
    store(parameter, begin, n, p);
    store(first_moment, begin, n, m);
    store(second_moment, begin, n, v);
    if (model_weight) store(model_weight, begin, n, p);
  }
};

template <class Main, Rounds kRounds>
struct Step {
  DType gradient_dtype, first_dtype, second_dtype, weight_dtype;
  Moments moments;
  bool is_decoupled;
  double learning_rate_multiplier;
  const StepState* state;

  Step(const AdamRangesArgs& args, double multiplier)
      : gradient_dtype(args.ranges.dtypes.gradient),
        first_dtype(args.ranges.dtypes.first_moment),
        second_dtype(args.ranges.dtypes.second_moment),
        weight_dtype(args.ranges.dtypes.model_weight),
        moments{.beta1 = static_cast<float>(args.beta1),
                .rest1 = static_cast<float>(1 - args.beta1),
                .beta2 = static_cast<float>(args.beta2),
                .rest2 = static_cast<float>(1 - args.beta2),
                .epsilon = static_cast<float>(args.epsilon)},
        is_decoupled(args.decoupled_weight_decay),
        learning_rate_multiplier(multiplier),
        state(args.state) {}

  __device__ auto of(const OptimizerRange& range) const {
    const float wd = static_cast<float>(state->weight_decay * range.weight_decay_multiplier);
    const bool has_weight = std::is_same_v<Main, WholeMain>;  // else it is half of the parameter, or all of it
    return RangeStep<decltype(Main::of(range)), kRounds>{
        .parameter = Main::of(range),
        .gradient = {range.gradient, gradient_dtype},
        .first_moment = {range.first_moment, first_dtype},
        .second_moment = {range.second_moment, second_dtype},
        .model_weight = {has_weight ? range.model_weight : nullptr, weight_dtype},
        .moments = moments,
        .lr = static_cast<float>((range.learning_rate ? *range.learning_rate : state->learning_rate) *
                                 learning_rate_multiplier),
        .penalty = is_decoupled ? 0 : wd,
        .decay = is_decoupled ? wd : 0,
        .factor = static_cast<float>(state->inverse_scale * state->clip_factor),
        .unbias1 = static_cast<float>(1 / state->bias_correction1),
        .unbias2 = static_cast<float>(1 / state->bias_correction2),
        .rounding = &range.rounding,
        .step = state->step};
  }
};

template <class Ranges>
void run(const CudaStream& stream, const Ranges& ranges, const AdamRangesArgs& args, double multiplier) {
  const RangeDTypes& dtypes = args.ranges.dtypes;
  check_range_dtypes("adam", dtypes, true);
  const auto each = [&](const auto& step) { for_each_range(stream, "adam", ranges, args.ranges.num_chunks, step); };
  const bool rounds_second = dtypes.second_moment == DType::kBFloat16;
  if (dtypes.has_remainders)
    rounds_second ? each(Step<HalvedMain, Rounds::kSecondMoment>(args, multiplier))
                  : each(Step<HalvedMain, Rounds::kNothing>(args, multiplier));
  else if (dtypes.parameter == DType::kBFloat16)
    each(Step<RoundedMain, Rounds::kParameter>(args, multiplier));
  else
    rounds_second ? each(Step<WholeMain, Rounds::kSecondMoment>(args, multiplier))
                  : each(Step<WholeMain, Rounds::kNothing>(args, multiplier));
}

}  // namespace

void adam(const CudaStream& stream, const AdamArgs& args) {
  const int64_t n = args.gradient.num_elements();
  if (args.remainder.defined())
    check_main_halves(args.model_weight, args.remainder);
  else if (args.parameter.dtype == DType::kBFloat16)
    check_rounded_main(args.model_weight);
  const SingleRange range{{.parameter = flat_data("adam", args.parameter, n),
                           .remainder = flat_data("adam", args.remainder, n),
                           .gradient = flat_data("adam", args.gradient, n),
                           .first_moment = flat_data("adam", args.first_moment, n),
                           .second_moment = flat_data("adam", args.second_moment, n),
                           .model_weight = flat_data("adam", args.model_weight, n),
                           .learning_rate = args.learning_rate,
                           .weight_decay_multiplier = args.weight_decay_multiplier,
                           .size = n,
                           .rounding = args.rounding}};
  const RangeDTypes dtypes{.has_remainders = args.remainder.defined(),
                           .parameter = args.parameter.dtype,
                           .gradient = args.gradient.dtype,
                           .model_weight = args.model_weight.dtype,
                           .first_moment = args.first_moment.dtype,
                           .second_moment = args.second_moment.dtype};
  run(stream, range,
      {.ranges = {.num_ranges = 1, .num_chunks = num_range_chunks(n), .dtypes = dtypes},
       .beta1 = args.beta1,
       .beta2 = args.beta2,
       .epsilon = args.epsilon,
       .decoupled_weight_decay = args.decoupled_weight_decay,
       .state = args.state},
      args.learning_rate_multiplier);
}

void adam_ranges(const CudaStream& stream, const AdamRangesArgs& args) {
  run(stream, RangeTable{args.ranges.table, args.ranges.num_ranges}, args, 1);
}

}  // namespace megatron::kernels
