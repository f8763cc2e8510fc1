#include "megatron/kernels/cpu/activation_curves.h"

#include "megatron/kernels/cpu/simd.h"
#include "megatron/kernels/cpu/vector_math.h"

namespace megatron::kernels {
namespace {
template <class C>
struct Point {
  C value, derivative;
};

/// x * sigmoid(u(x)) where u' is known: SiLU, quick GELU, and GELU's tanh form, as 1 + tanh(u / 2) = 2 sigmoid(u).
template <class C>
Point<C> gated_by_sigmoid(C x, C u, C du) {
  const C s = sigmoid(u);
  return {x * s, s + x * s * (C(1) - s) * du};
}

/// The curve of an activation at x. Comparisons let NaN through.
template <Activation kActivation, class C>
Point<C> point(C x) {
  if constexpr (kActivation == Activation::kGelu) {
    const NormalLaw<C> law = normal_law(x);
    return {x * law.distribution, law.distribution + x * law.density};
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    constexpr C kScale = C(2 * 0.79788456080286535588), kCubic = C(0.044715);  // 2 sqrt(2 / pi)
    return gated_by_sigmoid(x, kScale * x * (C(1) + kCubic * x * x), kScale * (C(1) + 3 * kCubic * x * x));
  } else if constexpr (kActivation == Activation::kQuickGelu) {
    return gated_by_sigmoid(x, C(1.702) * x, C(1.702));
  } else if constexpr (kActivation == Activation::kSilu) {
    return gated_by_sigmoid(x, x, C(1));
  } else if constexpr (kActivation == Activation::kSigmoid) {
    const C s = sigmoid(x);
    return {s, s * (C(1) - s)};
  } else if constexpr (kActivation == Activation::kRelu) {
    return {x < 0 ? C(0) : x, x > 0 ? C(1) : C(0)};
  } else {
    static_assert(kActivation == Activation::kSquaredRelu);
    const C positive = x < 0 ? C(0) : x;
    return {positive * positive, 2 * positive};
  }
}

/// Calls `f.template operator()<activation>()`.
template <class F>
void dispatch(Activation activation, F&& f) {
  switch (activation) {
    case Activation::kGelu:
      return f.template operator()<Activation::kGelu>();
    case Activation::kGeluTanh:
      return f.template operator()<Activation::kGeluTanh>();
    case Activation::kQuickGelu:
      return f.template operator()<Activation::kQuickGelu>();
    case Activation::kSilu:
      return f.template operator()<Activation::kSilu>();
    case Activation::kSigmoid:
      return f.template operator()<Activation::kSigmoid>();
    case Activation::kRelu:
      return f.template operator()<Activation::kRelu>();
    case Activation::kSquaredRelu:
      return f.template operator()<Activation::kSquaredRelu>();
  }
}
}  // namespace

template <class C>
void activate(Activation activation, const C* x, int64_t n, C* y) {
  dispatch(activation,
           [&]<Activation kActivation>() { simd_for(n, [=](int64_t i) { y[i] = point<kActivation>(x[i]).value; }); });
}

template <class C>
void activate_with_derivative(Activation activation, const C* x, int64_t n, C* y, C* derivative) {
  dispatch(activation, [&]<Activation kActivation>() {
    simd_for(n, [=](int64_t i) {
      const Point<C> p = point<kActivation>(x[i]);
      y[i] = p.value;
      derivative[i] = p.derivative;
    });
  });
}

template <class C>
void differentiate_activation(Activation activation, const C* x, const C* dy, int64_t n, C* dx) {
  dispatch(activation, [&]<Activation kActivation>() {
    simd_for(n, [=](int64_t i) { dx[i] = dy[i] * point<kActivation>(x[i]).derivative; });
  });
}

template void activate<float>(Activation, const float*, int64_t, float*);
template void activate<double>(Activation, const double*, int64_t, double*);
template void activate_with_derivative<float>(Activation, const float*, int64_t, float*, float*);
template void activate_with_derivative<double>(Activation, const double*, int64_t, double*, double*);
template void differentiate_activation<float>(Activation, const float*, const float*, int64_t, float*);
template void differentiate_activation<double>(Activation, const double*, const double*, int64_t, double*);

}  // namespace megatron::kernels
