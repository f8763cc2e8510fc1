// Writes Megatron's form torch: a folder for each rank of the model.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/telemetry/progress.h"
#include "megatron/training/checkpoint/converted_state.h"
#include "megatron/training/checkpoint/target_layout.h"

namespace megatron {

/// The files of ranks, made from a checkpoint of any form. Tensors are read a piece at a time.
class LegacyWriter {
 public:
  /// Ranks that have a folder of their own.
  struct Rank {
    int64_t tensor = 0, stage = 0, expert = 0;
  };

  /// @param reader, layout  must outlive the object. @param on_bytes  told how many more bytes have been read.
  /// @throw NotSupported for what the form cannot hold: multi-token prediction on several stages, another size of
  /// expert tensor than of tensor parallelism.
  LegacyWriter(const CheckpointReader& reader, const TargetLayout& layout, std::function<void(int64_t)> on_bytes);
  LegacyWriter(const LegacyWriter&) = delete;
  LegacyWriter& operator=(const LegacyWriter&) = delete;

  std::vector<Rank> ranks() const;
  /// "mp_rank_00", with the number of the pipeline stage and of the expert rank where there are several.
  std::string folder_of(const Rank& rank) const;
  /// Bytes of a rank's tensors.
  int64_t tensor_bytes(const Rank& rank) const;
  /// Writes and syncs the rank's folder in that of a checkpoint.
  void write(FileSystem& files, const std::string& directory, const Rank& rank) const;

 private:
  using Chunks = std::vector<std::vector<RankTensor>>;
  Chunks chunks_of(const Rank& rank, RankContents contents) const;
  ElementType type_of(const std::string& key) const { return reader_.whole_tensors().tensors.find(key)->second.type; }
  StageRank stage_rank(const Rank& rank) const { return {rank.tensor, rank.expert, rank.tensor}; }
  bool is_chained() const { return layout_.has_experts && layout_.division.divides_experts(); }
  std::string module_name(const RankTensor& tensor, const StagePart& part) const;
  std::vector<std::string> extra_states(const std::vector<std::string>& names) const;
  pickle::Object& add_tensor(TorchObject& object, const std::string& key, const RankTensor& tensor) const;
  pickle::Object& make_model(TorchObject& object, const std::vector<RankTensor>& tensors, const StagePart& part) const;
  pickle::Object& make_optimizer(TorchObject& object, const Chunks& chunks) const;
  void add_states(TorchObject& object, const StoredOptimizer::Legacy& stored, const std::vector<const RankTensor*>& all,
                  bool of_experts) const;
  pickle::Object& make_buffers(TorchObject& object, const Chunks& chunks, const Rank& rank, bool of_experts) const;
  TorchObject model_file(const Rank& rank) const;
  TorchObject optimizer_file(const Rank& rank) const;

  const CheckpointReader& reader_;
  const TargetLayout& layout_;
  std::function<void(int64_t)> on_bytes_;
  OptimizerForm form_;
  std::optional<StoredOptimizer> optimizer_;
  std::map<std::string, GlobalTensor, std::less<>> model_;
  std::map<std::string, std::vector<std::string>> states_;
  bool has_generators_ = false;
};

/// Writes a checkpoint of any form as one of the form torch, with its optimizer.
/// @param save  folder of checkpoints, new or empty. @return the layout
/// @throw CheckpointError if it is not, or a tensor cannot be cut so. @throw NotSupported as LegacyWriter
TargetLayout convert_to_torch(FileSystem& files, const CheckpointReader& reader, const std::string& save,
                              const LayoutRequest& layout, Progress& progress);

}  // namespace megatron
