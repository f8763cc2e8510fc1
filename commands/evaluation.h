// A model with its weights on one device, for commands that compare what it computes or continue texts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/field.h"
#include "megatron/base/file_system.h"
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

/// The arguments of the model that --load or --load-hf names, with its tokenizer.
PretrainConfig config_to_evaluate(FileSystem& files, const CheckpointConfig& checkpoint);

/// The model that --load or --load-hf names, on one device of this process. Tensor-parallel ranks have a part each.
class EvaluatedModel {
 public:
  /// @param files  must outlive the model. @param network  of config_to_evaluate(), with the sequence_length to run.
  /// @param groups  single() for the whole model
  EvaluatedModel(FileSystem& files, const CheckpointConfig& checkpoint, const TransformerConfig& network,
                 const EvaluationDevice& device, const ModelFamily& family, ProcessGroupCollection groups);
  Evaluator& evaluator() { return evaluator_; }
  const Context& context() const { return ctx_; }
  const Model& model() const { return *model_; }

 private:
  TransformerConfig network_;
  Device device_;
  DeviceStepState step_;
  Context ctx_;
  ProcessGroupCollection groups_;
  std::unique_ptr<Model> model_;
  Evaluator evaluator_;
};

}  // namespace megatron
