// Puts the tensors of the ranks' files together: the inside of LegacyCheckpoint.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/dist_checkpointing/bucket_slots.h"
#include "megatron/dist_checkpointing/legacy_checkpoint.h"
#include "megatron/dist_checkpointing/module_name.h"

namespace megatron {

/// Says whether Megatron's rule puts a parameter into a group of the optimizer.
/// @param name  as its module has it. @param shape  on the rank.
bool is_in_param_group(const pickle::Object& group, std::string_view name, const Shape& shape, bool is_expert);

class LegacyAssembly {
 public:
  static constexpr const char* kModelFile = "model_optim_rng.pt";
  static constexpr const char* kOptimizerFile = "distrib_optim.pt";

  LegacyAssembly(const FileSystem& files, std::string directory, LegacyCheckpoint& checkpoint);
  /// Fills the checkpoint's tables.
  void run();

 private:
  /// Numbers of ranks and of chunks of layers that each has.
  struct Layout {
    int64_t tensor = 1, pipeline = 1, expert = 1, chunks = 1;
    bool has_local_layers = false, ties_embeddings = false;
    std::optional<int64_t> bucket_limit;
  };
  struct RankFile {
    int64_t tensor = 0, pipeline = 0, expert = 0;
    std::string name;  // "mp_rank_00/model_optim_rng.pt"
    std::shared_ptr<const TorchFile> file;
  };
  /// A tensor of a rank's state dict, with what it is in the whole model.
  struct LocalTensor {
    ModuleName name;
    TorchTensor tensor;
    std::string key;
    Shape global_shape;
    struct Part {
      Shape local, global, sizes;  // offsets in the rank's tensor and in the whole one, and the sizes of both
    };
    std::vector<Part> parts;
    bool is_copy = false;  // another rank's file has it too
    bool is_expert = false;
    bool is_shared_embedding = false;
  };
  using Tensors = std::vector<LocalTensor>;  // of one rank and chunk, as its modules register them

  void read_layout(const pickle::Object& arguments);
  std::string rank_name(const RankFile& rank) const;
  RankFile open_rank(int64_t tensor, int64_t pipeline, int64_t expert) const;
  std::shared_ptr<const TorchFile> open(const std::string& name) const;
  Tensors read_chunk(const RankFile& rank, int64_t chunk) const;
  void count_layers();
  void locate(const RankFile& rank, int64_t chunk, Tensors& tensors) const;
  void locate_tensor(const RankFile& rank, const Tensors& tensors, int64_t first_layer, LocalTensor& tensor) const;
  void add_optimizer(const RankFile& rank, const std::vector<Tensors>& chunks);
  void add_weights(const RankFile& rank, const Tensors& tensors);
  void add_plain_optimizer(const RankFile& rank, const std::vector<Tensors>& chunks);
  void add_group(const RankFile& rank, const pickle::Object& optimizer, size_t group,
                 const std::vector<const LocalTensor*>& members, int64_t first);
  void add_distributed_optimizer(const RankFile& rank, const std::vector<Tensors>& chunks);
  void add_buffer(const std::string& file_name, const std::shared_ptr<const TorchFile>& file,
                  const pickle::Object& buffer, const std::vector<const LocalTensor*>& members);
  /// @param source  has the elements of the whole rank's tensor. @param first  the first of them in it.
  void add(const std::string& key, const LocalTensor& tensor, const std::string& file_name,
           const std::shared_ptr<const TorchFile>& file, const TorchTensor& source, int64_t first);

  const FileSystem& files_;
  std::string directory_;
  LegacyCheckpoint& checkpoint_;
  Layout layout_;
  std::vector<RankFile> ranks_;
  bool stacks_layers_ = true;          // layers of one name are one tensor
  std::vector<int64_t> first_layers_;  // by chunk * pipeline size + pipeline rank
  int64_t num_layers_ = 0;
};

}  // namespace megatron
