// The kernels of a training step, at its shapes, without recompute, communication, and kernels of negligible time.
#pragma once

#include <vector>

#include "megatron/bench/kernel_case.h"
#include "megatron/bench/step_shapes.h"

namespace megatron {

/// A matmul of a linear layer: forward c[m, n] = a[m, k] b[n, k]^T, gradient of a, gradient of b added to the
/// present value, or written (the first micro-batch of a step writes).
struct LinearShape {
  std::string name;
  int64_t m = 0, n = 0, k = 0;
  bool has_bias = false;
  bool accumulates = true;
};
/// Forward, dgrad and wgrad, one call each.
std::vector<KernelCase> linear_cases(const LinearShape& shape, DType dtype, DType gradient_dtype);

/// The linear layers of the stage; the output layer in the chunks of lm_head_loss.
std::vector<KernelCase> product_cases(const StepShapes& shapes, const StageParts& stage);
/// The linear layers of routers and experts, with balanced experts: each grouped matmul serves all experts of the rank.
std::vector<KernelCase> expert_product_cases(const StepShapes& shapes, const StageParts& stage);
/// For comparison, not called in a step: a matmul for each expert instead of one grouped matmul.
std::vector<KernelCase> expert_loop_cases(const StepShapes& shapes, const StageParts& stage);
/// Counts the operations of unmasked pairs of a query and a key: 4 d a pair and head forward, 10 d backward,
/// which recomputes the scores. Ranks that share a sequence have equal parts of its pairs: each counts its part of a
/// call with the whole sequence, which computes at least as fast as the parts.
std::vector<KernelCase> attention_cases(const StepShapes& shapes, const StageParts& stage);
/// Norms, activations, positions, residuals, embedding and loss, and the optimizer.
/// @param num_optimized  parameters whose states this rank updates
std::vector<KernelCase> memory_cases(const StepShapes& shapes, const StageParts& stage, int64_t num_optimized);

// The parts of memory_cases(), one file each.
void add_norm_cases(const StepShapes& shapes, const StageParts& stage, std::vector<KernelCase>& cases);
void add_activation_cases(const StepShapes& shapes, const StageParts& stage, std::vector<KernelCase>& cases);
void add_expert_cases(const StepShapes& shapes, const StageParts& stage, std::vector<KernelCase>& cases);
void add_residual_cases(const StepShapes& shapes, const StageParts& stage, std::vector<KernelCase>& cases);
void add_position_cases(const StepShapes& shapes, const StageParts& stage, std::vector<KernelCase>& cases);
void add_vocabulary_cases(const StepShapes& shapes, const StageParts& stage, std::vector<KernelCase>& cases);
void add_optimizer_cases(const StepShapes& shapes, int64_t num_optimized, std::vector<KernelCase>& cases);
/// Adds it if the step calls it.
void add_memory_case(KernelCase kernel, std::vector<KernelCase>& cases);

}  // namespace megatron
