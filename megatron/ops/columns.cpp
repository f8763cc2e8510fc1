#include "megatron/ops/columns.h"

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

/// The columns [begin, begin + length) of the last dimension.
Tensor columns(const Tensor& x, int64_t begin, int64_t length) {
  return x.detach().slice(x.shape().rank() - 1, begin, length);
}

void copy(const Context& ctx, const ConstView& x, const View& y) {
  launch(ctx, {.name = "copy", .shape = &x.shape}, [&](auto& stream) { kernels::copy(stream, {.x = x, .y = y}); });
}

Shape with_columns(const Shape& shape, int64_t n) {
  Shape result = shape;
  result[-1] = n;
  return result;
}

/// Both parts as copies. @param name  of their memory
ColumnParts copies_of(const Context& ctx, const Tensor& x, int64_t num_first, std::string_view name) {
  const int64_t num_second = x.size(-1) - num_first;
  ColumnParts parts{ctx.empty(name, with_columns(x.shape(), num_first), x.dtype()),
                    ctx.empty(name, with_columns(x.shape(), num_second), x.dtype())};
  copy(ctx, columns(x, 0, num_first).view(), parts.first.view());
  copy(ctx, columns(x, num_first, num_second).view(), parts.second.view());
  return parts;
}

/// A part that is undefined is 0.
Tensor joined(const Context& ctx, const Tensor& first, const Tensor& second, const Shape& shape, int64_t num_first,
              DType dtype, std::string_view name) {
  Tensor whole = ctx.empty(name, shape, dtype);
  const auto put = [&](const Tensor& x, int64_t begin, int64_t length) {
    Tensor part = columns(whole, begin, length);
    if (x.defined())
      copy(ctx, x.view(), part.view());
    else
      launch(ctx, {.name = "fill"}, [&](auto& stream) { kernels::fill(stream, {.y = part.view(), .value = 0}); });
  };
  put(first, 0, num_first);
  put(second, num_first, shape[-1] - num_first);
  return whole;
}

struct SplitColumnsNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = joined(b.ctx, grad_out[0], grad_out[1], shape, num_first, dtype, "split_columns.dx");
  }
  Shape shape;
  DType dtype = DType::kFloat32;
  int64_t num_first = 0;
};

struct JoinColumnsNode final : Node {
  explicit JoinColumnsNode(int64_t num_first) : num_first(num_first) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    ColumnParts parts = copies_of(b.ctx, grad_out[0], num_first, "join_columns.dx");
    grad_in[0] = std::move(parts.first);
    grad_in[1] = std::move(parts.second);
  }
  int64_t num_first;
};

}  // namespace

ColumnParts split_columns(Context& ctx, const Tensor& x, int64_t num_first) {
  require<ShapeError>(num_first > 0 && num_first < x.size(-1), "[split_columns] {} of {} columns leave a part empty.",
                      num_first, x.size(-1));
  ColumnParts parts = copies_of(ctx, x, num_first, "split_columns.part");
  record(ctx, {}, {x.slot}, {&parts.first, &parts.second}, [&] {
    auto node = std::make_unique<SplitColumnsNode>();
    node->shape = x.shape();
    node->dtype = x.dtype();
    node->num_first = num_first;
    return node;
  });
  return parts;
}

Tensor join_columns(Context& ctx, const Tensor& first, const Tensor& second) {
  require<ShapeError>(
      with_columns(first.shape(), 1) == with_columns(second.shape(), 1) && first.dtype() == second.dtype(),
      "[join_columns] {} {} and {} {} cannot stand beside each other.", first.dtype(), first.shape(), second.dtype(),
      second.shape());
  const int64_t n = first.size(-1);
  Tensor y =
      joined(ctx, first, second, with_columns(first.shape(), n + second.size(-1)), n, first.dtype(), "join_columns.y");
  record(ctx, {}, {first.slot, second.slot}, {&y}, [&] { return std::make_unique<JoinColumnsNode>(n); });
  return y;
}

}  // namespace megatron
