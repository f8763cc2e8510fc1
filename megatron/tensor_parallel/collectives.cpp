#include "megatron/tensor_parallel/collectives.h"

namespace megatron {
namespace {
CommOptions options(std::string_view site, const Tensor& a, const Tensor& b) {
  return {.site = site, .keep_alive = KeepAlive::of(a.storage(), b.storage())};
}
}  // namespace

Work start_all_reduce(const ProcessGroup& group, Tensor& x, ReduceOp reduce, std::string_view site) {
  return group.all_reduce(x.view(), reduce, options(site, x, x));
}

Pending start_gather(const Context& ctx, const ProcessGroup& group, const Tensor& x, std::string_view site) {
  Shape shape = x.shape();
  shape[0] *= group.size();
  Pending result{ctx.empty(site, shape, x.dtype(), MemoryUse::kCommunication), {}};
  result.work = group.all_gather(x.view(), result.tensor.view(), options(site, x, result.tensor));
  return result;
}

Pending start_reduce_scatter(const Context& ctx, const ProcessGroup& group, const Tensor& x, std::string_view site) {
  Shape shape = x.shape();
  shape[0] = rows_of_rank(group, shape[0]);
  Pending result{ctx.empty(site, shape, x.dtype(), MemoryUse::kCommunication), {}};
  result.work = start_reduce_scatter(group, x, result.tensor, site);
  return result;
}

Work start_reduce_scatter(const ProcessGroup& group, const Tensor& x, Tensor result, std::string_view site) {
  return group.reduce_scatter(x.view(), result.view(), ReduceOp::kSum, options(site, x, result));
}

Pending start_all_to_all(const Context& ctx, const ProcessGroup& group, const Tensor& x, std::string_view site) {
  require<ShapeError>(x.size(0) % group.size() == 0, "[{}] {} rows are not divisible by {} ranks.", site, x.size(0),
                      group.size());
  Pending result{ctx.empty(site, x.shape(), x.dtype(), MemoryUse::kCommunication), {}};
  result.work = group.all_to_all(x.view(), result.tensor.view(), options(site, x, result.tensor));
  return result;
}

int64_t rows_of_rank(const ProcessGroup& group, int64_t num_rows) {
  require<ShapeError>(
      num_rows % group.size() == 0,
      "[sequence parallel] {} rows are not divisible by {} tensor-parallel ranks. Choose a --seq-length "
      "that is.",
      num_rows, group.size());
  return num_rows / group.size();
}

Tensor gather_rows_of_ranks(const Context& ctx, const ProcessGroup& group, const Tensor& x, std::string_view site) {
  Pending gathered = start_gather(ctx, group, x, site);
  gathered.work.wait();
  return std::move(gathered.tensor);
}

}  // namespace megatron
