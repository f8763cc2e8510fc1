#include "megatron/ops/absorbed_heads.h"

#include "megatron/kernels/cuda/matmul/matmul.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/matmul.h"

namespace megatron {
namespace {

/// A row for each token; a head is a slice of the columns.
Tensor as_rows(const Tensor& x, int64_t num_columns) {
  return x.detach().reshape({x.num_elements() / num_columns, num_columns});
}

void multiply(const Context& ctx, const Tensor& a, const ConstView& b, bool transpose_b, Tensor c) {
  kernels::MatmulArgs args{.a = a.view(), .b = b, .c = c.view(), .transpose_b = transpose_b};
  Tensor workspace = ctx.workspace("absorbed.workspace", with_stream(ctx.device, [&](auto& stream) {
                                     return kernels::matmul_workspace_bytes(stream, args);
                                   }));
  args.workspace = workspace.view();
  launch(ctx, {.name = "matmul"}, [&](auto& stream) { kernels::matmul(stream, args); });
}

/// Rows [begin, begin + length) of a weight.
ConstView rows_of(const ConstView& weight, int64_t begin, int64_t length) {
  ConstView rows = weight;
  rows.data = static_cast<const char*>(weight.data) + begin * weight.strides[0] * size_of(weight.dtype);
  rows.shape[0] = length;
  return rows;
}

}  // namespace

Tensor absorbed_query(const Context& ctx, const Tensor& query, Parameter& weight, const LatentHeadSizes& sizes) {
  const int64_t s = query.size(0), b = query.size(1), n = query.size(2), num_latent = weight.shape()[1];
  const int64_t width = num_latent + sizes.rotated, of_head = sizes.without_position + sizes.value;
  Tensor y = ctx.empty("absorbed.query", {s, b, n, width}, query.dtype());
  Tensor rotated = y.slice(3, num_latent, sizes.rotated);
  const Tensor from = query.detach().slice(3, sizes.without_position, sizes.rotated);
  launch(ctx, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = from.view(), .y = rotated.view()}); });
  const Tensor queries = as_rows(query, n * sizes.query()), results = as_rows(y, n * width);
  const WeightLease lease = weight.acquire(ctx);
  for (int64_t head = 0; head < n; ++head)
    multiply(ctx, queries.slice(1, head * sizes.query(), sizes.without_position),
             rows_of(lease.view(), head * of_head, sizes.without_position), false,
             results.slice(1, head * width, num_latent));
  return y;
}

Tensor absorbed_value(const Context& ctx, const Tensor& attended, Parameter& weight, const LatentHeadSizes& sizes) {
  const int64_t num_latent = weight.shape()[1], of_head = sizes.without_position + sizes.value;
  const int64_t s = attended.size(0), b = attended.size(1), n = attended.size(2) / num_latent;
  Tensor y = ctx.empty("absorbed.value", {s, b, n * sizes.value}, attended.dtype());
  const Tensor latents = as_rows(attended, n * num_latent), results = as_rows(y, n * sizes.value);
  const WeightLease lease = weight.acquire(ctx);
  for (int64_t head = 0; head < n; ++head)
    multiply(ctx, latents.slice(1, head * num_latent, num_latent),
             rows_of(lease.view(), head * of_head + sizes.without_position, sizes.value), true,
             results.slice(1, head * sizes.value, sizes.value));
  return y;
}

}  // namespace megatron
