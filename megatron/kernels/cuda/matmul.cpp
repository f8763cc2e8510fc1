#include "megatron/kernels/cuda/matmul.h"

#include <cublasLt.h>

#include <bit>
#include <compare>
#include <map>
#include <memory>

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/cuda/library_handles.h"

namespace megatron::kernels {
namespace {

/// What cuBLAS advises for Hopper, and the alignment that it asks for, for which there is room on top.
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20, kWorkspaceAlignment = 256;

void check(cublasStatus_t status, const char* what) {
  require<DeviceError>(status == CUBLAS_STATUS_SUCCESS, "[matmul] cublasLt {} failed: {}.", what,
                       cublasLtGetStatusString(status));
}

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return CUDA_R_32F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    default:
      throw DtypeError(fmt::format("[matmul] {} on CUDA: choose float32, bfloat16 or float16.", dtype));
  }
}

/// All that a choice of algorithm depends on.
struct PlanKey {
  int64_t m, n, k, a_stride, b_stride, c_stride;
  DType dtype, c_dtype;
  bool transpose_a, transpose_b, has_bias, accumulate;
  uint32_t a_alignment, b_alignment, c_alignment, bias_alignment;
  auto operator<=>(const PlanKey&) const = default;
};

/// Bytes that divide the address, at most 256.
uint32_t alignment_of(const void* data) {
  return data ? uint32_t{1} << std::min(std::countr_zero(reinterpret_cast<uintptr_t>(data)), 8) : 256;
}

struct DestroyLayout {
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
};
struct DestroyOperation {
  void operator()(cublasLtMatmulDesc_t operation) const { cublasLtMatmulDescDestroy(operation); }
};
struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t preference) const { cublasLtMatmulPreferenceDestroy(preference); }
};
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyLayout>;
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyOperation>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, DestroyPreference>;

Layout make_layout(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, cuda_type(dtype), rows, columns, stride), "layout");
  return Layout(layout);
}

/// cuBLAS is column-major, where row-major c [m, n] is c^T [n, m] = op(b)^T op(a)^T: b is its first operand.
struct Plan {
  Operation operation;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm;
};

class CublasHandles : public LibraryHandles {
 public:
  CublasHandles() { check(cublasLtCreate(&handle_), "creation"); }
  ~CublasHandles() override { cublasLtDestroy(handle_); }
  CublasHandles(const CublasHandles&) = delete;
  CublasHandles& operator=(const CublasHandles&) = delete;

  cublasLtHandle_t handle() const { return handle_; }
  const Plan& plan(const PlanKey& key) {
    const auto found = plans_.find(key);
    return found != plans_.end() ? found->second : plans_.emplace(key, make(key)).first->second;
  }

 private:
  Plan make(const PlanKey& key) const;
  void choose(const PlanKey& key, Plan& plan) const;

  cublasLtHandle_t handle_ = nullptr;
  std::map<PlanKey, Plan> plans_;
};

template <class T>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)), "attribute");
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)), "preference");
}

Plan CublasHandles::make(const PlanKey& key) const {
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "operation");
  Plan plan{.operation = Operation(operation)};
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.has_bias) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(key.c_dtype));
  }
  plan.b = key.transpose_b ? make_layout(key.dtype, key.k, key.n, key.b_stride)
                           : make_layout(key.dtype, key.n, key.k, key.b_stride);
  plan.a = key.transpose_a ? make_layout(key.dtype, key.m, key.k, key.a_stride)
                           : make_layout(key.dtype, key.k, key.m, key.a_stride);
  plan.c = make_layout(key.c_dtype, key.n, key.m, key.c_stride);
  choose(key, plan);
  return plan;
}

