// From a checkpoint to a folder of a Hugging Face model.
#pragma once

#include <optional>
#include <string>

#include "megatron/base/file_system.h"
#include "megatron/telemetry/progress.h"
#include "megatron/training/config/checkpoint_config.h"

namespace megatron {

struct ExportOptions {
  CheckpointConfig checkpoint;             ///< load and ckpt_step
  std::string directory;                   ///< a new or empty folder
  std::optional<std::string> config_from;  ///< folder whose config.json to take; none: what the checkpoint keeps
  std::optional<std::string> model_type;   ///< the family of a config.json that is made from the stored arguments
  /// The family to take where the stored arguments fit several; it does not replace a kept config.json.
  std::optional<std::string> preferred_type = {};
  int64_t max_shard_bytes = 5'000'000'000;
};

/// Writes safetensors files, config.json, and tokenizer and generation files as the checkpoint keeps them. The tensors
/// have the checkpoint's bits. In memory are the tensor that is written, those that ReadAhead reads, and a parameter
/// that several tensors share. Without `config_from` and a kept config.json, or with `model_type`, config.json is made
/// from the stored arguments.
/// @throw CheckpointError if the checkpoint is not of the model that config.json describes, or the folder is not empty.
/// @throw NotSupported if the stored arguments fit no config.json.
void export_hugging_face(FileSystem& files, const ExportOptions& options, Progress& progress);

struct RoundTrip {
  int64_t num_tensors = 0, bytes = 0;
};

/// Takes every tensor of a folder to Megatron's form and back, in memory, one at a time.
/// @throw CheckpointError naming the tensors that differ.
RoundTrip round_trip_hugging_face(const FileSystem& files, const std::string& directory, Progress& progress);

}  // namespace megatron
