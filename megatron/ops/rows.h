// Shared code of ops over rows of a tensor [..., h].
#pragma once

#include <optional>
#include <string_view>

#include "megatron/autograd/node.h"

namespace megatron {

/// All dimensions but the last, taken together, at capacity.
inline int64_t num_rows(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.num_elements() / x.size(-1); }

/// Statistics of rows are fp32, fp64 for fp64.
inline DType statistics_dtype(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

inline void require_columns(std::string_view op, const Tensor& x, const Parameter& weight) {
  require<ShapeError>(weight.shape() == Shape{x.size(-1)}, "[{}] {} has shape {}, rows of x have {} elements.", op,
                      weight.name(), weight.shape(), x.size(-1));
}

inline void require_row_weights(std::string_view op, const Tensor& x, const Tensor& weights) {
  require<ShapeError>(x.shape().rank() == 2 && weights.shape() == Shape{x.size(0)},
                      "[{}] weights of shape {} for rows of shape {}: there is one for each row.", op, weights.shape(),
                      x.shape());
}

/// Checks two operands with the same rows: both unbounded, or bounded by the same count in device memory. The kernel
/// takes the number of rows from one of them.
inline void require_same_extent(std::string_view op, const Tensor& a, const Tensor& b) {
  const auto kind = [](const Tensor& x) { return x.is_bounded() ? "bounded" : "unbounded"; };
  require<ShapeError>(a.count() == b.count(),
                      "[{}] one operand's rows are {}, the other's {}{}. Gather both with the same IndexList.", op,
                      kind(a), kind(b), a.is_bounded() && b.is_bounded() ? " by another count" : "");
}

/// The gradient of a norm's input x: that of its other consumers, which the kernel adds, and the target of the sum,
/// which is in place of it unless it is still read.
struct NormGradient {
  NormGradient(BackwardContext& b, std::string_view name, const Tensor& x) : gathered(b.take_gathered(0)) {
    if (gathered.defined() && gathered.shape() != x.shape()) gathered = gathered.reshape(x.shape());
    dx = gathered.defined() && gathered.owns_storage_alone() ? gathered : b.ctx.empty_like(name, x);
  }
  Tensor gathered, dx;
};

/// The gradient of a tensor of `shape`, whose users may have taken it in another shape of the same elements.
inline Tensor gradient_of(const Shape& shape, const Tensor& gradient) {
  return gradient.shape() == shape ? gradient : gradient.reshape(shape);
}

/// Lease on a weight that may be absent; the view is then undefined.
class OptionalLease {
 public:
  OptionalLease(const Context& ctx, Parameter* parameter) {
    if (parameter) lease_.emplace(parameter->acquire(ctx));
  }
  ConstView view() const { return lease_ ? lease_->view() : ConstView{}; }

 private:
  std::optional<WeightLease> lease_;
};

/// Gradient target of a weight whose gradient B computes; nothing if it is null or frozen.
struct OptionalGradTarget {
  OptionalGradTarget(const Context& ctx, Parameter* parameter) {
    if (!parameter || !parameter->is_trainable()) return;
    const GradTarget target = parameter->grad_target(ctx);
    view = target.view;
    accumulate = target.accumulate;
  }
  OptionalGradTarget(const Context& ctx, Parameter& parameter) : OptionalGradTarget(ctx, &parameter) {}
  View view;
  bool accumulate = false;
};

}  // namespace megatron
