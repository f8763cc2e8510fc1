// Between a trainer and its checkpoints on disk.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/message_log.h"
#include "megatron/dist_checkpointing/pickle_object.h"
#include "megatron/training/checkpoint_tokenizer.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// Saves and loads as the checkpoint flags say; the form on disk is Megatron's torch_dist. A save is complete or
/// absent: it becomes visible by one rename, when all ranks have written. What one layout of ranks saved, any other
/// loads. One for each rank; all ranks call the same.
class Checkpointer {
 public:
  /// @param files  must outlive the checkpointer. @param log  receives one line per save, load or warning.
  /// @param tokenizer  of the run, which checkpoints then carry; nothing: it is compared by type and size alone.
  Checkpointer(FileSystem& files, const PretrainConfig& config, MessageLog log,
               std::optional<TokenizerRecord> tokenizer = std::nullopt);

  /// Writes <save>/iter_<iteration>, removes what --save-retain-interval says, moves the tracker.
  /// @return on rank 0 the iterations of the checkpoints that were removed
  std::vector<int64_t> save(Trainer& trainer);
  /// Loads --load, or --pretrained-checkpoint where that is empty, into the trainer, with what --finetune and the
  /// --no-load flags leave out.
  /// @return whether a checkpoint was there: without --pretrained-checkpoint a new or empty --load is a first start.
  /// @throw CheckpointError if it is damaged, does not fit or was trained with another tokenizer, or its folder holds
  /// something else that would be
  ///        overwritten (CheckpointDirectory::latest); with --exit-on-missing-checkpoint also if there is none.
  bool load(Trainer& trainer);
  /// The arguments stored in the checkpoint that `config` names, as JSON: for --use-checkpoint-args.
  static std::string stored_arguments(FileSystem& files, const CheckpointConfig& config);

  /// The folder of the checkpoint that `config` names.
  static std::string stored_path(FileSystem& files, const CheckpointConfig& config);
  /// Loads the weights alone of the newest complete checkpoint below --load, or of iteration --ckpt-step.
  static void load_model(FileSystem& files, const CheckpointConfig& config, const Context& ctx, GptModel& model);

  std::optional<int64_t> last_saved_iteration() const { return last_saved_iteration_; }

 private:
  void take_progress(const pickle::Object& state, Trainer& trainer) const;
  bool takes_optimizer(const pickle::Object& state) const;

  FileSystem& files_;
  PretrainConfig config_;
  MessageLog log_;
  std::optional<TokenizerRecord> tokenizer_;
  std::optional<int64_t> last_saved_iteration_;
};

}  // namespace megatron
