// Checkpoints of Megatron's --ckpt-format torch: a file for each tensor- and pipeline-parallel rank, with the names and
// shards of its modules.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/checkpoint_metadata.h"
#include "megatron/dist_checkpointing/torch_file.h"

namespace megatron {

/// Shows such a directory as the tensors of the whole model, under the names of distributed checkpoints, so that any
/// layout loads it: weights, and main parameters and moments of the optimizer from `model_optim_rng.pt`, or of the
/// distributed optimizer from `distrib_optim.pt`. Objects and indices of all files are in memory, no tensors. Nothing
/// in the files is run.
class LegacyCheckpoint {
 public:
  /// Says whether a directory has files of this form.
  static bool is_in(const FileSystem& files, const std::string& directory);
  /// The file of the first rank, whose common state (args, iteration, groups of the optimizer) stands for all.
  static std::string first_file(const FileSystem& files, const std::string& directory);

  /// @throw CheckpointError if files are missing, damaged or do not fit each other. @throw NotSupported for models
  /// before Megatron Core, and for expert tensor parallelism of another size than tensor parallelism.
  LegacyCheckpoint(const FileSystem& files, const std::string& directory);

  /// Each chunk names the file that it is in; it has no offset of its own there.
  const CheckpointMetadata& metadata() const { return metadata_; }
  /// Copies a box of one chunk to host memory. @param box  within the chunk. @param strides  in elements.
  void read_box(std::string_view key, size_t chunk, const Box& box, std::byte* destination, const Shape& strides,
                bool verify) const;
  /// Why the optimizer's tensors cannot be found in the files; empty if they can, or there are none.
  const std::string& optimizer_problem() const { return optimizer_problem_; }
  /// @return what is wrong with the files, one line each.
  std::vector<std::string> verify() const;

 private:
  /// The elements of a chunk: a tensor within one of a file.
  struct Source {
    std::shared_ptr<const TorchFile> file;
    TorchTensor tensor;
  };
  friend class LegacyAssembly;

  CheckpointMetadata metadata_;
  std::string optimizer_problem_;
  std::map<std::string, std::vector<Source>, std::less<>> sources_;  // of the chunks, in their order
  std::vector<std::shared_ptr<const TorchFile>> files_;
};

}  // namespace megatron
