#include "megatron/kernels/cuda/matmul/matmul_plan.h"

#include <fmt/core.h>

#include <cstring>

#include "megatron/base/error.h"

namespace megatron::kernels {
namespace {

struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t preference) const { cublasLtMatmulPreferenceDestroy(preference); }
};
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, DestroyPreference>;

cublasLtMatrixLayout_t make_layout(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&layout, cublas_type(dtype), rows, columns, stride), "layout");
  return layout;
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)), "attribute");
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)), "preference");
}

Preference preference_for(const MatmulKey& key) {
  cublasLtMatmulPreference_t created = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&created), "preference");
  Preference preference(created);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(kMatmulWorkspaceBytes));
  // Partial sums are never rounded to the dtype of c.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);
  return preference;
}

}  // namespace

void check_cublas(cublasStatus_t status, const char* what) {
  require<DeviceError>(status == CUBLAS_STATUS_SUCCESS, "[matmul] cublasLt {} failed: {}.", what,
                       cublasLtGetStatusString(status));
}

cudaDataType_t cublas_type(DType dtype) {
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

MatmulPlans::MatmulPlans() { check_cublas(cublasLtCreate(&handle_), "creation"); }

const MatmulPlan& MatmulPlans::plan(const MatmulKey& key) {
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    MatmulPlan plan = make(key);
    if (const MatmulPlan* chosen = choice_for_less(key)) {
      plan.algorithm = chosen->algorithm;
      plan.is_chosen = true;
    } else {
      plan.algorithm = candidates(key, plan, 1).front();
    }
    found = plans_.emplace(key, std::move(plan)).first;
  }
  found->second.is_used = true;
  return found->second;
}

void MatmulPlans::use_tf32() {
  uses_tf32_ = true;
  std::erase_if(plans_, [](const auto& plan) { return plan.first.dtype == DType::kFloat32; });
}

const MatmulPlan* MatmulPlans::choice_for_less(const MatmulKey& key) const {
  MatmulKey least = key;
  least.a_alignment = least.b_alignment = least.c_alignment = least.bias_alignment = 0;
  for (auto other = plans_.lower_bound(least); other != plans_.end(); ++other) {
    if (!is_same_product(other->first, key)) break;
    if (other->second.is_chosen && is_aligned_no_better(other->first, key)) return &other->second;
  }
  return nullptr;
}

MatmulUse MatmulPlans::use() const {
  MatmulUse use;
  for (const auto& [key, plan] : plans_) {
    if (!plan.is_used) continue;
    use.products.push_back(key);
    if (plan.is_chosen) ++use.num_chosen;
  }
  return use;
}

MatmulPlan MatmulPlans::make(const MatmulKey& key) const {
  cublasLtMatmulDesc_t operation = nullptr;
  const bool is_tf32 = uses_tf32_ && key.dtype == DType::kFloat32;
  check_cublas(
      cublasLtMatmulDescCreate(&operation, is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "operation");
  MatmulPlan plan;
  plan.operation.reset(operation);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.has_bias) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cublas_type(key.c_dtype));
  }
  plan.b.reset(key.transpose_b ? make_layout(key.dtype, key.k, key.n, key.b_stride)
                               : make_layout(key.dtype, key.n, key.k, key.b_stride));
  plan.a.reset(key.transpose_a ? make_layout(key.dtype, key.m, key.k, key.a_stride)
                               : make_layout(key.dtype, key.k, key.m, key.a_stride));
  plan.c.reset(make_layout(key.c_dtype, key.n, key.m, key.c_stride));
  return plan;
}

std::vector<cublasLtMatmulAlgo_t> MatmulPlans::candidates(const MatmulKey& key, int most) const {
  return candidates(key, make(key), most);
}

std::vector<cublasLtMatmulAlgo_t> MatmulPlans::candidates(const MatmulKey& key, const MatmulPlan& plan,
                                                          int most) const {
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int num_results = 0;
  const Preference preference = preference_for(key);
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                     plan.c.get(), preference.get(), most, results.data(), &num_results);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < num_results; ++i)
    if (const auto& result = results[static_cast<size_t>(i)]; result.state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(result.algo);
  require<NotSupported>(
      !algorithms.empty(),
      "[matmul] cuBLASLt has no algorithm for m {}, n {}, k {}, {} to {}, bias {}, rows {}, {} and {} "
      "elements apart: {}.",
      key.m, key.n, key.k, key.dtype, key.c_dtype, key.has_bias, key.a_stride, key.b_stride, key.c_stride,
      cublasLtGetStatusString(status));
  return algorithms;
}

void MatmulPlans::choose(const std::map<MatmulKey, MatmulChoice>& choices) {
  for (const auto& [key, choice] : choices) {
    if (uses_tf32_ && key.dtype == DType::kFloat32) continue;  // choices are measured without TF32
    MatmulPlan plan = make(key);
    static_assert(sizeof(plan.algorithm.data) == sizeof(choice.algorithm));
    std::memcpy(plan.algorithm.data, choice.algorithm.data(), sizeof(choice.algorithm));
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, plan.operation.get(), plan.b.get(), plan.a.get(),
                                                          plan.c.get(), plan.c.get(), &plan.algorithm, &result);
    require<NotSupported>(
        status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= static_cast<size_t>(kMatmulWorkspaceBytes),
        "[matmul] cuBLASLt rejects the algorithm chosen for m {}, n {}, k {}, {} to {}: {}. Measure the choices again.",
        key.m, key.n, key.k, key.dtype, key.c_dtype, cublasLtGetStatusString(status));
    plan.is_chosen = true;
    plans_.insert_or_assign(key, std::move(plan));
  }
}

}  // namespace megatron::kernels
