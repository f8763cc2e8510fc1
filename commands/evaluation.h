// A model with its weights on one device, for commands that compare what it computes or continue texts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/field.h"
#include "megatron/base/file_system.h"
#include "megatron/comm/gpu_ranks.h"
#include "megatron/core/device_step_state.h"
#include "megatron/inference/evaluator.h"
#include "megatron/models/gpt/gpt_family.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

using Sequences = std::vector<std::vector<TokenId>>;

/// Rows of the tensor input_ids, int64 or int32 [sequences, tokens], of a safetensors file. @throw DataError
Sequences read_token_ids(const FileSystem& files, const std::string& path);
/// The number of tokens of the longest sequence.
int64_t longest(const Sequences& sequences);

/// --num-threads and --device.
struct EvaluationDevice {
  std::optional<int64_t> num_threads;
  std::optional<std::string> device;
};
void add_fields(FieldTable& table, EvaluationDevice& device);

/// The arguments of the model that --load or --load-hf names, with its tokenizer. @param family  that of the model
PretrainConfig config_to_evaluate(FileSystem& files, const CheckpointConfig& checkpoint, const ModelFamily& family);

/// The device of one rank, and its place among those that share the model.
struct EvaluationRank {
  DeviceKind device = DeviceKind::kCpu;
  int cuda_device = 0, num_threads = 1;
  ProcessGroupCollection groups = {};
  std::optional<PipelineLayout> stages = {};  // none: this rank has all layers
  GpuRanks* gpu_ranks = nullptr;              // null where ranks have no GPU each

  bool is_first() const { return groups.world.rank() == 0; }
};
/// A rank that has the whole model.
EvaluationRank single_rank(const EvaluationDevice& device, DType dtype);

/// The model that --load or --load-hf names, or a rank's part of it.
class EvaluatedModel {
 public:
  /// @param files  must outlive the model. @param network  of config_to_evaluate(), with the sequence_length to run.
  /// @param family  of the same configuration
  EvaluatedModel(FileSystem& files, const CheckpointConfig& checkpoint, const TransformerConfig& network,
                 const ModelFamily& family, const EvaluationRank& rank);
  Evaluator& evaluator() { return evaluator_; }
  const Context& context() const { return ctx_; }
  const Model& model() const { return *model_; }
  GpuRanks* gpu_ranks() const { return gpu_ranks_; }

 private:
  TransformerConfig network_;
  Device device_;
  DeviceStepState step_;
  Context ctx_;
  ProcessGroupCollection groups_;
  GpuRanks* gpu_ranks_;
  std::unique_ptr<Model> model_;
  Evaluator evaluator_;
};

}  // namespace megatron
