#include "megatron/kernels/elementwise.h"

#include <bit>
#include <cstring>

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

/// y = factor * x + addend; addend and device_factor are optional.
struct Linear {
  Operand x, addend, y;
  float factor;
  const double* device_factor;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    const RawPack x_raw = load_raw(x, row, begin, n);
    const float f = device_factor ? static_cast<float>(factor * *device_factor) : factor;
    Pack out;
    if (addend) {
      const Pack other = load(addend, row, begin, n), in = convert(x_raw);
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.v[e] = f * in.v[e] + other.v[e];
    } else {
      const Pack in = convert(x_raw);
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.v[e] = f * in.v[e];
    }
    store(y, row, begin, n, out);
  }
};

/// The same in fp64, of contiguous operands: sums of losses.
struct DoubleLinear {
  const double *x, *addend;
  double* y;
  double factor;
  const double* device_factor;

  __device__ void operator()(int64_t, int64_t begin, int n) const {
    const double f = device_factor ? factor * *device_factor : factor;
    for (int64_t i = begin; i < begin + n; ++i) y[i] = f * x[i] + (addend ? addend[i] : 0);
  }
};

/// All dimensions as one row.
template <class V>
V flat(V view) {
  const int64_t n = view.num_elements();
  view.shape = Shape{n};
  view.strides = Shape{1};
  return view;
}

struct LinearArgs {
  ConstView x, addend;
  View y;
  double factor = 1;
  const double* device_factor = nullptr;
};

void linear_in_doubles(const CudaStream& stream, const LinearArgs& args) {
  const auto is_fit = [](const ConstView& view) {
    return !view.defined() || (view.dtype == DType::kFloat64 && view.is_contiguous());
  };
  require<NotSupported>(is_fit(args.x) && is_fit(args.addend) && is_fit(args.y),
                        "[cuda] fp64 can only be combined with fp64, and must be contiguous.");
  for_each_pack(stream, "elementwise", Extent::flat(args.y),
                DoubleLinear{static_cast<const double*>(args.x.data), static_cast<const double*>(args.addend.data),
                             static_cast<double*>(args.y.data), args.factor, args.device_factor});
}

void linear(const CudaStream& stream, const LinearArgs& args) {
  const bool has_addend = args.addend.defined();
  if (args.x.dtype == DType::kFloat64 || args.y.dtype == DType::kFloat64) return linear_in_doubles(stream, args);
  const float factor = static_cast<float>(args.factor);
  if (args.x.is_contiguous() && args.y.is_contiguous() && (!has_addend || args.addend.is_contiguous())) {
    const Operand addend = has_addend ? Operand(flat(args.addend)) : Operand();
    return for_each_pack(stream, "elementwise", Extent::flat(args.y),
                         Linear{Operand(flat(args.x)), addend, Operand(flat(args.y)), factor, args.device_factor});
  }
  require<NotSupported>(args.y.shape.rank() > 1 || !args.y.count, "[elementwise] a bounded vector with a stride.");
  for_each_pack(stream, "elementwise", Extent(args.y),
                Linear{Operand(args.x), Operand(args.addend), Operand(args.y), factor, args.device_factor});
}

/// Units of 1 to 16 raw bytes, one per thread: the pack at `begin` is unit begin / kPack. x null:
/// the pattern.
template <class Unit>
struct MoveUnits {
  const Unit* x;
  Unit* y;
  DeviceOffsets x_rows, y_rows;
  Unit pattern;

  __device__ void operator()(int64_t row, int64_t begin, int) const {
    const int64_t unit = begin / kPack;
    y[y_rows(row) + unit] = x ? x[x_rows(row) + unit] : pattern;
  }
};

template <class Unit>
void move_units(const CudaStream& stream, const ConstView& x, const View& y, const uint4& pattern) {
  constexpr int64_t kBytes = sizeof(Unit);
  const int64_t size = size_of(y.dtype);
  const int rank = y.shape.rank(), row_dims = size == kBytes ? rank : rank - 1;
  Extent extent(y);
  if (extent.is_empty()) return;
  // Elements of the size of a unit are rows of their own, so that they may have any strides.
  extent.columns = kPack * (row_dims == rank ? 1 : y.shape[-1] * size / kBytes);
  extent.rows = row_dims == rank ? y.num_elements() : extent.rows;
  extent.count = y.count;
  const auto rows_of = [&](const ConstView& view) {
    Shape strides = view.strides;
    for (int dim = 0; dim < rank; ++dim) strides[dim] = strides[dim] * size / kBytes;
    return DeviceOffsets(view.shape, strides, row_dims);
  };
  Unit unit;
  std::memcpy(&unit, &pattern, sizeof(Unit));
  for_each_pack(stream, "copy", extent,
                MoveUnits<Unit>{static_cast<const Unit*>(x.data), static_cast<Unit*>(y.data),
                                x.data ? rows_of(x) : DeviceOffsets(), rows_of(y), unit});
}

