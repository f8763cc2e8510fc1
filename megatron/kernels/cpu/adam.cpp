#include "megatron/kernels/adam.h"

#include <cmath>

#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {
template <class C>
void step(const CpuStream& stream, const AdamArgs& args) {
  const StepState& state = *args.state;
  const RowReader<C> gradients(args.gradient);
  const RowWriter<C> parameters(args.parameter), first(args.first_moment), second(args.second_moment);
  const RowWriter<C> model(args.model_weight);
  const double lr = args.learning_rate ? *args.learning_rate : state.learning_rate;
  const double wd = state.weight_decay * args.weight_decay_multiplier;
  const C learning_rate = static_cast<C>(lr * args.learning_rate_multiplier);
  const C penalty = static_cast<C>(args.decoupled_weight_decay ? 0 : wd);
  const C decay = static_cast<C>(args.decoupled_weight_decay ? wd : 0);
  const C gradient_factor = static_cast<C>(state.inverse_scale * state.clip_factor);
  const C beta1 = static_cast<C>(args.beta1), rest1 = static_cast<C>(1 - args.beta1);
  const C beta2 = static_cast<C>(args.beta2), rest2 = static_cast<C>(1 - args.beta2);
  const C unbias1 = static_cast<C>(1 / state.bias_correction1), unbias2 = static_cast<C>(1 / state.bias_correction2);
  const C epsilon = static_cast<C>(args.epsilon);
  parallel_pieces(stream, 1, args.parameter.num_elements(), [&](int64_t, int64_t begin, int64_t n) {
    Piece<C> p_buffer, g_buffer, m_buffer, v_buffer;
    C* p = parameters.target(0, begin, p_buffer);
    const C* g = gradients.read(0, begin, n, g_buffer);
    const C *old_m = first.read(0, begin, n, m_buffer), *old_v = second.read(0, begin, n, v_buffer);
    C *m = first.target(0, begin, m_buffer), *v = second.target(0, begin, v_buffer);
    simd_for(n, [=](int64_t i) {
      const C gradient = g[i] * gradient_factor + penalty * p[i];
      m[i] = beta1 * old_m[i] + rest1 * gradient;
      v[i] = beta2 * old_v[i] + rest2 * gradient * gradient;
      const C update = m[i] * unbias1 / (std::sqrt(v[i] * unbias2) + epsilon) + decay * p[i];
      p[i] -= learning_rate * update;
    });
    first.store(0, begin, n, m);
    second.store(0, begin, n, v);
    if (!model) return;
    C* weight = model.target(0, begin, p);
    if (weight != p) std::copy_n(p, n, weight);
    model.store(0, begin, n, p);
  });
}
}  // namespace

void adam(const CpuStream& stream, const AdamArgs& args) {
  if (args.state->found_inf) return;
  dispatch_compute(args.parameter.dtype, [&]<class C>() {
    args.parameter.as<C>();  // masters are stored in the compute type
    step<C>(stream, args);
  });
}

}  // namespace megatron::kernels
