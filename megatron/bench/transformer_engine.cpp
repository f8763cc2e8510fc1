#include "megatron/bench/transformer_engine.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <exception>

// The binary interface of Transformer Engine 2.20: no function returns the version, but tensors can be queried for how
// they were read.

namespace megatron {
namespace {

constexpr int kUnscaled = 0;              // NVTE_DELAYED_TENSOR_SCALING: also what is not quantised
constexpr int kData = 0;                  // kNVTERowwiseData
constexpr int kInt16 = 1;                 // NVTEDType
constexpr int kMultiprocessorCount = 16;  // cudaDevAttrMultiProcessorCount
constexpr std::string_view kHowToGet =
    "Get it from its wheel: pip download --no-deps transformer_engine_cu13==2.20.2, unzip it, and give "
    "--transformer-engine transformer_engine/wheel_lib/libtransformer_engine.so, with the libraries of CUDA 13 (NVRTC "
    "too), "
    "cuDNN 9 and NCCL in LD_LIBRARY_PATH, and CUDA's headers in /usr/local/cuda or NVTE_CUDA_INCLUDE_DIR.";

/// NVTEBasicTensor
struct BasicTensor {
  void* data = nullptr;
  int type = 0;
  struct {
    std::array<size_t, 15> sizes{};
    size_t num_dims = 0;
  } shape;
};

/// NVTEDType
int type_of(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return 0;
    case DType::kInt32:
      return 2;
    case DType::kInt64:
      return 3;
    case DType::kFloat32:
      return 4;
    case DType::kFloat16:
      return 5;
    case DType::kBFloat16:
      return 6;
    default:
      throw NotSupported(fmt::format("Transformer Engine has no tensors in {}.", name_of(dtype)));
  }
}

BasicTensor basic_tensor(void* data, int type, const Shape& shape) {
  BasicTensor basic{.data = data, .type = type};
  basic.shape.num_dims = static_cast<size_t>(shape.rank());
  for (int dim = 0; dim < shape.rank(); ++dim)
    basic.shape.sizes[static_cast<size_t>(dim)] = static_cast<size_t>(shape[dim]);
  return basic;
}

std::string stem_of(kernels::Activation kind, bool is_gated) {
  switch (kind) {
    case kernels::Activation::kGeluTanh:
      return is_gated ? "geglu" : "gelu";
    case kernels::Activation::kQuickGelu:
      return is_gated ? "qgeglu" : "qgelu";
    case kernels::Activation::kSilu:
      return is_gated ? "swiglu" : "silu";
    case kernels::Activation::kRelu:
      return is_gated ? "reglu" : "relu";
    case kernels::Activation::kSquaredRelu:
      return is_gated ? "sreglu" : "srelu";
    case kernels::Activation::kGelu:
    case kernels::Activation::kSigmoid:
      break;
  }
  throw NotSupported("Transformer Engine has no such activation.");
}

template <class Function>
void set(void* found, Function*& function) {
  function = reinterpret_cast<Function*>(found);
}

constexpr const char* kCompile = "nvrtcCompileProgram";

/// Transformer Engine calls NVRTC without linking it: a program that loads it must load NVRTC too.
void load_compiler() {
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"})
    if (dlopen(name, RTLD_LAZY | RTLD_GLOBAL)) return;
}

std::string path_of(void* symbol, const std::string& otherwise) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname ? info.dli_fname : otherwise;
}

}  // namespace

TransformerEngine::TransformerEngine(const std::string& file) : path_(file) {
  load_compiler();
  // Lazily: its matmuls may refer to functions of a newer cuBLAS.
  library_ = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!library_) throw NotSupported(fmt::format("Transformer Engine cannot be loaded: {}. {}", dlerror(), kHowToGet));
  const bool has_compiler = dlsym(library_, kCompile) || dlsym(RTLD_DEFAULT, kCompile);
  require<NotSupported>(has_compiler,
                        "{} compiles its norms when they are called, and libnvrtc.so.13 cannot be loaded. {}", path_,
                        kHowToGet);
  find_functions();
  path_ = path_of(reinterpret_cast<void*>(tensors_.create), file);
  check_tensors();
}

void* TransformerEngine::find(const std::string& name) const {
  void* found = dlsym(library_, name.c_str());
  require<NotSupported>(found != nullptr, "{} has no {}: it is not of Transformer Engine 2.20. {}", path_, name,
                        kHowToGet);
  return found;
}

