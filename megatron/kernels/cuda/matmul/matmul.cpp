#include "megatron/kernels/cuda/matmul/matmul.h"

#include <memory>

#include "megatron/kernels/cuda/library_handles.h"
#include "megatron/kernels/cuda/matmul/matmul_plan.h"
#include "megatron/kernels/elementwise.h"

namespace megatron::kernels {
namespace {

struct Extents {
  int64_t m, n, k;
};

Extents check(const MatmulArgs& args) {
  const Extents size{args.c.shape[0], args.c.shape[1], args.a.shape[args.transpose_a ? 0 : 1]};
  const Shape a = args.transpose_a ? Shape{size.k, size.m} : Shape{size.m, size.k};
  const Shape b = args.transpose_b ? Shape{size.n, size.k} : Shape{size.k, size.n};
  require<ShapeError>(args.a.shape == a && args.b.shape == b,
                      "[matmul] a {} and b {} (transposed: {}, {}) do not give {}.", args.a.shape, args.b.shape,
                      args.transpose_a, args.transpose_b, args.c.shape);
  require<DtypeError>(is_floating(args.a.dtype) && args.b.dtype == args.a.dtype &&
                          (args.c.dtype == args.a.dtype || args.c.dtype == DType::kFloat32),
                      "[matmul] a {}, b {}, c {}: a and b must have the same floating dtype; c too, or float32.",
                      args.a.dtype, args.b.dtype, args.c.dtype);
  const bool has_bias = args.bias.shape.rank() > 0;
  require<NotSupported>(!has_bias || args.bias.dtype == args.c.dtype,
                        "[matmul] on CUDA the bias must have the dtype of c: they are {} and {}.",
                        has_bias ? args.bias.dtype : args.c.dtype, args.c.dtype);
  require<NotSupported>(args.transpose_a || args.transpose_b || !args.b.is_bounded,
                        "[matmul] on CUDA rows of b can be bounded only if a is transposed.");
  return size;
}

/// The rows of c all equal to the bias, or 0: an empty sum.
void store_empty_sum(const CudaStream& stream, MatmulArgs args) {
  if (!args.transpose_a && !args.c.count) args.c.count = args.a.count;
  if (!args.bias.defined()) {
    if (!args.accumulate) fill(stream, {.y = args.c});
    return;
  }
  ConstView bias = args.bias;
  bias.shape = args.c.shape;
  bias.strides = Shape{0, 1};
  if (args.accumulate)
    add(stream, {.a = args.c, .b = bias, .y = args.c});
  else
    copy(stream, {.x = bias, .y = args.c});
}

/// cuBLASLt does not know counts in device memory: matmuls of bounded operands use the whole capacities. A
/// bounded depth multiplies copies of a and b whose rows past the bound are 0; bounded rows of c are computed
/// in the workspace, and the true rows are copied or added.
bool has_bounded_rows(const MatmulArgs& args) { return args.c.is_bounded || (!args.transpose_a && args.a.is_bounded); }
bool has_bounded_depth(const MatmulArgs& args) {
  return args.transpose_a && (args.a.is_bounded || (!args.transpose_b && args.b.is_bounded));
}

/// Contiguous matrices one after the other in a workspace.
class Room {
 public:
  explicit Room(void* data) : data_(static_cast<char*>(data)) {}
  View take(const ConstView& like) {
    View view{data_ ? data_ + bytes_ : nullptr, like.dtype, like.shape, like.shape.contiguous_strides()};
    constexpr int64_t kAlignment = 256;
    bytes_ += (view.num_elements() * size_of(view.dtype) + kAlignment - 1) / kAlignment * kAlignment;
    return view;
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_;
  int64_t bytes_ = 0;
};

View padded(const CudaStream& stream, const ConstView& x, const int32_t* count, Room& room) {
  View bounded = room.take(x);
  fill(stream, {.y = bounded});
  bounded.count = count;
  copy(stream, {.x = x, .y = bounded});
  bounded.count = nullptr;
  return bounded;
}

void bounded_product(const CudaStream& stream, MatmulArgs args) {
  const bool has_depth = has_bounded_depth(args), has_rows = has_bounded_rows(args);
  const int32_t* depth = args.a.count ? args.a.count : args.b.count;
  const int32_t* rows = args.c.count ? args.c.count : args.a.count;
  const int64_t bytes = matmul_workspace_bytes(stream, args);
  require<InternalError>(args.workspace.defined() && args.workspace.num_elements() >= bytes,
                         "[matmul] {} bytes of workspace are needed.", bytes);
  Room room(static_cast<char*>(args.workspace.data) + kMatmulWorkspaceBytes + kMatmulWorkspaceAlignment);
  if (has_depth) args.a = padded(stream, args.a, depth, room);
  if (has_depth && !args.transpose_b) args.b = padded(stream, args.b, depth, room);
  View c = args.c;
  if (has_rows) args.c = room.take(c);
  for (ConstView* x : {&args.a, &args.b}) x->count = nullptr, x->is_bounded = false;
  args.c.count = nullptr, args.c.is_bounded = false;
  const bool accumulate = args.accumulate;
  args.accumulate = accumulate && !has_rows;
  matmul(stream, args);
  if (!has_rows) return;
  c.count = rows;
  if (accumulate)
    add(stream, {.a = c, .b = args.c, .y = c});
  else
    copy(stream, {.x = args.c, .y = c});
}

}  // namespace

int64_t matmul_workspace_bytes(const CudaStream&, const MatmulArgs& args) {
  const Extents size = check(args);
  cublas_type(args.a.dtype);
  Room room(nullptr);
  if (has_bounded_depth(args)) room.take(args.a);
  if (has_bounded_depth(args) && !args.transpose_b) room.take(args.b);
  if (has_bounded_rows(args)) room.take(args.c);
  return size.m == 0 || size.n == 0 || size.k == 0 ? 0
                                                   : kMatmulWorkspaceBytes + kMatmulWorkspaceAlignment + room.bytes();
}

void use_tf32(const CudaStream& stream) { library_handles<MatmulPlans>(stream).use_tf32(); }

void matmul(const CudaStream& stream, const MatmulArgs& args) {
  const Extents size = check(args);
  cublas_type(args.a.dtype);  // rejects double precision
  if (size.m == 0 || size.n == 0) return;
  if (size.k == 0) return store_empty_sum(stream, args);
  if (has_bounded_rows(args) || has_bounded_depth(args)) return bounded_product(stream, args);
  void* workspace = args.workspace.data;
  size_t workspace_bytes = args.workspace.defined() ? static_cast<size_t>(args.workspace.num_elements()) : 0;
  require<InternalError>(
      std::align(kMatmulWorkspaceAlignment, kMatmulWorkspaceBytes, workspace, workspace_bytes) != nullptr,
      "[matmul] {} bytes of workspace are needed.", kMatmulWorkspaceBytes + kMatmulWorkspaceAlignment);
  auto& plans = library_handles<MatmulPlans>(stream);
  const MatmulPlan& plan = plans.plan(matmul_key(args));
  if (args.bias.defined())
    check_cublas(cublasLtMatmulDescSetAttribute(plan.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &args.bias.data, sizeof(args.bias.data)),
                 "bias");
  const float one = 1, beta = args.accumulate ? 1 : 0;
  check_cublas(cublasLtMatmul(plans.handle(), plan.operation.get(), &one, args.b.data, plan.b.get(), args.a.data,
                              plan.a.get(), &beta, args.c.data, plan.c.get(), args.c.data, plan.c.get(),
                              &plan.algorithm, workspace, static_cast<size_t>(kMatmulWorkspaceBytes), stream.stream),
               "product");
}

}  // namespace megatron::kernels
