// Strided operands of CUDA kernels, read and written in packs of eight elements and computed with in fp32. Operand
// supports any mixture of dtypes, strides and alignments, which are run-time properties: one machine code for all of
// them, at the price of two to three times the registers and instructions of a pack. WholeRows is the usual case in
// training: kernels that would be bound by instructions have both.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <initializer_list>
#include <type_traits>

#include "megatron/core/view.h"

namespace megatron::kernels {

/// Elements that a thread handles at once: 16 bytes of half precision.
inline constexpr int kPack = 8;

struct Pack {
  float v[kPack];
};

struct Divided {
  int64_t quotient, remainder;
};
/// Division of non-negative numbers, in 32 bits if they fit, which takes a sixth of the instructions.
__device__ inline Divided divide(int64_t a, int64_t b) {
  if ((a | b) >> 32 != 0) return {a / b, a % b};
  const auto short_a = static_cast<uint32_t>(a), short_b = static_cast<uint32_t>(b), quotient = short_a / short_b;
  return {quotient, short_a - quotient * short_b};
}

/// Offset, in elements, of each index over several dimensions taken together, outermost first. Neighbours that follow
/// each other in memory are merged.
struct DeviceOffsets {
  int num = 0;
  int64_t sizes[Shape::kMaxRank] = {}, strides[Shape::kMaxRank] = {};

  DeviceOffsets() = default;
  DeviceOffsets(const Shape& shape, const Shape& view_strides, int num_dims) {
    for (int dim = 0; dim < num_dims; ++dim) {
      if (shape[dim] == 1) continue;
      if (num > 0 && strides[num - 1] == shape[dim] * view_strides[dim]) {
        sizes[num - 1] *= shape[dim];
        strides[num - 1] = view_strides[dim];
      } else {
        sizes[num] = shape[dim];
        strides[num++] = view_strides[dim];
      }
    }
  }
  __device__ int64_t operator()(int64_t row) const {
    int64_t offset = 0;
    for (int dim = num; dim-- > 1;) {
      const Divided by_size = divide(row, sizes[dim]);
      offset += by_size.remainder * strides[dim];
      row = by_size.quotient;
    }
    return offset + row * strides[0];
  }
};

/// A floating view: all dimensions but the last are rows.
struct Operand {
  char* data = nullptr;
  DType dtype = DType::kFloat32;
  bool is_vectorised = false;  // packs that begin at multiples of kPack lie at multiples of 16 bytes
  int64_t step = 1;            // between the elements of a row
  DeviceOffsets rows;

  Operand() = default;
  /// @throw DtypeError unless the dtype is fp32, bf16 or fp16.
  explicit Operand(const ConstView& view)
      : data(const_cast<char*>(static_cast<const char*>(view.data))),
        dtype(view.dtype),
        rows(view.shape, view.strides, view.shape.rank() - 1) {
    if (!data) return;
    require<DtypeError>(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16,
                        "[cuda] {} operands: choose float32, bfloat16 or float16.", dtype);
    if (view.shape.rank() > 0 && view.shape[-1] > 1) step = view.strides[-1];
    const int64_t size = size_of(dtype);
    is_vectorised = step == 1 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
    for (int dim = 0; dim < rows.num; ++dim) is_vectorised &= rows.strides[dim] * size % 16 == 0;
  }
  __host__ __device__ explicit operator bool() const { return data != nullptr; }
  /// Element `column` of a row, in elements from `data`.
  __device__ int64_t at(int64_t row, int64_t column) const { return rows(row) + column * step; }
};

/// A bf16 operand whose packs are all whole and aligned, one stride apart from row to row, with the names of Operand.
struct WholeRows {
  char* data = nullptr;
  int64_t stride = 0;
  static constexpr DType dtype = DType::kBFloat16;
  static constexpr bool is_vectorised = true;