/// Says whether rows of the view can be moved in units of `bytes`.
bool fits(const ConstView& view, int64_t bytes) {
  if (!view.data) return true;
  const int64_t size = size_of(view.dtype);
  if (view.shape.rank() == 0 || (view.shape[-1] > 1 && view.strides[-1] != 1)) return false;
  bool result = reinterpret_cast<uintptr_t>(view.data) % bytes == 0 && view.shape[-1] * size % bytes == 0;
  for (int dim = 0; dim + 1 < view.shape.rank(); ++dim) result &= view.strides[dim] * size % bytes == 0;
  return result && bytes > size;
}

void move(const CudaStream& stream, const ConstView& x, const View& y, const uint4& pattern) {
  if (fits(x, 16) && fits(y, 16) && !(y.shape.rank() == 1 && y.count)) return move_units<uint4>(stream, x, y, pattern);
  switch (size_of(y.dtype)) {
    case 8:
      return move_units<uint64_t>(stream, x, y, pattern);
    case 4:
      return move_units<uint32_t>(stream, x, y, pattern);
    case 2:
      return move_units<uint16_t>(stream, x, y, pattern);
    default:
      return move_units<uint8_t>(stream, x, y, pattern);
  }
}

/// The bits of `value` in a dtype, repeated to 16 bytes.
uint4 pattern_of(DType dtype, double value) {
  uint64_t bits = 0;
  if (dtype == DType::kInt64)
    bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  else if (dtype == DType::kInt32)
    bits = static_cast<uint32_t>(static_cast<int32_t>(value));
  else if (dtype == DType::kUInt8)
    bits = static_cast<uint8_t>(value);
  else if (dtype == DType::kFloat64)
    bits = std::bit_cast<uint64_t>(value);
  else if (dtype == DType::kFloat32)
    bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  else if (dtype == DType::kBFloat16)
    bits = BFloat16(value).bits;
  else if (dtype == DType::kFloat16)
    bits = __half_as_ushort(__double2half(value));
  else
    require<NotSupported>(value == 0, "[fill] {} of {}: only 0.", dtype, value);
  for (int64_t size = size_of(dtype); size < 8; size *= 2) bits |= bits << (8 * size);
  uint4 pattern;
  std::memcpy(&pattern, &bits, 8);
  std::memcpy(reinterpret_cast<char*>(&pattern) + 8, &bits, 8);
  return pattern;
}

}  // namespace

void copy(const CudaStream& stream, const CopyArgs& args) {
  if (args.x.dtype != args.y.dtype) return linear(stream, {.x = args.x, .y = args.y});
  if (args.x.is_contiguous() && args.y.is_contiguous() && !args.y.count) {
    if (args.y.num_elements() == 0) return;
    const cudaError_t error = cudaMemcpyAsync(args.y.data, args.x.data, args.y.num_elements() * size_of(args.y.dtype),
                                              cudaMemcpyDeviceToDevice, stream.stream);
    return require<DeviceError>(error == cudaSuccess, "[copy] failed: {}.", cudaGetErrorString(error));
  }
  move(stream, args.x, args.y, {});
}

void fill(const CudaStream& stream, const FillArgs& args) {
  View y = args.y;
  if (y.is_contiguous() && !y.count) y = flat(y);
  move(stream, {}, y, pattern_of(y.dtype, args.value));
}

void add(const CudaStream& stream, const AddArgs& args) {
  linear(stream, {.x = args.a, .addend = args.b, .y = args.y});
}

void scale(const CudaStream& stream, const ScaleArgs& args) {
  linear(stream, {.x = args.x, .y = args.y, .factor = args.factor, .device_factor = args.device_factor});
}

void accumulate(const CudaStream& stream, const AccumulateArgs& args) {
  linear(stream, {.x = args.x, .addend = args.y, .y = args.y, .factor = args.factor});
}

}  // namespace megatron::kernels
