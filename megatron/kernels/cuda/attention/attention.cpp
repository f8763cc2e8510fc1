#include "megatron/kernels/cuda/attention/attention.h"

#include <algorithm>
#include <map>

#include "megatron/kernels/cuda/attention/cudnn_attention.h"
#include "megatron/kernels/cuda/attention/cudnn_attention_plan.h"
#include "megatron/kernels/cuda/attention/tiled_attention.h"
#include "megatron/kernels/cuda/library_handles.h"
#include "megatron/kernels/cuda/this_gpu.h"

namespace megatron::kernels {
namespace {
constexpr bool kHasCudnn = MEGATRON_HAS_CUDNN;  // if false, cudnn_attention.cpp is not built and must not be referenced
constexpr std::string_view kNoPlan = "cuDNN has no plan for it in the workspace";
constexpr const char* kNotBuilt = "this program was built without cuDNN";

template <class Args>
void check_operands(const Args& args) {
  const ConstView &q = args.q, &k = args.k, &v = args.v, o = args.o;
  const int64_t s = q.shape[0], b = q.shape[1], n = q.shape[2], d = q.shape[3], s_k = k.shape[0], g = k.shape[2];
  const int64_t dv = v.shape[3];
  require<ShapeError>(g > 0 && n % g == 0 && k.shape == Shape{s_k, b, g, d} && v.shape == Shape{s_k, b, g, dv} &&
                          o.shape == Shape{s, b, n, dv},
                      "[attention] q {}, k {}, v {} and o {} are not [s, b, n, d], [s_k, b, g, d], [s_k, b, g, dv] and "
                      "[s, b, n, dv] with n a multiple of g.",
                      q.shape, k.shape, v.shape, o.shape);
  require<DtypeError>(is_floating(q.dtype) && k.dtype == q.dtype && v.dtype == q.dtype && o.dtype == q.dtype,
                      "[attention] q {}, k {}, v {} and o {} must be of one floating dtype.", q.dtype, k.dtype, v.dtype,
                      o.dtype);
}

void check_gradients(const AttentionBackwardArgs& args) {
  const std::pair<const char*, std::pair<ConstView, ConstView>> pairs[] = {{"grad_o", {args.grad_o, args.o}},
                                                                           {"grad_q", {args.grad_q, args.q}},
                                                                           {"grad_k", {args.grad_k, args.k}},
                                                                           {"grad_v", {args.grad_v, args.v}}};
  for (const auto& [name, views] : pairs) {
    const auto& [gradient, value] = views;
    require<ShapeError>(gradient.shape == value.shape,
                        "[attention_backward] {} {} is not of the shape of its value, {}.", name, gradient.shape,
                        value.shape);
    require<DtypeError>(gradient.dtype == value.dtype, "[attention_backward] {} is {}, its value {}.", name,
                        gradient.dtype, value.dtype);
  }
}

/// Both directions need the same mask: if cuDNN runs only one, the built-in kernels must not run the other.
template <class Args>
void refuse_dropout_of_cudnn(const Args& args) {
  if (!args.options.is_dropout_of_cudnn || args.options.dropout == 0) return;
  std::string reason(kNotBuilt);
  if constexpr (kHasCudnn) {
    const CudnnState state = cudnn_state();
    reason = state.is_usable ? cudnn_refusal(args) : state.text;
    if (reason.empty()) reason = kNoPlan;
  }
  throw NotSupported(
      fmt::format("[attention] cuDNN does not run this attention: {}. Leave out --cudnn-attention-dropout.", reason));
}

/// Spans, columns and heads are dimensions of the grid.
template <class Args>
void check_built_in_kernels_can(const Args& args) {
  refuse_dropout_of_cudnn(args);
  constexpr int64_t kMost = 65535;
  const int64_t b = args.q.shape[1], n = args.q.shape[2];
  require<NotSupported>(
      std::max({args.layout.num_spans, b, n}) <= kMost,
      "[attention] {} sequences in {} columns with {} heads: the built-in kernels support at most {} of each. Give "
      "a smaller --micro-batch-size.",
      args.layout.num_spans, b, n, kMost);
}

/// Calls on a stream, by backend.
struct AttentionCalls final : LibraryHandles {
  int64_t by_cudnn = 0;
  std::map<std::string_view, int64_t> by_built_in_kernels;  // by why_not_cudnn()
};

/// Runs cuDNN by `run` if possible, and counts the backend. @return whether cuDNN ran it.
template <class Args>
bool try_cudnn(const CudaStream& stream, const Args& args, bool (*run)(const CudaStream&, const Args&)) {
  if (!cudnn_state().is_usable) return false;
  std::string_view why_not = cudnn_refusal(args);
  if (why_not.empty() && !run(stream, args)) why_not = kNoPlan;
  auto& calls = library_handles<AttentionCalls>(stream);
  ++(why_not.empty() ? calls.by_cudnn : calls.by_built_in_kernels[why_not]);
  return why_not.empty();
}
}  // namespace

std::string_view why_not_cudnn(const AttentionForwardArgs& args) { return kHasCudnn ? cudnn_refusal(args) : kNotBuilt; }
std::string_view why_not_cudnn(const AttentionBackwardArgs& args) {
  return kHasCudnn ? cudnn_refusal(args) : kNotBuilt;
}

std::string attention_library() {
  if constexpr (kHasCudnn) {
    const CudnnState state = cudnn_state();
    return state.is_usable ? state.text : "built-in kernels: " + state.text;
  }
  return std::string("built-in kernels: ") + kNotBuilt;
}

std::string own_attention_text(const CudaStream& stream) {
  const auto& calls = library_handles<AttentionCalls>(stream);
  int64_t num_built_in = 0;
  std::string reasons;
  for (const auto& [reason, num] : calls.by_built_in_kernels) {
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", reason);
    num_built_in += num;
  }
  if (num_built_in == 0) return "";
  return fmt::format("attention: {} of {} calls ran on built-in kernels instead of cuDNN: {}", num_built_in,
                     num_built_in + calls.by_cudnn, reasons);
}

int64_t attention_forward_workspace_bytes(const CudaStream&, const AttentionForwardArgs& args) {
  return why_not_cudnn(args).empty() ? cudnn_workspace_bytes(args) : 0;
}

int64_t attention_backward_workspace_bytes(const CudaStream&, const AttentionBackwardArgs& args) {
  const int64_t own = tiled_attention_workspace_bytes(args);
  return why_not_cudnn(args).empty() ? std::max(own, cudnn_workspace_bytes(args)) : own;
}

void attention_forward(const CudaStream& stream, const AttentionForwardArgs& args) {
  check_operands(args);
  if constexpr (kHasCudnn)
    if (try_cudnn(stream, args, &cudnn_attention_forward)) return;
  check_built_in_kernels_can(args);
  tiled_attention_forward(stream, args, block_shared_bytes());
}

void attention_backward(const CudaStream& stream, const AttentionBackwardArgs& args) {
  check_operands(args);
  check_gradients(args);
  if constexpr (kHasCudnn)
    if (try_cudnn(stream, args, &cudnn_attention_backward)) return;
  check_built_in_kernels_can(args);
  tiled_attention_backward(stream, args, block_shared_bytes());
}

}  // namespace megatron::kernels
