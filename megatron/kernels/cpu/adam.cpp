#include "megatron/kernels/adam.h"

#include <cmath>
#include <span>

#include "megatron/kernels/cpu/main_halves.h"
#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"
#include "megatron/kernels/cpu/stochastic_rounding.h"

namespace megatron::kernels {
namespace {

/// The main parameters in the compute type: in their own memory, in fp32 with a copy in the model, or joined from two
/// halves.
template <class C>
class MainParams {
 public:
  explicit MainParams(const AdamArgs& args)
      : is_rounded_(args.parameter.dtype == DType::kBFloat16 && !args.remainder.defined()),
        whole_(args.parameter),
        model_(args.remainder.defined() ? View{} : args.model_weight),
        weights_(static_cast<uint16_t*>(args.model_weight.data)),
        remainders_(static_cast<uint16_t*>(args.remainder.data)) {}

  /// Elements [begin, begin + n), to be changed in place.
  C* read(int64_t begin, int64_t n, C* buffer) const {
    if (!remainders_) {
      whole_.read(0, begin, n, buffer);
      return whole_.target(0, begin, buffer);
    }
    if constexpr (std::is_same_v<C, float>) join_halves(weights_ + begin, remainders_ + begin, n, buffer);
    return buffer;
  }
  void store(int64_t begin, int64_t n, const uint32_t* draws, C* p) const {
    if (remainders_) {
      if constexpr (std::is_same_v<C, float>) split_halves(p, n, weights_ + begin, remainders_ + begin);
    } else if (is_rounded_) {
      round_piece(draws, n, p, [](uint32_t draw) { return parameter_draw(draw); });
      whole_.store(0, begin, n, p);
    } else if (model_) {
      C* weight = model_.target(0, begin, p);
      if (weight != p) std::copy_n(p, n, weight);
      model_.store(0, begin, n, p);
    }
  }

  bool is_rounded() const { return is_rounded_; }

 private:
  bool is_rounded_;
  RowWriter<C> whole_, model_;
  uint16_t *weights_, *remainders_;
};

template <class C>
void step(const CpuStream& stream, const AdamArgs& args) {
  const StepState& state = *args.state;
  const RowReader<C> gradients(args.gradient);
  const MainParams<C> parameters(args);
  const RowWriter<C> first(args.first_moment), second(args.second_moment);
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
  const bool rounds_second = args.second_moment.dtype == DType::kBFloat16;
  constexpr int64_t kWorth = 4;  // a root, two divisions and seven passes over memory: some 1 ns
  const auto update_piece = [&](int64_t, int64_t begin, int64_t n) {
    Piece<C> p_buffer, g_buffer, m_buffer, v_buffer;
    C* p = parameters.read(begin, n, p_buffer);
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
    uint32_t draws[kPieceElements];
    if (rounds_second || parameters.is_rounded()) rounding_draws(args.rounding, state.step, begin, n, draws);
    if (rounds_second) round_piece(draws, n, v, [](uint32_t draw) { return moment_draw(draw); });
    first.store(0, begin, n, m);
    second.store(0, begin, n, v);
    parameters.store(begin, n, draws, p);
  };
  parallel_pieces(stream, 1, args.gradient.num_elements(), update_piece, kWorth);
}
}  // namespace

void adam(const CpuStream& stream, const AdamArgs& args) {
  if (args.state->found_inf) return;
  if (args.remainder.defined()) {
    check_main_halves(args.model_weight, args.remainder);
    return step<float>(stream, args);
  }
  const bool is_rounded = args.parameter.dtype == DType::kBFloat16;
  if (is_rounded) check_rounded_main(args.model_weight);
  dispatch_compute(args.parameter.dtype, [&]<class C>() {
    if (!is_rounded) args.parameter.as<C>();  // masters are stored in the compute type
    step<C>(stream, args);
  });
}

void adam_ranges(const CpuStream& stream, const AdamRangesArgs& args) {
  const OptimizerRanges& all = args.ranges;
  for (const OptimizerRange& range : std::span(all.table, static_cast<size_t>(all.num_ranges))) {
    AdamArgs one{.parameter = range_view(range.parameter, all.dtypes.parameter, range.size),
                 .gradient = range_view(range.gradient, all.dtypes.gradient, range.size),
                 .first_moment = range_view(range.first_moment, all.dtypes.first_moment, range.size),
                 .second_moment = range_view(range.second_moment, all.dtypes.second_moment, range.size),
                 .model_weight = range_view(range.model_weight, all.dtypes.model_weight, range.size),
                 .beta1 = args.beta1,
                 .beta2 = args.beta2,
                 .epsilon = args.epsilon,
                 .decoupled_weight_decay = args.decoupled_weight_decay,
                 .weight_decay_multiplier = range.weight_decay_multiplier,
                 .learning_rate = range.learning_rate,
                 .rounding = range.rounding,
                 .state = args.state};
    if (range.remainder) one.remainder = {range.remainder, DType::kUInt8, {range.size, 2}, {2, 1}};
    adam(stream, one);
  }
}

}  // namespace megatron::kernels
