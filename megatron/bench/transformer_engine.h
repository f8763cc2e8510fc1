// Transformer Engine's C functions for the ops that bench measures, loaded from the installed library.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "megatron/core/context.h"
#include "megatron/kernels/activation.h"

struct CUstream_st;

namespace megatron {

/// The constructor loads the library, which stays loaded. Only the functions below are bound, so a library whose other
/// parts need a newer cuBLAS than installed works too. They throw exceptions derived from std::exception, with
/// Transformer Engine's text. Source: the headers of Transformer Engine 2.20,
/// transformer_engine/common/include/transformer_engine.
class TransformerEngine {
 public:
  using Handle = void*;  // NVTETensor: pointer, dtype and shape; the memory is ours
  using Stream = CUstream_st*;
  struct Functions {
    void (*rmsnorm_fwd)(Handle x, Handle gamma, float eps, Handle y, Handle rstd, Handle workspace, int multiprocessors,
                        bool zero_centered_gamma, Stream);
    void (*rmsnorm_bwd)(Handle dy, Handle x, Handle rstd, Handle gamma, Handle dx, Handle dgamma, Handle workspace,
                        int multiprocessors, bool zero_centered_gamma, Stream);
    void (*rmsnorm_bwd_add)(Handle dy, Handle x, Handle add, Handle rstd, Handle gamma, Handle dx, Handle dgamma,
                            Handle workspace, int multiprocessors, bool zero_centered_gamma, Stream);
    void (*layernorm_fwd)(Handle x, Handle gamma, Handle beta, float eps, Handle y, Handle mean, Handle rstd,
                          Handle workspace, int multiprocessors, bool zero_centered_gamma, Stream);
    void (*layernorm_bwd)(Handle dy, Handle x, Handle mean, Handle rstd, Handle gamma, Handle dx, Handle dgamma,
                          Handle dbeta, Handle workspace, int multiprocessors, bool zero_centered_gamma, Stream);
    /// Rotates x in forward, dy in backward. Strides, in elements, are those of the input.
    using Rope = void(Handle input, Handle cu_seqlens, Handle angles, Handle start_positions, Handle output, int format,
                      bool interleaved, int cp_size, int cp_rank, int s, int b, int n, int d, int d_rot, int stride_s,
                      int stride_b, int stride_n, int stride_d, Stream);
    Rope *rope_forward, *rope_backward;
    /// Rotates the fused projection, [s, b, groups, d_q + d_k + d_v].
    void (*qkv_rope_forward)(Handle mixed, Handle q_angles, Handle k_angles, Handle start_positions, Handle q, Handle k,
                             Handle v, int format, bool interleaved, int cp_size, int cp_rank, int s, int b, int groups,
                             int d, int d_rot, int d_q, int d_k, int d_v, Stream);
    void (*qkv_rope_backward)(Handle dq, Handle dk, Handle dv, Handle q_angles, Handle k_angles, Handle dmixed,
                              int format, bool interleaved, int cp_size, int cp_rank, int s, int b, int groups, int d,
                              int d_rot, int d_q, int d_k, int d_v, Stream);
    /// lists: gradients, weights, first and second moments, and main weights or their remainders.
    using Adam = void(int chunk_size, Handle noop, Handle** lists, size_t num_lists, size_t num_tensors, float lr,
                      float beta1, float beta2, float epsilon, int step, int mode, int bias_correction,
                      float weight_decay, Stream);
    Adam *adam, *adam_with_remainder;
    void (*l2norm)(int chunk_size, Handle noop, Handle** lists, size_t num_lists, size_t num_tensors, Handle sums,
                   Handle sums_per_tensor, Handle norm, Handle norm_per_tensor, int per_tensor, int max_chunks, Stream);
  };
  static constexpr int kSbhd = 0;               // NVTE_QKV_Format
  static constexpr int kChunkSize = 2048 * 32;  // as in its own optimizers
  static constexpr int kAdamW = 1;              // decoupled weight decay
  static constexpr int64_t kNormSums = 320;     // of l2norm
  static constexpr const char* kName = "libtransformer_engine.so";

  /// @param file  a path, or kName for the loader's search
  /// @throw NotSupported, with how to get it, if it cannot be loaded or is not compatible with 2.20
  explicit TransformerEngine(const std::string& file);

  /// The file that was loaded.
  const std::string& path() const { return path_; }
  const Functions& call() const { return call_; }
  /// y = act(x), or dx of dy and x; gated ones read gate and up from the halves of a row. GELU has the tanh form only.
  /// @throw NotSupported if it has no such function
  using Activation = void(Handle x, Handle y, Stream);
  using ActivationGradient = void(Handle dy, Handle x, Handle dx, Stream);
  Activation* activation(kernels::Activation kind, bool is_gated) const;
  ActivationGradient* activation_gradient(kernels::Activation kind, bool is_gated) const;
  /// Multiprocessors of the current GPU, an argument of its norms.
  int num_multiprocessors() const;

 private:
  friend class EngineTensor;
  struct Tensors {
    Handle (*create)(int scaling_mode);
    void (*destroy)(Handle);
    void (*set)(Handle, int parameter, const void* value, size_t bytes);
    size_t (*num_dims)(Handle);
    size_t (*size)(Handle, size_t dim);
    size_t (*bytes)(Handle);
    int (*type)(Handle);
    void* (*data)(Handle);
  };
  void find_functions();
  void check_tensors() const;
  void* find(const std::string& name) const;

  void* library_ = nullptr;
  std::string path_;
  Tensors tensors_{};
  Functions call_{};
};

/// One of our tensors as a Transformer Engine tensor. Copies share it; it keeps the tensor's memory.
class EngineTensor {
 public:
  /// @param x  contiguous; undefined: an empty tensor
  EngineTensor(const TransformerEngine& engine, const Tensor& x);
  /// The elements of x as 16-bit integers.
  static EngineTensor of_int16(const TransformerEngine& engine, const Tensor& x);

  operator TransformerEngine::Handle() const { return handle_.get(); }
  size_t bytes() const;

 private:
  EngineTensor(const TransformerEngine& engine, const Tensor& x, int type, const Shape& shape);
  const TransformerEngine* engine_;
  Tensor tensor_;
  std::shared_ptr<void> handle_;
};

/// Calls `function` with the compute stream of the device; null on a CPU, where only a stand-in can work.
void launch_engine(const Context& ctx, const std::function<void(TransformerEngine::Stream)>& function);

/// Workspace of a function that reports its size when called without one.
EngineTensor engine_workspace(const Context& ctx, const TransformerEngine& engine,
                              const std::function<void(TransformerEngine::Handle)>& function);

}  // namespace megatron
