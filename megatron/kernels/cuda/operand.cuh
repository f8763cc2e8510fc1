// Strided operands of CUDA kernels, read and written in packs of eight elements and computed with in fp32. The dtype is
// a run-time property: all threads take the same branch, which costs little beside the memory traffic and keeps one
// machine code for all mixtures of dtypes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "megatron/core/view.h"

namespace megatron::kernels {

/// Elements that a thread takes at once: 16 bytes of half precision.
inline constexpr int kPack = 8;

struct Pack {
  float v[kPack];
};

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
      offset += row % sizes[dim] * strides[dim];
      row /= sizes[dim];
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
  /// @throw NotSupported for what is not fp32, bf16 or fp16.
  explicit Operand(const ConstView& view)
      : data(const_cast<char*>(static_cast<const char*>(view.data))),
        dtype(view.dtype),
        rows(view.shape, view.strides, view.shape.rank() - 1) {
    if (!data) return;
    require<NotSupported>(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16,
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
/// What is left of a value once it is stored.
__device__ inline float round_to(DType dtype, float value) {
  if (dtype == DType::kFloat32) return value;
  if (dtype == DType::kBFloat16) return __bfloat162float(__float2bfloat16_rn(value));
  return __half2float(__float2half_rn(value));
}

/// A pack as it comes from memory: kernels load those of all operands before they convert the first.
struct RawPack {
  uint4 low, high;
  DType dtype;
};

/// Elements [i, i + n) from `data`; `is_vectorised` only for aligned packs. The others are 0.
__device__ inline RawPack load_raw(const Operand& x, int64_t i, int n) {
  RawPack raw;
  if (x.is_vectorised && n == kPack) {
    const uint4* address = reinterpret_cast<const uint4*>(x.data + i * (x.dtype == DType::kFloat32 ? 4 : 2));
    raw.low = address[0];
    if (x.dtype == DType::kFloat32) raw.high = address[1];
    raw.dtype = x.dtype;
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

__device__ inline Pack load(const Operand& x, int64_t i, int n) { return convert(load_raw(x, i, n)); }
__device__ inline Pack load(const Operand& x, int64_t row, int64_t begin, int n) {
  return load(x, x.at(row, begin), n);
}
__device__ inline RawPack load_raw(const Operand& x, int64_t row, int64_t begin, int n) {
  return load_raw(x, x.at(row, begin), n);
}

__device__ inline void store(const Operand& y, int64_t i, int n, const Pack& pack) {
  if (!y.is_vectorised || n != kPack) {
#pragma unroll
    for (int e = 0; e < kPack; ++e)
      if (e < n) store_scalar(y.data, y.dtype, i + e * y.step, pack.v[e]);
    return;
  }
  uint4* address = reinterpret_cast<uint4*>(y.data + i * (y.dtype == DType::kFloat32 ? 4 : 2));
  if (y.dtype == DType::kFloat32) {
    address[0] = make_uint4(__float_as_uint(pack.v[0]), __float_as_uint(pack.v[1]), __float_as_uint(pack.v[2]),
                            __float_as_uint(pack.v[3]));
    address[1] = make_uint4(__float_as_uint(pack.v[4]), __float_as_uint(pack.v[5]), __float_as_uint(pack.v[6]),
                            __float_as_uint(pack.v[7]));
    return;
  }
  uint32_t words[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (y.dtype == DType::kBFloat16) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(pack.v[2 * e], pack.v[2 * e + 1]);
      words[e] = *reinterpret_cast<const uint32_t*>(&pair);
    } else {
      const __half2 pair = __floats2half2_rn(pack.v[2 * e], pack.v[2 * e + 1]);
      words[e] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
  *address = make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ inline void store(const Operand& y, int64_t row, int64_t begin, int n, const Pack& pack) {
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

/// Elements of a floating view in logical order: weights, masks and gradients of which there is one for a row.
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
