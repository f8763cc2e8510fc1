#include "megatron/kernels/cpu/norm.h"

#include <cmath>
#include <vector>

#include "megatron/kernels/cpu/column_sums.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {
/// A weight vector in the compute type, `offset` added; all `missing` if the view is undefined.
template <class C>
std::vector<C> weights(const ConstView& view, int64_t h, C offset, C missing) {
  std::vector<C> values(static_cast<size_t>(h), missing);
  if (!view.defined()) return values;
  to_compute(view.dtype, view.data, 0, view.strides[0], h, values.data());
  for (C& value : values) value += offset;
  return values;
}

/// Mean and sum of squared differences to it, joined piece by piece (Chan, Golub and LeVeque 1979); for RMS the mean
/// stays 0.
template <class C, NormKind kKind>
struct Moments {
  C mean = 0, squares = 0;
  int64_t count = 0;

  void add(const C* z, int64_t n) {
    if constexpr (kKind == NormKind::kRms) {
      squares += simd_sum<C>(n, [=](int64_t i) { return z[i] * z[i]; });
    } else {
      const C piece_mean = simd_sum<C>(n, [=](int64_t i) { return z[i]; }) / static_cast<C>(n);
      squares += simd_sum<C>(n, [=](int64_t i) { return (z[i] - piece_mean) * (z[i] - piece_mean); });
      const C difference = piece_mean - mean, share = static_cast<C>(n) / static_cast<C>(count + n);
      mean += difference * share;
      squares += difference * difference * share * static_cast<C>(count);
    }
    count += n;
  }
  C rstd(double eps) const { return C(1) / std::sqrt(squares / static_cast<C>(count) + static_cast<C>(eps)); }
};

template <class C, NormKind kKind>
void forward_rows(const CpuStream& stream, const NormForwardArgs& args) {
  const int64_t h = args.x.shape[-1];
  const RowReader<C> x(args.x), residual(args.residual);
  const RowWriter<C> residual_out(args.residual_out), y(args.y);
  const RowReader<C>& z_rows = residual ? residual_out : x;
  C* const means = args.mean.defined() ? args.mean.as<C>() : nullptr;
  C* const rstds = args.rstd.defined() ? args.rstd.as<C>() : nullptr;
  const std::vector<C> gammas = weights<C>(args.gamma, h, args.zero_centered_gamma ? C(1) : C(0), C(1));
  const std::vector<C> betas = weights<C>(args.beta, h, C(0), C(0));

  const auto normalise_row = [&](int64_t row) {
    Piece<C> buffer, other_buffer;
    Moments<C, kKind> moments;
    for_each_piece(h, [&](int64_t begin, int64_t n) {
      if (residual) {
        const C *a = x.read(row, begin, n, buffer), *b = residual.read(row, begin, n, other_buffer);
        C* sum = residual_out.target(row, begin, buffer);
        simd_for(n, [=](int64_t i) { sum[i] = a[i] + b[i]; });
        residual_out.store(row, begin, n, sum);
      }
      moments.add(z_rows.read(row, begin, n, buffer), n);
    });
    const C mean = moments.mean, rstd = moments.rstd(args.eps);
    for_each_piece(h, [&](int64_t begin, int64_t n) {
      const C* z = z_rows.read(row, begin, n, buffer);
      const C *gamma = gammas.data() + begin, *beta = betas.data() + begin;
      C* out = y.target(row, begin, other_buffer);
      if constexpr (kKind == NormKind::kRms)
        simd_for(n, [=](int64_t i) { out[i] = z[i] * rstd * gamma[i]; });
      else
        simd_for(n, [=](int64_t i) { out[i] = (z[i] - mean) * rstd * gamma[i] + beta[i]; });
      y.store(row, begin, n, out);
    });
    if (means) means[row] = mean;
    if (rstds) rstds[row] = rstd;
  };
  parallel_for(stream, args.x.num_rows(), h, [&](int64_t row, int64_t end) {
    for (; row < end; ++row) normalise_row(row);
  });
}

/// Sums over a row of g = dy * gamma and g * xhat, xhat = (z - mean) * rstd.
template <class C>
struct GradientSums {
  C g = 0, g_xhat = 0;
};

template <class C, NormKind kKind>
class BackwardRows {
 public:
  explicit BackwardRows(const NormBackwardArgs& args)
      : h_(args.x.shape[-1]),
        z_(args.x),
        dy_(args.dy),
        dresidual_(args.dresidual),
        dx_(args.dx),
        means_(kKind == NormKind::kLayer ? args.mean.as<C>() : nullptr),
        rstds_(args.rstd.as<C>()),
        gammas_(weights<C>(args.gamma, h_, args.zero_centered_gamma ? C(1) : C(0), C(1))) {}

