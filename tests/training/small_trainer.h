// Small training runs: command lines, batches, and what to compare.
#pragma once

#include <string>
#include <vector>

#include "megatron/datasets/micro_batch.h"
#include "megatron/training/trainer.h"

namespace megatron::testing {

/// Command lines, to which `extra` is added.
/// 3 layers, h = 32, 4 heads, s = 16, 61 tokens padded to 64; 4 samples a step in micro-batches of 2. Learned
/// positions, LayerNorm, biases, GELU, tied embeddings; dropout 0.1.
std::string gpt2_like(const std::string& extra = "");
/// The same size with RoPE, RMSNorm, no biases, SwiGLU, 2 query groups, embeddings of their own; dropout 0.1.
std::string llama_like(const std::string& extra = "");

/// A command line, words separated by spaces, parsed, with a vocabulary of 61. A later word wins over an earlier one.
PretrainConfig small_config(const std::string& line, int num_ranks = 1);

/// The folder of checkpoints of Megatron-LM core_v0.19.1 and Megatron Core 0.16.1, in bf16. Each has a case.json.
std::string golden_checkpoints();
/// A command line that loads one of them, such as "lm019/llama_tp2", with its sizes and 4 samples a step.
std::string golden_words(const std::string& folder);
/// The iteration that it was saved at.
int64_t golden_iteration(const std::string& folder);
/// Adam's steps before that, whatever the iteration: make_megatron.py takes two.
inline constexpr int64_t kGoldenAdamSteps = 2;

/// A data-parallel rank's share of the global batch of a step, cut into micro-batches as the config says. A sample
/// depends on its number and the vocabulary alone: an arithmetic sequence that begins with any token, which a model can
/// learn, with a tenth of its positions masked. @param order  of the global batch's samples; none: as they are
/// numbered.
std::vector<MicroBatch<int64_t>> batches_of(const PretrainConfig& config, int64_t step, int64_t dp_rank = 0,
                                            const std::vector<int64_t>& order = {});
/// One micro-batch of one sample with these tokens: documents begin at 0 and at each cut.
MicroBatch<int64_t> sample_of(const std::vector<int64_t>& tokens_and_last_label, const std::vector<int32_t>& cuts);

/// Steps [begin, end) of the trainer's own batches. @return mean losses.
std::vector<double> train(Trainer& trainer, int64_t begin, int64_t end);

/// All weights, gradients, or all that the optimizer keeps, in order of registration. Equal vectors are equal bits, for
/// values that are not NaN.
std::vector<double> weights_of(Trainer& trainer);
std::vector<double> gradients_of(Trainer& trainer);
std::vector<double> optimizer_state_of(Trainer& trainer);

}  // namespace megatron::testing
