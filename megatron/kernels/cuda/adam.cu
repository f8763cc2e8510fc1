#include "megatron/kernels/adam.h"

#include "megatron/kernels/cuda/main_halves.cuh"
#include "megatron/kernels/cuda/optimizer_ranges.cuh"
#include "megatron/kernels/cuda/stochastic_rounding.cuh"

namespace megatron::kernels {
namespace {

template <bool kIsWhole>
__device__ FlatOperand flat(const void* address, DType dtype) {
  return kIsWhole ? FlatOperand(address, dtype, true) : FlatOperand(address, dtype);
}

/// The main parameters of a range in their own memory, or in two halves, which are the model weights too, or the bf16
/// weights themselves; kIsWhole: they are aligned.
struct WholeMain {
  template <bool kIsWhole>
  static __device__ FlatOperand of(const OptimizerRange& range) {
    return flat<kIsWhole>(range.parameter, DType::kFloat32);
  }
};
struct RoundedMain {
  template <bool kIsWhole>
  static __device__ FlatOperand of(const OptimizerRange& range) {
    return flat<kIsWhole>(range.parameter, DType::kBFloat16);
  }
};
struct HalvedMain {
  template <bool kIsWhole>
  static __device__ MainHalves of(const OptimizerRange& range) {
    auto *weights = static_cast<uint16_t*>(range.model_weight), *remainders = static_cast<uint16_t*>(range.remainder);
    return kIsWhole ? MainHalves(weights, remainders, true) : MainHalves(weights, remainders);
  }
};

struct Moments {
  float beta1, rest1, beta2, rest2, epsilon;
};

/// The part of a range that is rounded stochastically; the second moment except with kNothing.
enum class Rounds { kNothing, kSecondMoment, kParameter };

/// The smallest normal number, added to the argument of a root, so that no argument needs the slow path for
/// subnormal numbers; the result grows by 1e-19, which an epsilon of 1e-12 or more hides.
constexpr float kLeastNormal = 0x1p-126F;

/// sqrt(x) and 1 / x of normal numbers to two units of the last place, without the branches of the exact ones. An
/// update is a small part of the parameter, so its error is below the rounding of their sum.
__device__ float root(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The update of one range with the step's factors.
template <class Parameter, Rounds kRounds>
struct RangeStep {
  Parameter parameter;
  FlatOperand gradient, first_moment, second_moment, model_weight;
  Moments moments;
  float lr, penalty, decay, factor, unbias1, unbias2;
  ChunkDraws draws;

  /// Multiplications and additions are written as explicit instructions, so that whole packs and others have the same
  /// bits.
  __device__ void update(float& p, float g, float& m, float& v) const {
    const float scaled = fmaf(g, factor, __fmul_rn(penalty, p));
    m = fmaf(moments.rest1, scaled, __fmul_rn(moments.beta1, m));
    v = fmaf(__fmul_rn(moments.rest2, scaled), scaled, __fmul_rn(moments.beta2, v));
    const float norm = reciprocal(__fadd_rn(root(fmaf(v, unbias2, kLeastNormal)), moments.epsilon));
    p = fmaf(-lr, fmaf(__fmul_rn(m, unbias1), norm, __fmul_rn(decay, p)), p);
  }
  __device__ void operator()(int64_t begin, int n) const {
    const RawPack p_raw = load_raw(parameter, begin, n), g_raw = load_raw(gradient, begin, n);
    const RawPack m_raw = load_raw(first_moment, begin, n), v_raw = load_raw(second_moment, begin, n);
    Pack p = convert(p_raw), m = convert(m_raw), v = convert(v_raw);
    const Pack g = convert(g_raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) update(p.v[e], g.v[e], m.v[e], v.v[e]);
    if constexpr (kRounds != Rounds::kNothing) {
      const PackDraws drawn = draws(begin, n);
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        if (second_moment.dtype == DType::kBFloat16) v.v[e] = rounded_to_bf16(v.v[e], moment_draw(drawn.w[e]));
        if (kRounds == Rounds::kParameter) p.v[e] = rounded_to_bf16(p.v[e], parameter_draw(drawn.w[e]));
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

  __device__ void operator()(const OptimizerRange& range, int64_t first, int64_t end) const {
    if constexpr (kRounds != Rounds::kNothing)
      if (is_whole(range, end - first)) return for_whole_packs(first, end, of<true>(range, first, end));
    for_chunk_packs(first, end, of<false>(range, first, end));
  }

 private:
  /// The common case of chunks with rounded states, without the instructions for other dtypes, alignments
  /// and sizes, which would take longer than the memory traffic.
  __device__ bool is_whole(const OptimizerRange& range, int64_t size) const {
    uintptr_t addresses = 0;
    for (const void* data :
         {static_cast<const void*>(range.parameter), static_cast<const void*>(range.remainder), range.gradient,
          static_cast<const void*>(range.first_moment), static_cast<const void*>(range.second_moment),
          static_cast<const void*>(range.model_weight)})
      addresses |= reinterpret_cast<uintptr_t>(data);
    return size % kPack == 0 && first_dtype == DType::kBFloat16 && second_dtype == DType::kBFloat16 &&
           addresses % 16 == 0;
  }
  template <bool kIsWhole>
  __device__ auto of(const OptimizerRange& range, int64_t first, int64_t end) const {
    const float wd = static_cast<float>(state->weight_decay * range.weight_decay_multiplier);
    const bool has_weight = std::is_same_v<Main, WholeMain>;  // else it is half of the parameter, or all of it
    auto parameter = Main::template of<kIsWhole>(range);
    return RangeStep<decltype(parameter), kRounds>{
        .parameter = parameter,
        .gradient = flat<kIsWhole>(range.gradient, gradient_dtype),
        .first_moment = flat<kIsWhole>(range.first_moment, kIsWhole ? DType::kBFloat16 : first_dtype),
        .second_moment = flat<kIsWhole>(range.second_moment, kIsWhole ? DType::kBFloat16 : second_dtype),
        .model_weight = flat<kIsWhole>(has_weight ? range.model_weight : nullptr, weight_dtype),
        .moments = moments,
        .lr = static_cast<float>((range.learning_rate ? *range.learning_rate : state->learning_rate) *
                                 learning_rate_multiplier),
        .penalty = is_decoupled ? 0 : wd,
        .decay = is_decoupled ? wd : 0,
        .factor = static_cast<float>(state->inverse_scale * state->clip_factor),
        .unbias1 = __frcp_rn(static_cast<float>(state->bias_correction1)),
        .unbias2 = __frcp_rn(static_cast<float>(state->bias_correction2)),
        .draws = ChunkDraws(range.rounding, state->step, first, end)};
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
