// Transformer Engine's C functions for the ops that bench measures, from the library that is on the machine.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "megatron/core/context.h"
#include "megatron/kernels/activation.h"

struct CUstream_st;

namespace megatron {

/// Loaded when one is made, and stays so. Only the functions below are bound, so that a library whose other parts need
/// a newer cuBLAS than is there will do. They throw what derives from std::exception, with Transformer Engine's own
/// words. Source: the headers of Transformer Engine 2.20, transformer_engine/common/include/transformer_engine.
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
    /// Forward of x, backward of dy. Strides, in elements, are those of the input.
    using Rope = void(Handle input, Handle cu_seqlens, Handle angles, Handle start_positions, Handle output, int format,
                      bool interleaved, int cp_size, int cp_rank, int s, int b, int n, int d, int d_rot, int stride_s,
                      int stride_b, int stride_n, int stride_d, Stream);
    Rope *rope_forward, *rope_backward;
    /// Of the fused projection, [s, b, groups, d_q + d_k + d_v].
    void (*qkv_rope_forward)(Handle mixed, Handle q_angles, Handle k_angles, Handle start_positions, Handle q, Handle k,
                             Handle v, int format, bool interleaved, int cp_size, int cp_rank, int s, int b, int groups,
                             int d, int d_rot, int d_q, int d_k, int d_v, Stream);
    void (*qkv_rope_backward)(Handle dq, Handle dk, Handle dv, Handle q_angles, Handle k_angles, Handle dmixed,
                              int format, bool interleaved, int cp_size, int cp_rank, int s, int b, int groups, int d,
                              int d_rot, int d_q, int d_k, int d_v, Stream);
    /// lists: gradients, weights, first and second moments, and main weights or what weights lack of them.
    using Adam = void(int chunk_size, Handle noop, Handle** lists, size_t num_lists, size_t num_tensors, float lr,
                      float beta1, float beta2, float epsilon, int step, int mode, int bias_correction,
                      float weight_decay, Stream);
    Adam *adam, *adam_with_remainder;
    void (*l2norm)(int chunk_size, Handle noop, Handle** lists, size_t num_lists, size_t num_tensors, Handle sums,
                   Handle sums_per_tensor, Handle norm, Handle norm_per_tensor, int per_tensor, int max_chunks, Stream);
  };
  static constexpr int kSbhd = 0;               // NVTE_QKV_Format
  static constexpr int kChunkSize = 2048 * 32;  // what its own optimizers take
  static constexpr int kAdamW = 1;              // decoupled weight decay
  static constexpr int64_t kNormSums = 320;     // of l2norm
  static constexpr const char* kName = "libtransformer_engine.so";

  /// @param file  a path, or kName for what the loader finds
  /// @throw NotSupported, with how to get it, if it cannot be loaded or is not as that of 2.20
  explicit TransformerEngine(const std::string& file);

  /// The file that was loaded.
  const std::string& path() const { return path_; }
  const Functions& call() const { return call_; }
  /// y = act(x), or dx of dy and x; gated ones read gate and up from the halves of a row. Of GELU it has the tanh form.
  /// @throw NotSupported if it has no such function
  using Activation = void(Handle x, Handle y, Stream);
  using ActivationGradient = void(Handle dy, Handle x, Handle dx, Stream);
  Activation* activation(kernels::Activation kind, bool is_gated) const;
  ActivationGradient* activation_gradient(kernels::Activation kind, bool is_gated) const;
  /// Of the current GPU: what its norms want to be told.
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

/// One of our tensors as Transformer Engine sees it. Copies share it; it keeps the tensor's memory.
class EngineTensor {
 public:
  /// @param x  contiguous; undefined: an empty tensor
  EngineTensor(const TransformerEngine& engine, const Tensor& x);
  /// What x holds is taken for 16-bit integers.
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

/// Memory for a function that says how much it wants when it is given none, and does nothing else then.
EngineTensor engine_workspace(const Context& ctx, const TransformerEngine& engine,
                              const std::function<void(TransformerEngine::Handle)>& function);

}  // namespace megatron