void TransformerEngine::find_functions() {
  set(find("nvte_create_tensor"), tensors_.create);
  set(find("nvte_destroy_tensor"), tensors_.destroy);
  set(find("nvte_set_tensor_param_v2"), tensors_.set);
  set(find("nvte_tensor_ndims"), tensors_.num_dims);
  set(find("nvte_tensor_size"), tensors_.size);
  set(find("nvte_tensor_size_bytes"), tensors_.bytes);
  set(find("nvte_tensor_type"), tensors_.type);
  set(find("nvte_tensor_data"), tensors_.data);
  set(find("nvte_rmsnorm_fwd"), call_.rmsnorm_fwd);
  set(find("nvte_rmsnorm_bwd"), call_.rmsnorm_bwd);
  set(find("nvte_rmsnorm_bwd_add"), call_.rmsnorm_bwd_add);
  set(find("nvte_layernorm_fwd"), call_.layernorm_fwd);
  set(find("nvte_layernorm_bwd"), call_.layernorm_bwd);
  set(find("nvte_fused_rope_forward"), call_.rope_forward);
  set(find("nvte_fused_rope_backward"), call_.rope_backward);
  set(find("nvte_fused_qkv_rope_forward"), call_.qkv_rope_forward);
  set(find("nvte_fused_qkv_rope_backward"), call_.qkv_rope_backward);
  set(find("nvte_multi_tensor_adam_cuda"), call_.adam);
  set(find("nvte_multi_tensor_adam_param_remainder_cuda"), call_.adam_with_remainder);
  set(find("nvte_multi_tensor_l2norm_cuda"), call_.l2norm);
}

void TransformerEngine::check_tensors() const {
  const Shape shape{3, 5};
  char memory = 0;
  const BasicTensor given = basic_tensor(&memory, type_of(DType::kBFloat16), shape);
  std::string reason;
  const Handle tensor = tensors_.create(kUnscaled);
  try {
    tensors_.set(tensor, kData, &given, sizeof given);
    const bool is_same = tensors_.data(tensor) == given.data && tensors_.type(tensor) == given.type &&
                         tensors_.num_dims(tensor) == 2 && tensors_.size(tensor, 0) == 3 &&
                         tensors_.size(tensor, 1) == 5 && tensors_.bytes(tensor) == 30;
    if (!is_same)
      reason =
          fmt::format("it takes {} in {} for {} dimensions, type {} and {} bytes", shape, name_of(DType::kBFloat16),
                      tensors_.num_dims(tensor), tensors_.type(tensor), tensors_.bytes(tensor));
  } catch (const std::exception& error) {
    reason = error.what();
  }
  tensors_.destroy(tensor);
  require<NotSupported>(reason.empty(), "{} does not understand a tensor of Transformer Engine 2.20: {}. {}", path_,
                        reason, kHowToGet);
}

TransformerEngine::Activation* TransformerEngine::activation(kernels::Activation kind, bool is_gated) const {
  return reinterpret_cast<Activation*>(find("nvte_" + stem_of(kind, is_gated)));
}

TransformerEngine::ActivationGradient* TransformerEngine::activation_gradient(kernels::Activation kind,
                                                                              bool is_gated) const {
  return reinterpret_cast<ActivationGradient*>(find("nvte_d" + stem_of(kind, is_gated)));
}

int TransformerEngine::num_multiprocessors() const {
  // From the CUDA runtime that it has loaded.
  int (*get_device)(int*) = nullptr;
  int (*get_attribute)(int*, int, int) = nullptr;
  set(find("cudaGetDevice"), get_device);
  set(find("cudaDeviceGetAttribute"), get_attribute);
  int device = 0, count = 0;
  const bool is_known = get_device(&device) == 0 && get_attribute(&count, kMultiprocessorCount, device) == 0;
  require<DeviceError>(is_known, "the CUDA runtime of {} does not report the number of multiprocessors.", path_);
  return count;
}

EngineTensor::EngineTensor(const TransformerEngine& engine, const Tensor& x)
    : EngineTensor(engine, x, type_of(x.dtype()), x.shape()) {}

EngineTensor EngineTensor::of_int16(const TransformerEngine& engine, const Tensor& x) {
  return EngineTensor(engine, x, kInt16, {x.bytes() / 2});
}

EngineTensor::EngineTensor(const TransformerEngine& engine, const Tensor& x, int type, const Shape& shape)
    : engine_(&engine), tensor_(x), handle_(engine.tensors_.create(kUnscaled), engine.tensors_.destroy) {
  if (!x.defined()) return;
  require<ShapeError>(x.is_contiguous(), "[EngineTensor] a tensor of shape {} and strides {} has gaps.", x.shape(),
                      x.strides());
  const BasicTensor basic = basic_tensor(tensor_.view().data, type, shape);
  engine.tensors_.set(handle_.get(), kData, &basic, sizeof basic);
}

size_t EngineTensor::bytes() const { return engine_->tensors_.bytes(handle_.get()); }

void launch_engine(const Context& ctx, const std::function<void(TransformerEngine::Stream)>& function) {
  launch(ctx, [&](auto& stream) {
    if constexpr (requires { stream.stream; })
      function(stream.stream);
    else
      function(nullptr);
  });
}

EngineTensor engine_workspace(const Context& ctx, const TransformerEngine& engine,
                              const std::function<void(TransformerEngine::Handle)>& function) {
  const EngineTensor nothing(engine, Tensor());
  function(nothing);
  return EngineTensor(engine, ctx.workspace("workspace", static_cast<int64_t>(nothing.bytes())));
}

}  // namespace megatron
