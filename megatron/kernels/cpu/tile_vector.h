// Vectors of one instruction set: loads, stores, conversions, exponential, hyperbolic tangent. Only for the tiles_*.cpp
// files.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "megatron/kernels/cpu/tile.h"

namespace megatron::kernels {

template <class E, int64_t kBytes>
struct VectorOf {
  using Type [[gnu::vector_size(kBytes)]] = E;
  using Unaligned [[gnu::vector_size(kBytes), gnu::aligned(alignof(E)), gnu::may_alias]] = E;
};
/// A full vector of C.
template <class Isa, class C>
using Vector = typename VectorOf<C, Isa::kVectorBytes>::Type;
/// A vector of as many elements E as a full vector of C has.
template <class Isa, class C, class E>
using VectorLike =
    typename VectorOf<E, Isa::kVectorBytes / static_cast<int64_t>(sizeof(C)) * static_cast<int64_t>(sizeof(E))>::Type;
template <class Isa, class C>
inline constexpr int64_t kVectorSize = Isa::kVectorBytes / static_cast<int64_t>(sizeof(C));

template <class Isa, class C>
[[gnu::always_inline]] inline Vector<Isa, C> load(const C* x) {
  return *reinterpret_cast<const typename VectorOf<C, Isa::kVectorBytes>::Unaligned*>(x);
}
template <class Isa, class C>
[[gnu::always_inline]] inline void store(C* y, Vector<Isa, C> x) {
  *reinterpret_cast<typename VectorOf<C, Isa::kVectorBytes>::Unaligned*>(y) = x;
}
template <class Isa, class C>
[[gnu::always_inline]] inline Vector<Isa, C> broadcast(C x) {
  return x - Vector<Isa, C>{};
}
template <class V>
[[gnu::always_inline]] inline V larger(V a, V b) {
  return a > b ? a : b;
}

template <class Words, int kDistance, class V, int... kIndex>
[[gnu::always_inline]] inline V add_at_distance(V x, std::integer_sequence<int, kIndex...>) {
  return x + __builtin_shuffle(x, Words{(kIndex ^ kDistance)...});
}
/// Sum of the elements, by halves.
template <class Isa, class C, int kDistance = static_cast<int>(kVectorSize<Isa, C> / 2)>
[[gnu::always_inline]] inline C sum_across(Vector<Isa, C> x) {
  if constexpr (kDistance == 0) {
    return x[0];
  } else {
    using Words = Vector<Isa, std::conditional_t<std::is_same_v<C, double>, int64_t, int32_t>>;
    constexpr int kSize = static_cast<int>(kVectorSize<Isa, C>);
    return sum_across<Isa, C, kDistance / 2>(
        add_at_distance<Words, kDistance>(x, std::make_integer_sequence<int, kSize>{}));
  }
}

/// Loads a full vector of elements T as C.
template <class Isa, class C, class T>
[[gnu::always_inline]] inline Vector<Isa, C> load_as(const T* x) {
  if constexpr (std::is_same_v<T, C>) {
    return load<Isa, C>(x);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    using Bits = VectorLike<Isa, C, uint16_t>;
    using Unaligned = typename VectorOf<uint16_t, sizeof(Bits)>::Unaligned;
    const Bits bits = *reinterpret_cast<const Unaligned*>(x);
    return (Vector<Isa, C>)(__builtin_convertvector(bits, VectorLike<Isa, C, uint32_t>) << 16);
  } else {
    static_assert(std::is_same_v<T, Float16>);
    return Isa::load_half(reinterpret_cast<const uint16_t*>(x));
  }
}

/// Stores a full vector of C as elements T.
template <class Isa, class C, class T>
[[gnu::always_inline]] inline void store_as(T* y, Vector<Isa, C> x) {
  if constexpr (std::is_same_v<T, C>) {
    store<Isa, C>(y, x);
  } else if constexpr (std::is_same_v<T, BFloat16>) {  // rounds to nearest even, keeps NaN
    using Words = VectorLike<Isa, C, uint32_t>;
    using Bits = VectorLike<Isa, C, uint16_t>;
    using Unaligned = typename VectorOf<uint16_t, sizeof(Bits)>::Unaligned;
    const Words word = (Words)x;
    const Words rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
    const Words quiet = (word >> 16) | 0x40u;
    const Words result = (word & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded;
    *reinterpret_cast<Unaligned*>(y) = __builtin_convertvector(result, Bits);
  } else {
    static_assert(std::is_same_v<T, Float16>);
    Isa::store_half(reinterpret_cast<uint16_t*>(y), x);
  }
}

/// e^x for x <= 0 and a little above; e^-inf is 0.
template <class Isa, class C>
[[gnu::always_inline]] inline Vector<Isa, C> exponential(Vector<Isa, C> x) {
  if constexpr (std::is_same_v<C, double>) {
    for (int64_t i = 0; i < kVectorSize<Isa, C>; ++i) x[i] = ::exp(x[i]);
    return x;
  } else {
    using V = Vector<Isa, float>;
    using Words = Vector<Isa, int32_t>;
    const V smallest = broadcast<Isa>(-87.3f);  // e^-87.3 is the least normal number, about
    const V bounded = larger(x, smallest);
    // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits of the sum.
    const V shifted = Isa::multiply_add(bounded, broadcast<Isa>(0x1.715476p+0f), broadcast<Isa>(0x1.8p23f));
    const V power = shifted - 0x1.8p23f;
    // ln 2 in two parts, the first with few bits so that its products are exact (Cody and Waite 1980).
    V r = Isa::multiply_add(power, broadcast<Isa>(-0x1.62e4p-1f), bounded);
    r = Isa::multiply_add(power, broadcast<Isa>(-0x1.7f7d1cp-20f), r);
    V y = broadcast<Isa>(1.0f / 5040);  // Taylor's series: |r| <= ln 2 / 2, the first omitted term is below 6e-9
    for (float inverse_factorial : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
      y = Isa::multiply_add(y, r, broadcast<Isa>(inverse_factorial));
    y = (V)((Words)y + ((Words)shifted << 23));
    return x < smallest ? V{} : y;
  }
}

/// tanh x. A series near 0, where 1 - 2 / (e^2x + 1) would cancel.
template <class Isa, class C>
[[gnu::always_inline]] inline Vector<Isa, C> hyperbolic_tangent(Vector<Isa, C> x) {
  if constexpr (std::is_same_v<C, double>) {
    for (int64_t i = 0; i < kVectorSize<Isa, C>; ++i) x[i] = ::tanh(x[i]);
    return x;
  } else {
    using V = Vector<Isa, float>;
    const V magnitude = larger(x, -x), z = x * x;
    V p = broadcast<Isa>(-5.704978e-3f);  // as in vector_math.h
    for (float coefficient : {2.0639079e-2f, -5.3739712e-2f, 1.3331442e-1f, -3.333328e-1f})
      p = Isa::multiply_add(p, z, broadcast<Isa>(coefficient));
    const V near_zero = Isa::multiply_add(p * z, x, x);
    const V e = exponential<Isa, float>(-2.0f * magnitude), far = (1.0f - e) / (1.0f + e);
    return magnitude < 0.625f ? near_zero : (x < 0.0f ? -far : far);
  }
}

}  // namespace megatron::kernels
