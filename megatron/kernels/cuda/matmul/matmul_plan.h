// cuBLASLt's description of one shape of matmul, and the chosen algorithm.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <vector>

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/cuda/matmul/matmul_choices.h"
#include "megatron/kernels/matmul.h"

namespace megatron::kernels {

/// The workspace that cuBLAS recommends for Hopper, and its alignment, for which there is additional room.
inline constexpr int64_t kMatmulWorkspaceBytes = int64_t{32} << 20, kMatmulWorkspaceAlignment = 256;

/// @throw DeviceError that names `what`.
void check_cublas(cublasStatus_t status, const char* what);

struct DestroyMatmulParts {
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
  void operator()(cublasLtMatmulDesc_t operation) const { cublasLtMatmulDescDestroy(operation); }
};

/// cuBLAS is column-major, where row-major c [m, n] is c^T [n, m] = op(b)^T op(a)^T: b is its first operand.
struct MatmulPlan {
  std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyMatmulParts> operation;
  std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyMatmulParts> a, b, c;
  cublasLtMatmulAlgo_t algorithm;
  bool is_chosen = false, is_used = false;  // by choose(), by plan()
};

/// cuBLASLt's handle, and a plan for each requested matmul.
class MatmulPlans : public LibraryHandles {
 public:
  MatmulPlans();
  ~MatmulPlans() override { cublasLtDestroy(handle_); }
  MatmulPlans(const MatmulPlans&) = delete;
  MatmulPlans& operator=(const MatmulPlans&) = delete;

  cublasLtHandle_t handle() const { return handle_; }
  /// The plan with the chosen algorithm, or else the first that the library offers. @throw NotSupported if none.
  const MatmulPlan& plan(const MatmulKey& key);
  /// At most `most` algorithms, the library's best guess first. They give equal bits in every run.
  std::vector<cublasLtMatmulAlgo_t> candidates(const MatmulKey& key, int most) const;
  MatmulUse use() const;
  /// See use_tf32().
  void use_tf32();
  /// Uses the choices from now on; not for fp32 with TF32. @throw NotSupported if this library cannot run a choice.
  void choose(const std::map<MatmulKey, MatmulChoice>& choices);

 private:
  MatmulPlan make(const MatmulKey& key) const;
  /// A choice for worse aligned operands is valid for better aligned ones too; null if there is none.
  const MatmulPlan* choice_for_less(const MatmulKey& key) const;
  std::vector<cublasLtMatmulAlgo_t> candidates(const MatmulKey& key, const MatmulPlan& plan, int most) const;

  cublasLtHandle_t handle_ = nullptr;
  std::map<MatmulKey, MatmulPlan> plans_;
  bool uses_tf32_ = false;
};

/// cudaDataType_t of float32, bfloat16, float16. @throw DtypeError for others.
cudaDataType_t cublas_type(DType dtype);

}  // namespace megatron::kernels
