// Between a trainer and its checkpoints on disk.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/message_log.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/pickle/pickle_object.h"
#include "megatron/training/checkpoint/checkpoint_saver.h"
#include "megatron/training/checkpoint/checkpoint_tokenizer.h"
#include "megatron/training/checkpoint/local_checkpoints.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// Saves and loads as the checkpoint flags say; the form on disk is Megatron's torch_dist or torch. A save is complete
/// or absent: it becomes visible by one rename, when all ranks have written. What one layout of ranks saved, any other
/// loads. One for each rank; all ranks call the same.
class Checkpointer {
 public:
  /// @param files  must outlive the checkpointer. @param log  receives one line per save, load or warning.
  /// @param tokenizer  of the run, which checkpoints then carry; nothing: it is compared by type and size alone.
  /// @param require_ownership  throws if this run may no longer write to the folders of checkpoints. It is called
  /// before
  ///        a save begins and before one becomes visible, but not in the steps while files are being written.
  Checkpointer(FileSystem& files, const PretrainConfig& config, MessageLog log,
               std::optional<TokenizerRecord> tokenizer = std::nullopt, std::function<void()> require_ownership = {});

  /// Writes <save>/iter_<iteration>, removes what --save-retain-interval says, moves the tracker. With --async-save
  /// that is left to finish_save(), and the trainer, which must outlive the checkpointer, may go on at once.
  /// @return the checkpoints that this call has committed, an earlier asynchronous one among them.
  std::vector<SavedCheckpoint> save(Trainer& trainer);
  /// With --non-persistent-ckpt-type global the same in its folder, where the newest alone stays. With local each rank
  /// stores its own state in its own folder, always synchronously.
  std::vector<SavedCheckpoint> save_non_persistent(Trainer& trainer);
  /// See CheckpointSaver::finish. Call it between iterations, and with Wait::kYes at the end.
  std::optional<SavedCheckpoint> finish_save(const ProcessGroup& world, Wait wait);
  bool has_pending_save() const { return saver_.has_pending(); }
  /// Takes the host memory that --async-save needs, before the first step.
  /// @param available  host_memory_for_arenas() of this rank. @throw OutOfMemory
  void reserve_staging(Trainer& trainer, int64_t available);
  /// Loads --load, or a newer one that is not persistent, or --pretrained-checkpoint or --load-hf where that is empty,
  /// into the trainer, with what --finetune and the --no-load flags leave out.
  /// @return whether weights were there: without --pretrained-checkpoint and --load-hf a new or empty --load is a first
  /// start.
  /// @throw CheckpointError if it is damaged, does not fit or was trained with another tokenizer, or its folder holds
  /// something else that would be
  ///        overwritten (CheckpointDirectory::latest); with --exit-on-missing-checkpoint also if there is none.
  bool load(Trainer& trainer);
  /// The arguments of the checkpoint or the Hugging Face model that `config` names, as JSON: for --use-checkpoint-args.
  static std::string stored_arguments(FileSystem& files, const CheckpointConfig& config);

  /// The iteration that load() will take from --load; 0 where it begins at the start.
  static int64_t iteration_to_load(FileSystem& files, const CheckpointConfig& config);

  /// The folder of the checkpoint that `config` names.
  static std::string stored_path(FileSystem& files, const CheckpointConfig& config);
  /// Loads the weights alone of the newest complete checkpoint below --load, or of iteration --ckpt-step, or of
  /// --load-hf.
  static void load_model(FileSystem& files, const CheckpointConfig& config, const Context& ctx, Model& model);

  /// The iteration that save() was last called at; save_non_persistent() does not count.
  std::optional<int64_t> last_saved_iteration() const { return last_saved_iteration_; }

 private:
  SaveTarget target_of(const std::string& root, const Retention& retention, Trainer& trainer);
  CheckpointSaver::Fill share_of(Trainer& trainer) const;
  /// The checkpoint that load() reads; no path if there is none.
  struct Source {
    CheckpointDirectory::Found found;
    bool is_finetune = false;
    bool is_local = false;  ///< it holds the state of this rank alone
  };
  Source find_source(Trainer& trainer);
  /// Takes the configuration of the model from a checkpoint, or from --load-hf if there is none, so that the
  /// checkpoints of this run keep it.
  void read_hugging_face_files(const std::string& checkpoint);
  bool load_hugging_face(Trainer& trainer) const;
  /// The weights of a mixture of experts from those of a dense model at `path`; nothing else.
  bool upcycle(const CheckpointReader& dense, const std::string& path, Trainer& trainer) const;
  void read_tensors(const CheckpointReader& reader, bool with_optimizer, Trainer& trainer) const;
  void take_progress(const pickle::Object& state, Trainer& trainer) const;
  bool takes_optimizer(const pickle::Object& state) const;
  /// Says whether local checkpoints are considered: they hold the whole state that a run continues from, so flags that
  /// take a part of it, or another iteration, leave them out.
  bool takes_local() const;

  FileSystem& files_;
  PretrainConfig config_;
  MessageLog log_;
  std::optional<TokenizerRecord> tokenizer_;
  std::map<std::string, std::string> hugging_face_files_;  // of the model that the run began with
  CheckpointSaver saver_;
  std::optional<LocalCheckpoints> local_;
  std::optional<int64_t> last_saved_iteration_;
};

}  // namespace megatron
