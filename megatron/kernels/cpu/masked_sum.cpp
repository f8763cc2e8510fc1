#include "megatron/kernels/masked_sum.h"

#include <algorithm>

namespace megatron::kernels {
namespace {
/// Calls f(offset of the element in each view) for all elements in order.
template <class F>
void for_each_element(const ConstView& a, const ConstView& b, F&& f) {
  require<ShapeError>(a.shape == b.shape && a.shape.rank() == 2, "[masked_sum] shapes {} and {} must be equal [s, b].",
                      a.shape, b.shape);
  for (int64_t i = 0; i < a.shape[0]; ++i)
    for (int64_t j = 0; j < a.shape[1]; ++j)
      f(i * a.strides[0] + j * a.strides[1], i * b.strides[0] + j * b.strides[1]);
}
double value_of(const ConstView& weight) { return weight.defined() ? *weight.as<double>() : 1; }

double sum_of(const ConstView& mask) {
  double sum = 0;
  dispatch_floating(mask.dtype, [&]<class M>() {
    for_each_element(mask, mask, [&](int64_t m, int64_t) { sum += static_cast<double>(mask.as<M>()[m]); });
  });
  return sum;
}
}  // namespace

void masked_sum_forward(const CpuStream&, const MaskedSumForwardArgs& args) {
  double sum = 0;
  dispatch_floating(args.loss.dtype, [&]<class L>() {
    dispatch_floating(args.mask.dtype, [&]<class M>() {
      const L* loss = args.loss.as<L>();
      const M* mask = args.mask.as<M>();
      for_each_element(args.loss, args.mask, [&](int64_t l, int64_t m) {
        if (const auto weight = static_cast<double>(mask[m]); weight != 0) sum += weight * static_cast<double>(loss[l]);
      });
    });
  });
  *args.sum.as<double>() = sum * value_of(args.weight);
}

void masked_sum_backward(const CpuStream&, const MaskedSumBackwardArgs& args) {
  const double factor = *args.d_sum.as<double>() * value_of(args.weight);
  dispatch_floating(args.d_loss.dtype, [&]<class L>() {
    dispatch_floating(args.mask.dtype, [&]<class M>() {
      L* d_loss = args.d_loss.as<L>();
      const M* mask = args.mask.as<M>();
      for_each_element(args.d_loss.read(), args.mask, [&](int64_t l, int64_t m) {
        d_loss[l] = static_cast<L>(factor * static_cast<double>(mask[m]));
      });
    });
  });
}

void mean_loss_weights(const CpuStream&, const MeanLossWeightsArgs& args) {
  const double mean = 1 / std::max(sum_of(args.part), 1.0);
  *args.mean.as<double>() = mean;
  *args.share.as<double>() = value_of(args.weight) * sum_of(args.mask) * mean;
}

}  // namespace megatron::kernels