void CublasHandles::choose(const PlanKey& key, Plan& plan) const {
  cublasLtMatmulPreference_t created = nullptr;
  check(cublasLtMatmulPreferenceCreate(&created), "preference");
  const Preference preference(created);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(kWorkspaceBytes));
  // Partial sums are never rounded to the dtype of c.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);
  cublasLtMatmulHeuristicResult_t result{};
  int num_results = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                     plan.c.get(), preference.get(), 1, &result, &num_results);
  require<NotSupported>(
      status == CUBLAS_STATUS_SUCCESS && num_results > 0,
      "[matmul] cuBLASLt has no algorithm for m {}, n {}, k {}, {} to {}, bias {}, rows {}, {} and {} "
      "elements apart: {}.",
      key.m, key.n, key.k, key.dtype, key.c_dtype, key.has_bias, key.a_stride, key.b_stride, key.c_stride,
      cublasLtGetStatusString(status));
  plan.algorithm = result.algo;
}

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
                      "[matmul] a {}, b {}, c {}: a and b must be alike and floating; c like them, or float32.",
                      args.a.dtype, args.b.dtype, args.c.dtype);
  const bool has_bias = args.bias.shape.rank() > 0;
  require<NotSupported>(!has_bias || args.bias.dtype == args.c.dtype,
                        "[matmul] on CUDA the bias must have the dtype of c: they are {} and {}.",
                        has_bias ? args.bias.dtype : args.c.dtype, args.c.dtype);
  require<NotSupported>(args.transpose_a || args.transpose_b || !args.b.is_bounded,
                        "[matmul] on CUDA rows of b can be bounded only where a is transposed.");
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

/// cuBLASLt does not know counts in device memory: products of bounded operands are products of whole capacities. A
/// bounded depth multiplies copies of a and b whose rows past the bound are 0; bounded rows of c are a product that
/// lies in the workspace and of which the true rows are copied or added.
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
  Room room(static_cast<char*>(args.workspace.data) + kWorkspaceBytes + kWorkspaceAlignment);
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
  cuda_type(args.a.dtype);
  Room room(nullptr);
  if (has_bounded_depth(args)) room.take(args.a);
  if (has_bounded_depth(args) && !args.transpose_b) room.take(args.b);
  if (has_bounded_rows(args)) room.take(args.c);
  return size.m == 0 || size.n == 0 || size.k == 0 ? 0 : kWorkspaceBytes + kWorkspaceAlignment + room.bytes();
}

void matmul(const CudaStream& stream, const MatmulArgs& args) {
  const Extents size = check(args);
  cuda_type(args.a.dtype);  // refuses double precision
  if (size.m == 0 || size.n == 0) return;
  if (size.k == 0) return store_empty_sum(stream, args);
  if (has_bounded_rows(args) || has_bounded_depth(args)) return bounded_product(stream, args);
  void* workspace = args.workspace.data;
  size_t workspace_bytes = args.workspace.defined() ? static_cast<size_t>(args.workspace.num_elements()) : 0;
  require<InternalError>(std::align(kWorkspaceAlignment, kWorkspaceBytes, workspace, workspace_bytes) != nullptr,
                         "[matmul] {} bytes of workspace are needed.", kWorkspaceBytes + kWorkspaceAlignment);
  // A matrix of one row has any stride.
  const auto stride_of = [](const ConstView& x) { return std::max(x.strides[0], x.shape[1]); };
  const PlanKey key{.m = size.m,
                    .n = size.n,
                    .k = size.k,
                    .a_stride = stride_of(args.a),
                    .b_stride = stride_of(args.b),
                    .c_stride = stride_of(args.c),
                    .dtype = args.a.dtype,
                    .c_dtype = args.c.dtype,
                    .transpose_a = args.transpose_a,
                    .transpose_b = args.transpose_b,
                    .has_bias = args.bias.defined(),
                    .accumulate = args.accumulate,
                    .a_alignment = alignment_of(args.a.data),
                    .b_alignment = alignment_of(args.b.data),
                    .c_alignment = alignment_of(args.c.data),
                    .bias_alignment = alignment_of(args.bias.data)};
  auto& library = library_handles<CublasHandles>(stream);
  const Plan& plan = library.plan(key);
  if (key.has_bias) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data);
  const float one = 1, beta = args.accumulate ? 1 : 0;
  check(cublasLtMatmul(library.handle(), plan.operation.get(), &one, args.b.data, plan.b.get(), args.a.data,
                       plan.a.get(), &beta, args.c.data, plan.c.get(), args.c.data, plan.c.get(), &plan.algorithm,
                       workspace, static_cast<size_t>(kWorkspaceBytes), stream.stream),
        "product");
}

}  // namespace megatron::kernels
