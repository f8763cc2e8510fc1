#include "megatron/ops/columns.h"

#include <initializer_list>

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

/// A copy of some columns. @param name  of its memory
Tensor copy_of(const Context& ctx, const Tensor& x, int64_t begin, int64_t length, std::string_view name) {
  Tensor part = ctx.empty(name, with_columns(x.shape(), length), x.dtype());
  copy(ctx, columns(x, begin, length).view(), part.view());
  return part;
}

ColumnParts copies_of(const Context& ctx, const Tensor& x, int64_t num_first, std::string_view name) {
  return {copy_of(ctx, x, 0, num_first, name), copy_of(ctx, x, num_first, x.size(-1) - num_first, name)};
}

/// Some columns of a tensor; if `x` is undefined they are 0.
struct Part {
  const Tensor* x = nullptr;
  int64_t length = 0;
};

Tensor joined(const Context& ctx, std::initializer_list<Part> parts, const Shape& shape, DType dtype,
              std::string_view name) {
  Tensor whole = ctx.empty(name, shape, dtype);
  int64_t begin = 0;
  for (const auto& [x, length] : parts) {
    if (length == 0) continue;
    Tensor part = columns(whole, begin, length);
    if (x && x->defined())
      copy(ctx, x->view(), part.view());
    else
      launch(ctx, {.name = "fill"}, [&](auto& stream) { kernels::fill(stream, {.y = part.view(), .value = 0}); });
    begin += length;
  }
  return whole;
}

struct SplitColumnsNode final : Node {
  SplitColumnsNode(const Tensor& x, int64_t num_first) : shape(x.shape()), dtype(x.dtype()), num_first(num_first) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = joined(b.ctx, {{&grad_out[0], num_first}, {&grad_out[1], shape[-1] - num_first}}, shape, dtype,
                        "split_columns.dx");
  }
  Shape shape;  // this and the next: of x
  DType dtype;
  int64_t num_first;
};

struct SliceColumnsNode final : Node {
  SliceColumnsNode(const Tensor& x, int64_t begin, int64_t count) : shape(x.shape()), begin(begin), count(count) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = joined(b.ctx, {{nullptr, begin}, {&grad_out[0], count}, {nullptr, shape[-1] - begin - count}}, shape,
                        grad_out[0].dtype(), "slice_columns.dx");
  }
  Shape shape;  // of x
  int64_t begin, count;
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
  record(ctx, {}, {x.slot}, {&parts.first, &parts.second},
         [&] { return std::make_unique<SplitColumnsNode>(x, num_first); });
  return parts;
}

Tensor slice_columns(Context& ctx, const Tensor& x, int64_t begin, int64_t count) {
  require<ShapeError>(begin >= 0 && count > 0 && begin + count <= x.size(-1),
                      "[slice_columns] there are no {} columns from column {} on: x has {}.", count, begin, x.size(-1));
  if (count == x.size(-1)) return x;
  Tensor y = copy_of(ctx, x, begin, count, "slice_columns.y");
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<SliceColumnsNode>(x, begin, count); });
  return y;
}

Tensor join_columns(Context& ctx, const Tensor& first, const Tensor& second) {
  require<ShapeError>(
      with_columns(first.shape(), 1) == with_columns(second.shape(), 1) && first.dtype() == second.dtype(),
      "[join_columns] {} {} and {} {} cannot stand beside each other.", first.dtype(), first.shape(), second.dtype(),
      second.shape());
  const int64_t n = first.size(-1);
  Tensor y = joined(ctx, {{&first, n}, {&second, second.size(-1)}}, with_columns(first.shape(), n + second.size(-1)),
                    first.dtype(), "join_columns.y");
  record(ctx, {}, {first.slot, second.slot}, {&y}, [&] { return std::make_unique<JoinColumnsNode>(n); });
  return y;
}

}  // namespace megatron
