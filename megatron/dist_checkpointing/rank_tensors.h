// The tensors that one rank of Megatron holds of a model, in the order in which its modules register them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/core/box.h"
#include "megatron/dist_checkpointing/checkpoint_metadata.h"
#include "megatron/dist_checkpointing/pickle/pickle_object.h"

namespace megatron {

/// How a run of Megatron divides a model over its ranks.
struct ModelDivision {
  int64_t tensor = 1, pipeline = 1, chunks = 1, expert = 1, expert_tensor = 1;  ///< sizes; chunks: of each stage
  bool has_local_layers = false;                                                ///< modules of --transformer-impl local
  bool has_grouped_experts = false;                                             ///< --moe-grouped-gemm
  bool ties_embeddings = true;

  /// Reads the stored arguments of a run. They do not give the number of chunks, which stays 1.
  static ModelDivision of(const pickle::Object& arguments);
  /// Says whether experts have ranks, and so an optimizer, of their own.
  bool divides_experts() const { return expert > 1 || expert_tensor != tensor; }
  bool has_one_stage() const { return pipeline * chunks == 1; }
};

/// A rank's numbers among those that hold different parts of a stage.
struct StageRank {
  int64_t tensor = 0, expert = 0, expert_tensor = 0;
};

/// The part of a model that a stage holds.
struct StagePart {
  int64_t first_layer = 0, num_layers = 0;
  bool has_embedding = true, has_head = true;
};

struct RankTensor {
  /// A box of the whole model's tensor whose elements follow each other in the rank's tensor.
  struct Part {
    int64_t first = 0;  ///< of its elements, in the flattened tensor of the rank
    Box whole;
  };

  std::string key;                       ///< of the whole model's tensor
  std::string name;                      ///< the key, of layers without their prefix and number
  int num_leading = 0;                   ///< axes of the whole model's tensor that count layers and experts
  std::optional<int64_t> layer, expert;  ///< of the whole model
  int64_t num_elements = 0;              ///< of the rank's tensor
  std::vector<Part> parts;
  bool is_copy = false;              ///< an earlier rank or stage has it too
  bool is_shared_embedding = false;  ///< word embeddings that stages hold copies of
};

/// The wanted part of a rank's tensors: what an optimizer updates, in its order of registration, or all of them, where
/// the modules of multi-token prediction are on the last stage and buffers have any place.
enum class RankContents { kParameters, kAll };

/// @param model  tensors of the whole model, or at least of the stage, by the keys of distributed checkpoints.
/// @throw CheckpointError if a tensor cannot be cut so. @throw NotSupported of parameters, for multi-token prediction
/// on several stages or with experts.
std::vector<RankTensor> tensors_of_rank(const std::map<std::string, GlobalTensor, std::less<>>& model,
                                        const ModelDivision& division, const StagePart& part, const StageRank& rank,
                                        RankContents contents);

/// The number of layers of a model with these tensors.
int64_t num_layers_of(const std::map<std::string, GlobalTensor, std::less<>>& model);

}  // namespace megatron
