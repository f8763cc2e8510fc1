#include "megatron/dist_checkpointing/tensor_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// A sign bit, `exponent_bits` and the rest mantissa, as OCP's float8 formats. E4M3 has no infinity.
double float8_value(uint8_t bits, int exponent_bits) {
  const int mantissa_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7F) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x80 ? -1 : 1;
  const bool is_last = exponent == (1 << exponent_bits) - 1;
  if (exponent_bits == 5 && is_last && mantissa == 0) return sign * std::numeric_limits<double>::infinity();
  if (is_last && (exponent_bits == 5 || mantissa == (1 << mantissa_bits) - 1))
    return std::numeric_limits<double>::quiet_NaN();
  const int fraction = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * std::ldexp(fraction, std::max(exponent, 1) - bias - mantissa_bits);
}

template <class T>
std::vector<double> converted(std::span<const std::byte> elements) {
  std::vector<double> values(elements.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, elements.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

std::vector<double> converted_float8(std::span<const std::byte> elements, int exponent_bits) {
  std::vector<double> values(elements.size());
  std::ranges::transform(elements, values.begin(),
                         [&](std::byte element) { return float8_value(static_cast<uint8_t>(element), exponent_bits); });
  return values;
}

}  // namespace

bool has_values(ElementType type) {
  switch (type) {
    case ElementType::kFloat4:
    case ElementType::kFloat6E2M3:
    case ElementType::kFloat6E3M2:
    case ElementType::kFloat8E8M0:
    case ElementType::kFloat8E4M3FNUZ:
    case ElementType::kFloat8E5M2FNUZ:
    case ElementType::kComplex64:
    case ElementType::kComplex128:
      return false;
    default:
      return true;
  }
}

std::vector<double> values_of(ElementType type, std::span<const std::byte> elements) {
  constexpr int kExponentBitsOfE5M2 = 5, kExponentBitsOfE4M3 = 4;
  switch (type) {
    case ElementType::kBool:
    case ElementType::kUInt8:
      return converted<uint8_t>(elements);
    case ElementType::kInt8:
      return converted<int8_t>(elements);
    case ElementType::kFloat8E5M2:
      return converted_float8(elements, kExponentBitsOfE5M2);
    case ElementType::kFloat8E4M3:
      return converted_float8(elements, kExponentBitsOfE4M3);
    case ElementType::kInt16:
      return converted<int16_t>(elements);
    case ElementType::kUInt16:
      return converted<uint16_t>(elements);
    case ElementType::kFloat16:
      return converted<Float16>(elements);
    case ElementType::kBFloat16:
      return converted<BFloat16>(elements);
    case ElementType::kInt32:
      return converted<int32_t>(elements);
    case ElementType::kUInt32:
      return converted<uint32_t>(elements);
    case ElementType::kFloat32:
      return converted<float>(elements);
    case ElementType::kFloat64:
      return converted<double>(elements);
    case ElementType::kInt64:
      return converted<int64_t>(elements);
    case ElementType::kUInt64:
      return converted<uint64_t>(elements);
    default:
      throw NotSupported(fmt::format("elements of {} cannot be converted to numbers; compare their bits", type));
  }
}

std::vector<Box> cut_into_slabs(const Shape& shape, int64_t max_elements) {
  if (shape.num_elements() == 0) return {};
  int dim = 0;  // the first whose one step is small enough
  int64_t step = shape.num_elements();
  for (; dim < shape.rank(); ++dim) {
    step /= shape[dim];
    if (step <= max_elements) break;
  }
  if (dim == shape.rank()) return {Box::whole(shape)};  // a scalar
  const int64_t rows = std::clamp<int64_t>(max_elements / step, 1, shape[dim]);
  std::vector<Box> slabs;
  Box box = Box::whole(shape);
  for (int outer = 0; outer < dim; ++outer) box.sizes[outer] = 1;
  for (;;) {
    for (int64_t begin = 0; begin < shape[dim]; begin += rows) {
      box.offsets[dim] = begin;
      box.sizes[dim] = std::min(rows, shape[dim] - begin);
      slabs.push_back(box);
    }
    int outer = dim - 1;
    while (outer >= 0 && ++box.offsets[outer] == shape[outer]) box.offsets[outer--] = 0;
    if (outer < 0) return slabs;
  }
}

}  // namespace megatron
