// The ranks of a layout that does not run, as writers of a checkpoint.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/distributed/data_parallel_plan.h"
#include "megatron/training/checkpoint/target_layout.h"

namespace megatron {

/// Gives each rank what it would save. The tensors come from a stored checkpoint, a piece at a time, when the writers
/// write. Of the ranks that hold the same tensor the one with the fewest bytes takes it.
class TargetRanks {
 public:
  using Model = std::map<std::string, GlobalTensor, std::less<>>;
  /// @param reader, layout  must outlive the object. @param directory  exists when write() is called.
  /// @param on_bytes  told how many more bytes have been read.
  TargetRanks(FileSystem& files, std::string directory, Integrity integrity, const CheckpointReader& reader,
              const TargetLayout& layout, std::function<void(int64_t)> on_bytes);

  /// The weights, and with `with_optimizer` the states of the optimizer, as tensors of the whole model.
  /// @throw CheckpointError if a stored tensor has no place.
  void add_whole_tensors(bool with_optimizer);
  /// The states of the optimizer in flat buckets.
  /// @throw NotSupported if a parameter has no state.
  void add_buckets(const pickle::Object& arguments);
  /// @param rank  of the world
  CheckpointWriter& writer(int64_t rank) { return writers_[static_cast<size_t>(rank)]; }
  /// The first rank that holds a group's buckets, for the objects beside them.
  struct Group {
    std::string key;
    size_t optimizer = 0;  // in the chain
    int64_t rank = 0;
  };
  const std::vector<Group>& groups() const { return groups_; }

  int64_t estimated_bytes() const;
  int64_t tensor_bytes() const;
  /// Writes all files. @param hashes  receives those of the files.
  CheckpointMetadata write(FileHashes& hashes);

 private:
  /// Ranks that hold the same tensors of a stage.
  struct Holders {
    int64_t stage = 0;
    StageRank rank;
    bool of_experts = false;
    std::vector<int64_t> ranks;  // of the world
  };
  std::vector<Holders> holders() const;
  bool separates_experts() const { return layout_.has_experts && layout_.division.divides_experts(); }
  void add(const Holders& holders, const std::string& key, const GlobalTensor& whole, const Box& box,
           const std::string& source_key, const Box& source_box);
  void add_group(const Holders& holders, const pickle::Object& arguments);
  void add_buffer(const Holders& holders, const std::string& group, size_t number, const BufferPlan& buffer,
                  const std::vector<RankTensor>& tensors);
  int64_t next_of(const Holders& holders, int64_t bytes);

  const CheckpointReader& reader_;
  const TargetLayout& layout_;
  std::function<void(int64_t)> on_bytes_;
  Model model_;                                             // without chunks
  std::map<std::string, std::vector<std::string>> states_;  // of the optimizer, by the key of the parameter
  std::deque<CheckpointWriter> writers_;
  std::vector<int64_t> bytes_;  // of each rank
  std::vector<Group> groups_;
};

/// The tensors of a checkpoint without those of the optimizer.
TargetRanks::Model model_tensors(const CheckpointMetadata& metadata);
/// The names of the optimizer's states of each parameter, by its key.
std::map<std::string, std::vector<std::string>> optimizer_states_of(const CheckpointReader& reader);

/// The buckets of a chunk of a rank's parameters, as Megatron makes them for the stored arguments of a run.
/// @param chunks  RankContents::kParameters of each chunk of the rank
DataParallelPlan bucket_plan(const std::vector<std::vector<RankTensor>>& chunks, size_t chunk, int64_t stage,
                             const TargetLayout& layout, const TargetRanks::Model& model,
                             const pickle::Object& arguments);

}  // namespace megatron
