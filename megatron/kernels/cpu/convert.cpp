#include "megatron/kernels/cpu/convert.h"

#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {
template <class To, class From>
void convert(const From* x, int64_t x_step, int64_t n, To* y, int64_t y_step) {
  if (x_step == 1 && y_step == 1)
    simd_for(n, [=](int64_t i) { y[i] = static_cast<To>(x[i]); });
  else
    for (int64_t i = 0; i < n; ++i) y[i * y_step] = static_cast<To>(x[i * x_step]);
}

/// Calls f with a T of the dtype, where C is the compute type of the operands.
template <class C, class F>
void dispatch_storage(DType dtype, F&& f) {
  if constexpr (sizeof(C) == sizeof(float))
    require<DtypeError>(dtype != DType::kFloat64, "[kernels] float64 can only be combined with float64 operands");
  dispatch_floating(dtype, f);
}
}  // namespace

template <class C>
void to_compute(DType dtype, const void* x, int64_t first, int64_t step, int64_t n, C* y) {
  dispatch_storage<C>(dtype, [&]<class T>() { convert(static_cast<const T*>(x) + first, step, n, y, 1); });
}
template <class C>
void from_compute(DType dtype, const C* x, int64_t n, void* y, int64_t first, int64_t step) {
  dispatch_storage<C>(dtype, [&]<class T>() { convert(x, 1, n, static_cast<T*>(y) + first, step); });
}

template void to_compute<float>(DType, const void*, int64_t, int64_t, int64_t, float*);
template void to_compute<double>(DType, const void*, int64_t, int64_t, int64_t, double*);
template void from_compute<float>(DType, const float*, int64_t, void*, int64_t, int64_t);
template void from_compute<double>(DType, const double*, int64_t, void*, int64_t, int64_t);

}  // namespace megatron::kernels