  WholeRows() = default;
  explicit WholeRows(const Operand& x) : data(x.data), stride(x.rows.num > 0 ? x.rows.strides[0] : 0) {}
  __host__ __device__ explicit operator bool() const { return data != nullptr; }
  __device__ int64_t at(int64_t row, int64_t column) const { return row * stride + column; }
};
template <class X>
inline constexpr bool kIsWhole = std::is_same_v<X, WholeRows>;

/// Calls run(X()) with the type X that fits all operands of rows of `columns` elements. Those without data fit any.
template <class Run>
void with_operand_type(int64_t columns, std::initializer_list<Operand> operands, const Run& run) {
  bool is_whole = columns % kPack == 0;
  for (const Operand& x : operands)
    is_whole &= !x || (x.dtype == WholeRows::dtype && x.is_vectorised && x.rows.num <= 1);
  if (is_whole)
    run(WholeRows());
  else
    run(Operand());
}

__device__ inline float load_scalar(const void* data, DType dtype, int64_t i) {
  if (dtype == DType::kFloat32) return static_cast<const float*>(data)[i];
  if (dtype == DType::kBFloat16) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
  return __half2float(static_cast<const __half*>(data)[i]);
}
__device__ inline void store_scalar(void* data, DType dtype, int64_t i, float value) {
  if (dtype == DType::kFloat32)
    static_cast<float*>(data)[i] = value;
  else if (dtype == DType::kBFloat16)
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
  else
    static_cast<__half*>(data)[i] = __float2half_rn(value);
}
/// The value after rounding to the storage dtype.
__device__ inline float round_to(DType dtype, float value) {
  if (dtype == DType::kFloat32) return value;
  if (dtype == DType::kBFloat16) return __bfloat162float(__float2bfloat16_rn(value));
  return __half2float(__float2half_rn(value));
}

/// An unconverted pack: kernels load the packs of all operands before they convert the first.
struct RawPack {
  uint4 low, high;
  DType dtype;
};

/// A whole pack at a multiple of 16 bytes.
__device__ inline RawPack load_whole(const char* address, DType dtype) {
  RawPack raw;
  raw.low = reinterpret_cast<const uint4*>(address)[0];
  if (dtype == DType::kFloat32) raw.high = reinterpret_cast<const uint4*>(address)[1];
  raw.dtype = dtype;
  return raw;
}

/// Elements [i, i + n) from `data`; `is_vectorised` only for aligned packs. The others are 0.
template <class X>
__device__ RawPack load_raw(const X& x, int64_t i, int n) {
  RawPack raw;
  if constexpr (kIsWhole<X>) {
    raw = load_whole(x.data + 2 * i, X::dtype);
  } else if (x.is_vectorised && n == kPack) {
    raw = load_whole(x.data + i * (x.dtype == DType::kFloat32 ? 4 : 2), x.dtype);
  } else {
    float v[kPack];
#pragma unroll
    for (int e = 0; e < kPack; ++e) v[e] = e < n ? load_scalar(x.data, x.dtype, i + e * x.step) : 0;
    raw.low = make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
    raw.high = make_uint4(__float_as_uint(v[4]), __float_as_uint(v[5]), __float_as_uint(v[6]), __float_as_uint(v[7]));
    raw.dtype = DType::kFloat32;
  }
  return raw;
}

__device__ inline Pack convert(const RawPack& raw) {
  Pack pack;
  const uint32_t low[4] = {raw.low.x, raw.low.y, raw.low.z, raw.low.w};
  if (raw.dtype == DType::kFloat32) {
    const uint32_t high[4] = {raw.high.x, raw.high.y, raw.high.z, raw.high.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      pack.v[e] = __uint_as_float(low[e]);
      pack.v[4 + e] = __uint_as_float(high[e]);
    }
  } else if (raw.dtype == DType::kBFloat16) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      pack.v[2 * e] = __uint_as_float(low[e] << 16);
      pack.v[2 * e + 1] = __uint_as_float(low[e] & 0xFFFF0000u);
    }
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&low[e]));
      pack.v[2 * e] = pair.x;
      pack.v[2 * e + 1] = pair.y;
    }
  }
  return pack;
}

