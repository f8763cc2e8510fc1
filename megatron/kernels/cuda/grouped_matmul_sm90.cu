// Launches of the kernel in grouped_matmul_sm90.cuh.
#include "megatron/kernels/cuda/grouped_matmul_sm90.h"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <map>

#include "megatron/kernels/cuda/grouped_matmul_sm90.cuh"
#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/library_handles.h"

namespace megatron::kernels {
namespace {

using namespace sm90;

void check(cudaError_t status, const char* call) {
  require<DeviceError>(status == cudaSuccess, "[grouped_matmul] {} failed: {}.", call, cudaGetErrorString(status));
}

CUtensorMapDataType tensor_map_type(DType dtype) {
  if (dtype == DType::kBFloat16) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return dtype == DType::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

/// Makes tensor maps for the launches of a stream, and knows which kernels this GPU and this build have.
class Sm90Kernels final : public LibraryHandles {
 public:
  Sm90Kernels() {
    int device = 0, major = 0, minor = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "the compute capability");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "the compute capability");
    check(cudaDeviceGetAttribute(&num_multiprocessors_, cudaDevAttrMultiProcessorCount, device), "multiprocessors");
    if (major != 9 || minor != 0) return;
    constexpr unsigned kVersion = 12000;
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, kVersion, cudaEnableDefault, &result),
          "cuTensorMapEncodeTiled");
    if (result == cudaDriverEntryPointSuccess) encode_ = reinterpret_cast<decltype(encode_)>(entry);
  }

  int num_multiprocessors() const { return num_multiprocessors_; }

  /// Says whether this GPU and this build have the kernel; lets it take the shared memory.
  template <class Kernel>
  bool runs(Kernel* kernel) {
    if (!encode_) return false;
    const auto [found, is_new] = runs_.try_emplace(reinterpret_cast<const void*>(kernel), false);
    if (is_new) {
      cudaFuncAttributes attributes{};
      check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
      found->second = attributes.sharedSizeBytes > 0;
      if (found->second)
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "shared memory");
    }
    return found->second;
  }

  /// A tensor that is copied in boxes of 128 contiguous bytes and so many rows of one matrix.
  CUtensorMap tensor_map(const ConstView& x, uint32_t box_rows) const {
    const int rank = x.shape.rank();
    cuuint64_t sizes[3] = {}, strides[3] = {};
    for (int i = 0; i < rank; ++i) {
      sizes[i] = static_cast<cuuint64_t>(x.shape[rank - 1 - i]);
      if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(x.strides[rank - 1 - i] * size_of(x.dtype));
    }
    const cuuint32_t box[3] = {static_cast<cuuint32_t>(128 / size_of(x.dtype)), box_rows, 1};
    const cuuint32_t element_strides[3] = {1, 1, 1};
    CUtensorMap map{};
    const CUresult status =
        encode_(&map, tensor_map_type(x.dtype), static_cast<cuuint32_t>(rank), const_cast<void*>(x.data), sizes,
                strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    require<DeviceError>(status == CUDA_SUCCESS, "[grouped_matmul] a tensor map of shape {} failed: CUresult {}.",
                         x.shape, static_cast<int>(status));
    return map;
  }

 private:
  PFN_cuTensorMapEncodeTiled_v12000 encode_ = nullptr;
  std::map<const void*, bool> runs_;
  int num_multiprocessors_ = 0;
};

bool has_tensor_map(const ConstView& x) {
  constexpr int64_t kAligned = 16;
  if (reinterpret_cast<uintptr_t>(x.data) % kAligned != 0 || x.strides[-1] != 1 || x.num_elements() == 0) return false;
  for (int i = 0; i + 1 < x.shape.rank(); ++i)
    if (x.strides[i] * size_of(x.dtype) % kAligned != 0) return false;
  return true;
}
bool is_taken(const ConstView& x) {
  return (x.dtype == DType::kBFloat16 || x.dtype == DType::kFloat16) && has_tensor_map(x);
}

struct Launch {
  ConstView a, b;
  View c;
  Sizes sizes;
  int64_t most_tiles = 0;
  bool accumulate = false;
};

template <Product kProduct, class T, class C>
bool launch(const CudaStream& stream, const Launch& launch) {
  auto& kernels = library_handles<Sm90Kernels>(stream);
  auto* kernel = grouped_kernel<kProduct, T, C>;
  if (!kernels.runs(kernel)) return false;
  constexpr uint32_t kARows = kProduct == Product::kWeightGradient ? 64 : kM;
  constexpr uint32_t kBRows = kProduct == Product::kRowsByTransposed ? kN : 64;
  const auto blocks = std::min<int64_t>(launch.most_tiles, kernels.num_multiprocessors());
  // Boxes of gradients are in fp32.
  const bool stores_boxes = kProduct != Product::kWeightGradient || launch.c.dtype == DType::kFloat32;
  const Form form{.accumulate = launch.accumulate, .stores_boxes = stores_boxes && has_tensor_map(launch.c)};
  kernel<<<static_cast<unsigned>(blocks), kThreads, kSharedBytes, stream.stream>>>(
      kernels.tensor_map(launch.a, kARows), kernels.tensor_map(launch.b, kBRows),
      form.stores_boxes ? kernels.tensor_map(launch.c, 64) : CUtensorMap{}, static_cast<C*>(launch.c.data),
      launch.sizes, form);
  check_launch("grouped_matmul");
  return true;
}

int64_t tiles_of(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

}  // namespace

bool grouped_matmul_sm90(const CudaStream& stream, const GroupedMatmulArgs& args) {
  const int64_t n = args.c.shape[1];
  if (!is_taken(args.a) || !is_taken(args.b)) return false;
  const Launch rows{.a = args.a,
                    .b = args.b,
                    .c = args.c,
                    .sizes = {.groups = args.groups, .n = n, .k = args.a.shape[1]},
                    .most_tiles = (tiles_of(args.groups.capacity, kM) + args.groups.num_groups) * tiles_of(n, kN)};
  const auto run = [&]<class T>(T*) {
    return args.transpose_b ? launch<Product::kRowsByTransposed, T, T>(stream, rows)
                            : launch<Product::kRows, T, T>(stream, rows);
  };
  return args.a.dtype == DType::kBFloat16 ? run(static_cast<__nv_bfloat16*>(nullptr))
                                          : run(static_cast<__half*>(nullptr));
}

bool grouped_wgrad_sm90(const CudaStream& stream, const GroupedWgradArgs& args) {
  const int64_t o = args.c.shape[1], i = args.c.shape[2];
  if (!is_taken(args.a) || !is_taken(args.b)) return false;
  const Launch gradients{.a = args.a,
                         .b = args.b,
                         .c = args.c,
                         .sizes = {.groups = args.groups, .m = o, .n = i},
                         .most_tiles = args.groups.num_groups * tiles_of(o, kM) * tiles_of(i, kN),
                         .accumulate = args.accumulate};
  const auto run = [&]<class T>(T*) {
    return args.c.dtype == DType::kFloat32 ? launch<Product::kWeightGradient, T, float>(stream, gradients)
                                           : launch<Product::kWeightGradient, T, T>(stream, gradients);
  };
  return args.a.dtype == DType::kBFloat16 ? run(static_cast<__nv_bfloat16*>(nullptr))
                                          : run(static_cast<__half*>(nullptr));
}

}  // namespace megatron::kernels
