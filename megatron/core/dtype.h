// Element types. fp64 exists on cpu and meta, so that equality of layouts can be shown without rounding noise.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "megatron/base/error.h"

namespace megatron {

enum class DType : uint8_t {
  kFloat64,
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt64,
  kInt32,
  kUInt8,
  kFloat8E4M3,
  kFloat8E5M2
};

/// bfloat16: the upper half of a float32; rounds to nearest even, NaN stays NaN.
struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(round(std::bit_cast<uint32_t>(value))) {}
  constexpr explicit BFloat16(double value) : BFloat16(static_cast<float>(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

 private:
  static constexpr uint16_t round(uint32_t u) {
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
  }
};

/// IEEE binary16, stored; arithmetic happens in float.
struct Float16 {
  uint16_t bits;
  Float16() = default;
  explicit Float16(float value) : bits(std::bit_cast<uint16_t>(static_cast<_Float16>(value))) {}
  explicit Float16(double value) : Float16(static_cast<float>(value)) {}
  operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
};

/// The type in which sums and products over elements of T are formed.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, double>, double, float>;

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kUInt8:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return 1;
  }
  return 0;
}
constexpr bool is_floating(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}
/// Difference between 1 and the next larger value: what test tolerances are computed from.
constexpr double epsilon(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-52;
    case DType::kFloat32:
      return 0x1p-23;
    case DType::kBFloat16:
      return 0x1p-7;
    case DType::kFloat16:
      return 0x1p-10;
    default:
      return 0;
  }
}
/// "float64", "bfloat16" ...: the names of torch and safetensors tooling.
std::string_view name_of(DType dtype);

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>)
    return DType::kFloat64;
  else if constexpr (std::is_same_v<T, float>)
    return DType::kFloat32;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::kBFloat16;
  else if constexpr (std::is_same_v<T, Float16>)
    return DType::kFloat16;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::kInt64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::kInt32;
  else {
    static_assert(std::is_same_v<T, uint8_t>, "no DType for this C++ type");
    return DType::kUInt8;
  }
}

/// Calls `f.template operator()<T>()` with the C++ type of a floating dtype.
template <class F>
decltype(auto) dispatch_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat64:
      return f.template operator()<double>();
    case DType::kFloat32:
      return f.template operator()<float>();
    case DType::kBFloat16:
      return f.template operator()<BFloat16>();
    case DType::kFloat16:
      return f.template operator()<Float16>();
    default:
      throw DtypeError(fmt::format("a floating dtype is needed, got {}", name_of(dtype)));
  }
}

}  // namespace megatron

template <>
struct fmt::formatter<megatron::DType> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(megatron::DType dtype, fmt::format_context& context) const;
};