template <class X>
__device__ Pack load(const X& x, int64_t i, int n) {
  return convert(load_raw(x, i, n));
}
template <class X>
__device__ Pack load(const X& x, int64_t row, int64_t begin, int n) {
  return load(x, x.at(row, begin), n);
}
template <class X>
__device__ RawPack load_raw(const X& x, int64_t row, int64_t begin, int n) {
  return load_raw(x, x.at(row, begin), n);
}

/// A whole pack to a multiple of 16 bytes.
__device__ inline void store_whole(char* address, DType dtype, const Pack& pack) {
  auto* out = reinterpret_cast<uint4*>(address);
  if (dtype == DType::kFloat32) {
    out[0] = make_uint4(__float_as_uint(pack.v[0]), __float_as_uint(pack.v[1]), __float_as_uint(pack.v[2]),
                        __float_as_uint(pack.v[3]));
    out[1] = make_uint4(__float_as_uint(pack.v[4]), __float_as_uint(pack.v[5]), __float_as_uint(pack.v[6]),
                        __float_as_uint(pack.v[7]));
    return;
  }
  uint32_t words[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (dtype == DType::kBFloat16) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(pack.v[2 * e], pack.v[2 * e + 1]);
      words[e] = *reinterpret_cast<const uint32_t*>(&pair);
    } else {
      const __half2 pair = __floats2half2_rn(pack.v[2 * e], pack.v[2 * e + 1]);
      words[e] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
  *out = make_uint4(words[0], words[1], words[2], words[3]);
}

template <class X>
__device__ void store(const X& y, int64_t i, int n, const Pack& pack) {
  if constexpr (kIsWhole<X>) {
    store_whole(y.data + 2 * i, X::dtype, pack);
  } else {
    if (y.is_vectorised && n == kPack)
      return store_whole(y.data + i * (y.dtype == DType::kFloat32 ? 4 : 2), y.dtype, pack);
#pragma unroll
    for (int e = 0; e < kPack; ++e)
      if (e < n) store_scalar(y.data, y.dtype, i + e * y.step, pack.v[e]);
  }
}
template <class X>
__device__ void store(const X& y, int64_t row, int64_t begin, int n, const Pack& pack) {
  store(y, y.at(row, begin), n, pack);
}

/// Elements of an int32 or int64 view in logical order.
struct Indices {
  const void* data = nullptr;
  bool is_wide = false;
  DeviceOffsets offsets;

  Indices() = default;
  explicit Indices(const ConstView& view)
      : data(view.data), is_wide(view.dtype == DType::kInt64), offsets(view.shape, view.strides, view.shape.rank()) {
    require<DtypeError>(!data || is_wide || view.dtype == DType::kInt32, "[cuda] indices must be integers, got {}",
                        view.dtype);
  }
  __host__ __device__ explicit operator bool() const { return data != nullptr; }
  __device__ int64_t operator[](int64_t i) const {
    const int64_t offset = offsets(i);
    return is_wide ? static_cast<const int64_t*>(data)[offset] : static_cast<const int32_t*>(data)[offset];
  }
};

/// Elements of a floating view in logical order: weights, masks and gradients with one element for each row.
struct Scalars {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  DeviceOffsets offsets;

  Scalars() = default;
  explicit Scalars(const ConstView& view)
      : data(view.data), dtype(view.dtype), offsets(view.shape, view.strides, view.shape.rank()) {
    require<DtypeError>(!data || is_floating(dtype), "[cuda] weights and masks must be floating, got {}", dtype);
  }
  __host__ __device__ explicit operator bool() const { return data != nullptr; }
  __device__ double operator[](int64_t i) const {
    const int64_t offset = offsets(i);
    if (dtype == DType::kFloat64) return static_cast<const double*>(data)[offset];
    return load_scalar(data, dtype, offset);
  }
};

}  // namespace megatron::kernels
