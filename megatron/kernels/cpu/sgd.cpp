#include "megatron/kernels/sgd.h"

#include <span>

#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {
template <class C>
void step(const CpuStream& stream, const SgdArgs& args) {
  const StepState& state = *args.state;
  const RowReader<C> gradients(args.gradient);
  const RowWriter<C> momenta(args.momentum_buffer), model(args.model_weight);
  C* const parameters = args.parameter.as<C>();  // masters are stored in the compute type
  const double lr = args.learning_rate ? *args.learning_rate : state.learning_rate;
  const C learning_rate = static_cast<C>(lr * args.learning_rate_multiplier);
  const C decay = static_cast<C>(state.weight_decay * args.weight_decay_multiplier);
  const C gradient_factor = static_cast<C>(state.inverse_scale * state.clip_factor);
  const C momentum = static_cast<C>(args.momentum);
  parallel_pieces(stream, 1, args.parameter.num_elements(), [&](int64_t, int64_t begin, int64_t n) {
    Piece<C> g_buffer, m_buffer;
    C* p = parameters + begin;
    const C* g = gradients.read(0, begin, n, g_buffer);
    if (momenta) {
      const C* old_m = momenta.read(0, begin, n, m_buffer);
      C* m = momenta.target(0, begin, m_buffer);
      simd_for(n, [=](int64_t i) {
        m[i] = momentum * old_m[i] + (g[i] * gradient_factor + decay * p[i]);
        p[i] -= learning_rate * m[i];
      });
      momenta.store(0, begin, n, m);
    } else {
      simd_for(n, [=](int64_t i) { p[i] -= learning_rate * (g[i] * gradient_factor + decay * p[i]); });
    }
    if (!model) return;
    C* weight = model.target(0, begin, p);
    if (weight != p) std::copy_n(p, n, weight);
    model.store(0, begin, n, p);
  });
}
}  // namespace

void sgd(const CpuStream& stream, const SgdArgs& args) {
  if (args.state->found_inf) return;
  dispatch_compute(args.parameter.dtype, [&]<class C>() { step<C>(stream, args); });
}

void sgd_ranges(const CpuStream& stream, const SgdRangesArgs& args) {
  const OptimizerRanges& all = args.ranges;
  for (const OptimizerRange& range : std::span(all.table, static_cast<size_t>(all.num_ranges)))
    sgd(stream, {.parameter = range_view(range.parameter, all.dtypes.parameter, range.size),
                 .gradient = range_view(range.gradient, all.dtypes.gradient, range.size),
                 .momentum_buffer = range_view(range.first_moment, all.dtypes.first_moment, range.size),
                 .model_weight = range_view(range.model_weight, all.dtypes.model_weight, range.size),
                 .momentum = args.momentum,
                 .weight_decay_multiplier = range.weight_decay_multiplier,
                 .learning_rate = range.learning_rate,
                 .state = args.state});
}

}  // namespace megatron::kernels
