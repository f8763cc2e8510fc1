// `megatron bridge --verify`: whether a converted model computes the logits that another program has stored.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/evaluation.h"

namespace megatron {

/// Token ids and the logits of another program for them, of a safetensors file.
struct StoredLogits {
  std::string path;
  Sequences tokens;
  int64_t vocab_size = 0;
  std::vector<float> logits;  ///< [sequences, tokens, vocab_size]
};
/// Reads the tensors input_ids, int64 or int32 [sequences, tokens], and logits, fp32 [sequences, tokens, vocabulary].
/// @throw DataError if the file or a tensor is missing, or their shapes do not fit each other.
StoredLogits read_stored_logits(const FileSystem& files, const std::string& path);

/// The place where the model and the stored logits differ most.
struct LogitDifference {
  double largest = 0;  ///< absolute; infinity where one of them is not a number
  int64_t sequence = 0, position = 0, entry = 0;
  float computed = 0, stored = 0;  ///< there
};
/// Runs the model in fp32, whatever the type of its weights. @throw DataError if it has another vocabulary.
LogitDifference compare_logits(FileSystem& files, const CheckpointConfig& checkpoint, const StoredLogits& stored,
                               const EvaluationDevice& device, const ModelFamily& family);

}  // namespace megatron