  /// `dgamma` and `dbeta` [h]: sums of the row's part, or null.
  void run(int64_t row, C* dgamma, C* dbeta) const {
    const C mean = means_ ? means_[row] : C(0), rstd = rstds_[row];
    Piece<C> z_buffer, dy_buffer, out_buffer;
    GradientSums<C> sums;
    for_each_piece(h_, [&](int64_t begin, int64_t n) {
      const C *z = z_.read(row, begin, n, z_buffer), *dy = dy_.read(row, begin, n, dy_buffer);
      const C* gamma = gammas_.data() + begin;
      C *const gamma_sum = dgamma ? dgamma + begin : nullptr, *const beta_sum = dbeta ? dbeta + begin : nullptr;
      simd_block([=, &sums] {
        C g = 0, g_xhat = 0;
#pragma omp simd reduction(+ : g, g_xhat)
        for (int64_t i = 0; i < n; ++i) {
          g += dy[i] * gamma[i];
          g_xhat += dy[i] * gamma[i] * ((z[i] - mean) * rstd);
        }
        if (gamma_sum) {
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) gamma_sum[i] += dy[i] * ((z[i] - mean) * rstd);
        }
        if (beta_sum) {
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) beta_sum[i] += dy[i];
        }
        sums.g += g;
        sums.g_xhat += g_xhat;
      });
    });
    if (!dx_) return;
    const C mean_g = kKind == NormKind::kLayer ? sums.g / static_cast<C>(h_) : C(0);
    const C mean_g_xhat = sums.g_xhat / static_cast<C>(h_);
    for_each_piece(h_, [&](int64_t begin, int64_t n) {
      const C *z = z_.read(row, begin, n, z_buffer), *dy = dy_.read(row, begin, n, dy_buffer);
      const C* gamma = gammas_.data() + begin;
      C* out = dx_.target(row, begin, out_buffer);
      if (dresidual_) {
        const C* other = dresidual_.read(row, begin, n, out_buffer);
        simd_for(n, [=](int64_t i) {
          out[i] = (dy[i] * gamma[i] - mean_g - (z[i] - mean) * rstd * mean_g_xhat) * rstd + other[i];
        });
      } else {
        simd_for(n,
                 [=](int64_t i) { out[i] = (dy[i] * gamma[i] - mean_g - (z[i] - mean) * rstd * mean_g_xhat) * rstd; });
      }
      dx_.store(row, begin, n, out);
    });
  }

 private:
  int64_t h_;
  RowReader<C> z_, dy_, dresidual_;
  RowWriter<C> dx_;
  const C *means_, *rstds_;
  std::vector<C> gammas_;
};

template <class C, NormKind kKind>
void backward_rows(const CpuStream& stream, const NormBackwardArgs& args) {
  const int64_t h = args.x.shape[-1], capacity = h == 0 ? 0 : args.x.num_elements() / h;
  const int64_t dbeta_column = args.dgamma.defined() ? h : 0;
  const int64_t num_columns = dbeta_column + (args.dbeta.defined() ? h : 0);
  const BackwardRows<C, kKind> rows(args);
  const ColumnSums<C> sums(args.workspace, capacity, num_columns);
  sums.for_each_row(stream, args.x.num_rows(), h, [&](int64_t row, C* sum) {
    rows.run(row, args.dgamma.defined() ? sum : nullptr, args.dbeta.defined() ? sum + dbeta_column : nullptr);
  });
  if (args.dgamma.defined()) sums.store(stream, 0, args.dgamma, args.accumulate);
  if (args.dbeta.defined()) sums.store(stream, dbeta_column, args.dbeta, args.accumulate);
}
}  // namespace

void norm_forward(const CpuStream& stream, const NormForwardArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    if (args.kind == NormKind::kRms)
      forward_rows<C, NormKind::kRms>(stream, args);
    else
      forward_rows<C, NormKind::kLayer>(stream, args);
  });
}

void norm_backward(const CpuStream& stream, const NormBackwardArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    if (args.kind == NormKind::kRms)
      backward_rows<C, NormKind::kRms>(stream, args);
    else
      backward_rows<C, NormKind::kLayer>(stream, args);
  });
}

}  // namespace megatron::kernels
