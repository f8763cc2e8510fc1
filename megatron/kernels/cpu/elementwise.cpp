#include "megatron/kernels/elementwise.h"

#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {
/// A contiguous tensor as one row, at its true size.
template <class V>
V flat(V view) {
  int64_t n = view.num_elements();
  if (view.count && n > 0) n = n / view.shape[0] * view.rows();
  view.shape = view.strides = {n};
  view.strides[0] = 1;
  view.count = nullptr;
  return view;
}

/// y = factor * x + addend; the addend is optional.
struct LinearArgs {
  ConstView x, addend;
  View y;
  double factor = 1;
};

template <class C>
void linear_rows(const CpuStream& stream, const LinearArgs& args) {
  const RowReader<C> x(args.x), addend(args.addend);
  const RowWriter<C> y(args.y);
  const int64_t num_rows = args.y.shape.rank() > 1 ? args.y.num_rows() : 1;
  const int64_t length = args.y.shape.rank() > 1 ? args.y.shape[-1] : args.y.rows();
  const C factor = static_cast<C>(args.factor);
  parallel_pieces(stream, num_rows, length, [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> x_buffer, addend_buffer, y_buffer;
    const C* in = x.read(row, begin, n, x_buffer);
    C* out = y.target(row, begin, y_buffer);
    if (addend) {
      const C* other = addend.read(row, begin, n, addend_buffer);
      simd_for(n, [=](int64_t i) { out[i] = factor * in[i] + other[i]; });
    } else {
      simd_for(n, [=](int64_t i) { out[i] = factor * in[i]; });
    }
    y.store(row, begin, n, out);
  });
}

void linear(const CpuStream& stream, LinearArgs args) {
  if (args.x.is_contiguous() && args.y.is_contiguous() && (!args.addend.defined() || args.addend.is_contiguous())) {
    args.x = flat(args.x);
    args.y = flat(args.y);
    if (args.addend.defined()) args.addend = flat(args.addend);
  }
  // A copy between fp32 and fp64 computes in fp64; the readers reject other mixtures with fp64.
  const bool widens = !args.addend.defined() && args.x.dtype == DType::kFloat64;
  dispatch_compute(widens ? DType::kFloat64 : args.y.dtype, [&]<class C>() { linear_rows<C>(stream, args); });
}

/// Elements of `Bits`' size as raw bits.
template <class Bits>
void move_bits(const CpuStream& stream, const ConstView& x, const View& y) {
  const RowOffsets from(x.shape, x.strides, x.shape.rank() - 1), to(y.shape, y.strides, y.shape.rank() - 1);
  const int64_t x_step = x.strides[-1], y_step = y.strides[-1];
  const int64_t num_rows = y.shape.rank() > 1 ? y.num_rows() : 1, length = y.shape.rank() > 1 ? y.shape[-1] : y.rows();
  parallel_pieces(stream, num_rows, length, [&](int64_t row, int64_t begin, int64_t n) {
    const Bits* in = static_cast<const Bits*>(x.data) + from(row) + begin * x_step;
    Bits* out = static_cast<Bits*>(y.data) + to(row) + begin * y_step;
    if (x_step == 1 && y_step == 1) {
      std::copy_n(in, n, out);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i * y_step] = in[i * x_step];
    }
  });
}

/// Calls f with an unsigned integer of the size of the dtype.
template <class F>
void dispatch_size(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 8:
      return f.template operator()<uint64_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 2:
      return f.template operator()<uint16_t>();
    default:
      return f.template operator()<uint8_t>();
  }
}

/// The bits of `value` in a dtype, in the low bytes.
uint64_t bits_of(DType dtype, double value) {
  if (value == 0) return 0;
  if (dtype == DType::kInt64) return static_cast<uint64_t>(static_cast<int64_t>(value));
  if (dtype == DType::kInt32) return static_cast<uint32_t>(static_cast<int32_t>(value));
  if (dtype == DType::kUInt8) return static_cast<uint8_t>(value);
  uint64_t bits = 0;
  dispatch_floating(dtype, [&]<class T>() {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
    bits = std::bit_cast<Bits>(static_cast<T>(value));
  });
  return bits;
}
}  // namespace

void copy(const CpuStream& stream, const CopyArgs& args) {
  if (args.x.dtype != args.y.dtype) return linear(stream, {.x = args.x, .y = args.y});
  const bool contiguous = args.x.is_contiguous() && args.y.is_contiguous();
  const ConstView x = contiguous ? flat(args.x) : args.x;
  const View y = contiguous ? flat(args.y) : args.y;
  dispatch_size(x.dtype, [&]<class Bits>() { move_bits<Bits>(stream, x, y); });
}

void fill(const CpuStream& stream, const FillArgs& args) {
  const uint64_t bits = bits_of(args.y.dtype, args.value);
  ConstView one{&bits, args.y.dtype, args.y.shape, args.y.shape, nullptr};  // the value, broadcast by zero strides
  const View y = args.y.is_contiguous() ? flat(args.y) : args.y;
  one.shape = one.strides = y.shape;
  for (int dim = 0; dim < y.shape.rank(); ++dim) one.strides[dim] = 0;
  dispatch_size(y.dtype, [&]<class Bits>() { move_bits<Bits>(stream, one, y); });
}

void add(const CpuStream& stream, const AddArgs& args) { linear(stream, {.x = args.a, .addend = args.b, .y = args.y}); }

void scale(const CpuStream& stream, const ScaleArgs& args) {
  const double factor = args.device_factor ? args.factor * *args.device_factor : args.factor;
  linear(stream, {.x = args.x, .y = args.y, .factor = factor});
}

void accumulate(const CpuStream& stream, const AccumulateArgs& args) {
  linear(stream, {.x = args.x, .addend = args.y, .y = args.y, .factor = args.factor});
}

}  // namespace megatron::kernels
