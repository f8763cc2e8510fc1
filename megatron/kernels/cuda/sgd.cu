#include "megatron/kernels/cuda/sgd.h"

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

struct Step {
  Operand parameter, gradient, momentum_buffer, model_weight;
  float momentum;
  double learning_rate_multiplier, weight_decay_multiplier;
  const double* learning_rate;
  const StepState* state;

  __device__ void operator()(int64_t, int64_t begin, int n) const {
    if (state->found_inf) return;
    const RawPack p_raw = load_raw(parameter, 0, begin, n), g_raw = load_raw(gradient, 0, begin, n);
    Pack m = momentum_buffer ? load(momentum_buffer, 0, begin, n) : Pack{};
    const float lr =
        static_cast<float>((learning_rate ? *learning_rate : state->learning_rate) * learning_rate_multiplier);
    const float decay = static_cast<float>(state->weight_decay * weight_decay_multiplier);
    const float factor = static_cast<float>(state->inverse_scale * state->clip_factor);
    Pack p = convert(p_raw);
    const Pack g = convert(g_raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      m.v[e] = momentum * m.v[e] + (g.v[e] * factor + decay * p.v[e]);
      p.v[e] -= lr * m.v[e];
    }
    store(parameter, 0, begin, n, p);
    if (momentum_buffer) store(momentum_buffer, 0, begin, n, m);
    if (model_weight) store(model_weight, 0, begin, n, p);
  }
};

}  // namespace

void sgd(const CudaStream& stream, const SgdArgs& args) {
  require<DtypeError>(args.parameter.dtype == DType::kFloat32, "[sgd] masters of {} on CUDA: choose float32.",
                      args.parameter.dtype);
  for_each_pack(stream, "sgd", Extent::flat(args.parameter),
                Step{Operand(args.parameter), Operand(args.gradient), Operand(args.momentum_buffer),
                     Operand(args.model_weight), static_cast<float>(args.momentum), args.learning_rate_multiplier,
                     args.weight_decay_multiplier, args.learning_rate, args.state});
}

}  // namespace megatron::kernels
