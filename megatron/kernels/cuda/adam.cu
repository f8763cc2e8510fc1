#include "megatron/kernels/cuda/adam.h"

#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/main_halves.cuh"

namespace megatron::kernels {
namespace {

/// Main is Operand, or MainHalves, which are the model weights too.
template <class Main>
struct Step {
  Main parameter;
  Operand gradient, first_moment, second_moment, model_weight;
  float beta1, rest1, beta2, rest2, epsilon;
  bool is_decoupled;
  double learning_rate_multiplier, weight_decay_multiplier;
  const double* learning_rate;
  const StepState* state;

  __device__ void operator()(int64_t, int64_t begin, int n) const {
    if (state->found_inf) return;
    const RawPack p_raw = load_raw(parameter, 0, begin, n), g_raw = load_raw(gradient, 0, begin, n);
    const RawPack m_raw = load_raw(first_moment, 0, begin, n), v_raw = load_raw(second_moment, 0, begin, n);
    const float lr =
        static_cast<float>((learning_rate ? *learning_rate : state->learning_rate) * learning_rate_multiplier);
    const float wd = static_cast<float>(state->weight_decay * weight_decay_multiplier);
    const float penalty = is_decoupled ? 0 : wd, decay = is_decoupled ? wd : 0;
    const float factor = static_cast<float>(state->inverse_scale * state->clip_factor);
    const float unbias1 = static_cast<float>(1 / state->bias_correction1);
    const float unbias2 = static_cast<float>(1 / state->bias_correction2);
    Pack p = convert(p_raw), m = convert(m_raw), v = convert(v_raw);
    const Pack g = convert(g_raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const float scaled = g.v[e] * factor + penalty * p.v[e];
      m.v[e] = beta1 * m.v[e] + rest1 * scaled;
      v.v[e] = beta2 * v.v[e] + rest2 * scaled * scaled;
      const float update = m.v[e] * unbias1 / (sqrtf(v.v[e] * unbias2) + epsilon) + decay * p.v[e];
      p.v[e] -= lr * update;
    }
    store(parameter, 0, begin, n, p);
    store(first_moment, 0, begin, n, m);
    store(second_moment, 0, begin, n, v);
    if (model_weight) store(model_weight, 0, begin, n, p);
  }
};

}  // namespace

void adam(const CudaStream& stream, const AdamArgs& args) {
  const auto step = [&](const auto& parameter, const Operand& model_weight) {
    for_each_pack(
        stream, "adam", Extent::flat(args.gradient),
        Step{parameter, Operand(args.gradient), Operand(args.first_moment), Operand(args.second_moment), model_weight,
             static_cast<float>(args.beta1), static_cast<float>(1 - args.beta1), static_cast<float>(args.beta2),
             static_cast<float>(1 - args.beta2), static_cast<float>(args.epsilon), args.decoupled_weight_decay,
             args.learning_rate_multiplier, args.weight_decay_multiplier, args.learning_rate, args.state});
  };
  if (args.remainder.defined()) return step(MainHalves(args.model_weight, args.remainder), Operand());
  require<DtypeError>(args.parameter.dtype == DType::kFloat32, "[adam] main parameters of {} on CUDA: choose float32.",
                      args.parameter.dtype);
  step(Operand(args.parameter), Operand(args.model_weight));
}

}  // namespace megatron::kernels
