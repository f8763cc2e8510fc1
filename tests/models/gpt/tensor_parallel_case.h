// One training step of a GPT on the ranks of a tensor-parallel group, and its result as that of one rank.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/models/gpt/gpt_model.h"
#include "megatron/pipeline_parallel/schedules/one_f_one_b.h"
#include "tests/testing/faulty_group.h"
#include "tests/testing/recorded_operations.h"

namespace megatron::testing {

struct TensorParallelCase {
  TransformerConfig config;
  int num_ranks = 1;
  bool sequence_parallel = false;
  int64_t s = 0, b = 2;
  int num_micro_batches = 2;
  std::vector<int64_t> tokens = {}, labels = {};  // [b, s] in place of random ones, without a mask
  bool has_documents = false;                     // sequences cut in two, with positions of their own
  WeightGradient weight_gradient = WeightGradient::kFused;
  SavePolicy save = SavePolicy::kKeep;
  DeviceKind device = DeviceKind::kCpu;
  std::optional<Fault> fault = {};  // of collective number `faulty`
  int64_t faulty = 0;
};

struct StepResult {
  double loss = 0;                                     // weighted sum over the tokens of the step
  std::map<std::string, std::vector<double>> weights;  // whole tensors
  std::map<std::string, std::vector<double>> gradients;
  bool replicas_agree = true;                           // bit for bit, wherever several ranks hold an element
  std::vector<Collective> forward, backward, finalize;  // of rank 0; the first two of one micro-batch
  int64_t num_collectives = 0;                          // of the step
  std::vector<Arena::Event> events;                     // of rank 0
  int64_t peak_bytes = 0;
};

/// Weights are functions of (name, element), tokens of (sample, position). Gradients are those of the sum over the
/// micro-batches divided by the tokens. @param whole_weights in place of those functions, if not empty.
StepResult run_step(const TensorParallelCase& c, const std::map<std::string, std::vector<double>>& whole_weights);

/// The allocations of rank `rank` of the case on a meta device, without the other ranks.
std::vector<Arena::Event> meta_events(TensorParallelCase c, int rank);

/// Logits [s, b, padded vocabulary] of the first batch on each rank: of all positions at once, or with key-value caches
/// `num_prompt` positions and then one after the other.
std::vector<std::vector<double>> run_logits(const TensorParallelCase& c, std::optional<int64_t> num_prompt);

/// A batch of the step: every fifth token is masked.
Batch step_batch(const Context& ctx, const TensorParallelCase& c, int micro_batch);

}  // namespace megatron::testing
