// Settings of training: duration, batches, precision, and evaluation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

/// The choices of torch.set_float32_matmul_precision(). high: TF32 on a GPU.
enum class Float32MatmulPrecision { kHighest, kHigh };
constexpr auto names_of_enum(Float32MatmulPrecision) {
  return std::to_array<std::pair<Float32MatmulPrecision, std::string_view>>(
      {{Float32MatmulPrecision::kHighest, "highest"}, {Float32MatmulPrecision::kHigh, "high"}});
}

struct PrecisionConfig {
  bool fp16 = false;
  bool bf16 = false;
  bool fp64 = false;                                ///< ours: shows the equality of layouts without rounding noise
  bool accumulate_allreduce_grads_in_fp32 = false;  ///< resolved: on with bf16 unless grad_reduce_in_bf16
  bool grad_reduce_in_bf16 = false;
  bool fp16_lm_cross_entropy = false;
  Float32MatmulPrecision float32_matmul_precision = Float32MatmulPrecision::kHighest;  ///< ours

  bool takes_tf32() const { return float32_matmul_precision == Float32MatmulPrecision::kHigh; }
};

struct TrainingConfig {
  std::optional<int64_t> micro_batch_size;
  std::optional<int64_t> global_batch_size;  ///< none given: micro_batch_size * data_parallel_size
  bool decrease_batch_size_if_needed = false;
  std::optional<std::string> step_batch_size_schedule;  ///< "0:768 250B:1536", thresholds in tokens
  std::vector<int64_t> rampup_batch_size;               ///< start, increment, samples; empty: no ramp

  std::optional<int64_t> train_iters;
  std::optional<int64_t> train_samples;
  std::vector<int64_t> iterations_to_skip;
  std::optional<std::string> phase_transition_iterations;  ///< "1000,2000", see training_phases.h
  std::optional<int64_t> exit_interval;
  std::optional<int64_t> exit_duration_in_mins;
  bool exit_signal_handler = false;
  std::string exit_signal = "SIGTERM";

  int64_t seed = 1234;
  bool calculate_per_token_loss = true;  ///< sum over valid tokens / their global count; Megatron's default is false
  bool check_for_nan_in_loss_and_grad = true;
};

struct ValidationConfig {
  int64_t eval_iters = 100;
  std::optional<int64_t> eval_interval;  ///< none: no evaluation between steps
  std::optional<int64_t> start_eval_at_iter;
  std::optional<int64_t> eval_global_batch_size;
  std::optional<int64_t> eval_micro_batch_size;
  bool full_validation = false;
  bool multiple_validation_sets = false;
  std::vector<std::string> validation_set_names;
  bool skip_train = false;

  /// The whole set is evaluated whatever --eval-iters says.
  bool evaluates() const { return full_validation || eval_iters > 0; }
};

/// local: of each layer. full_iteration: forward and backward of all micro-batches of a step.
enum class CudaGraphImpl { kNone, kFullIteration };
constexpr auto names_of_enum(CudaGraphImpl) {
  return std::to_array<std::pair<CudaGraphImpl, std::string_view>>(
      {{CudaGraphImpl::kNone, "none"}, {CudaGraphImpl::kFullIteration, "full_iteration"}});
}

struct CudaGraphConfig {
  CudaGraphImpl impl = CudaGraphImpl::kNone;
  int64_t warmup_steps = 3;

  bool records() const { return impl != CudaGraphImpl::kNone; }
};

/// Settings of where the program runs. None is Megatron's, which leaves them to torchrun.
struct LaunchConfig {
  std::optional<int64_t> nproc_per_node;      ///< ranks that this process starts; none: one, or what a launcher says
  std::optional<int64_t> nnodes;              ///< hosts; above 1 only where a launcher has started the ranks
  std::optional<int64_t> num_threads;         ///< of each rank; none: cores / ranks
  std::optional<std::string> device;          ///< cpu, cuda; none: a GPU if one answers and can run this, else the CPU
  std::optional<std::string> matmul_choices;  ///< file of cuBLASLt's algorithms, or none; see matmul_choices_file.h
};

}  // namespace megatron
