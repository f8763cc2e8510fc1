// The layers of each virtual stage of a pipeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/mistakes.h"
#include "megatron/core/shard_spec.h"
#include "megatron/pipeline_parallel/stage_placement.h"

namespace megatron {

/// The parts of one virtual stage. It may be empty: then it passes its input on.
struct StageLayers {
  bool has_embedding = false;
  int64_t first_layer = 0;  ///< number of its first decoder layer in the whole model, from 0
  int64_t num_layers = 0;   ///< decoder layers
  int64_t num_mtp_layers = 0;
  bool has_head = false;  ///< final norm, output layer and loss
  bool operator==(const StageLayers&) const = default;
};

/// One tensor of which several pipeline ranks hold a copy. The sum of their gradients is that of the tensor; the first
/// holder counts it and stores it.
struct TieGroup {
  std::string name;
  std::vector<int> holders;  ///< pipeline ranks, in ascending order

  /// The copy of a pipeline rank; one that is tied to no other where the rank holds none.
  TiedCopy copy_of(int rank) const;
  bool operator==(const TieGroup&) const = default;
};

/// The whole model cut into virtual stages. The embedding is on the first one, the head on the last, the layers in
/// order between them. A value.
/// Example: 7 layers on 2 ranks with 2 chunks, the loss counted as a layer:
///   const PipelineLayout layout = split_layers({.num_layers = 7, .placement = {2, 2}, .account_for_loss = true});
///   layout.at({.rank = 1, .chunk = 0}).num_layers;  // 2
class PipelineLayout {
 public:
  /// @param num_layers  decoder layers of each virtual stage, in order of stages.
  /// @throw ConfigError if their number is not that of the stages, or one is negative.
  PipelineLayout(const StagePlacement& placement, const std::vector<int64_t>& num_layers);

  const StagePlacement& placement() const { return placement_; }
  /// By virtual stage.
  const std::vector<StageLayers>& stages() const { return stages_; }
  const StageLayers& at(StagePlace place) const { return stages_[static_cast<size_t>(placement_.stage_of(place))]; }
  int64_t num_layers() const;
  /// For layers that predict further tokens, which only a layout string can place.
  void set_mtp_layers(int stage, int64_t num_mtp_layers) {
    stages_.at(static_cast<size_t>(stage)).num_mtp_layers = num_mtp_layers;
  }
  /// Holders of the word embeddings: the stage that embeds tokens, those that predict further tokens, which embed them
  /// again, and with `shares_output_weights` the one with the head.
  TieGroup word_embeddings(bool shares_output_weights) const;
  bool operator==(const PipelineLayout&) const = default;

 private:
  StagePlacement placement_;
  std::vector<StageLayers> stages_;
};

/// Megatron-LM's flags: --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers,
/// --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split.
struct LayerSplit {
  int64_t num_layers = 0;
  StagePlacement placement;
  std::optional<int64_t> first_rank_layers, last_rank_layers;  ///< of all its chunks; the rest is shared evenly
  bool account_for_embedding = false;  ///< counts as a layer: the first stage builds one layer fewer
  bool account_for_loss = false;       ///< counts as a layer: the last stage builds one layer fewer
  /// For messages: the given flags that set the number of chunks of a rank. A layout string replaces them too.
  std::vector<std::string_view> chunk_flags = {};
  bool num_layers_sets_chunks = false;  ///< for messages: another number of layers would change the placement
};

/// Equal stages, except for the settings of LayerSplit. Megatron Core: transformer_block.py, get_num_layers_to_build.
/// @throw ConfigError listing all mistakes, with the nearest number of layers if it does not divide.
PipelineLayout split_layers(const LayerSplit& split);
/// Like split_layers, but adds to `mistakes`. Following all of their advice gives an accepted layout. @return nothing
/// if there are mistakes.
std::optional<PipelineLayout> split_layers(const LayerSplit& split, Mistakes& mistakes);
/// For a split that may not work: its layers over the same stages, with its first and last rank's where they fit.
PipelineLayout nearest_layout(const LayerSplit& split);
/// "leave out FLAGS and give --pipeline-model-parallel-layout 'ET'": flags that get the nearest layout.
std::string layout_advice(const LayerSplit& split);

/// Time of one micro-batch in the parts of a model, in any unit.
struct LayerCosts {
  double embedding = 0;
  double layer = 1;  ///< one decoder layer
  double head = 0;   ///< final norm, output layer and loss
};

/// A layout for any number of layers: the largest sum of costs of a rank, which bounds the time of a long step, is the
/// least possible; each rank's chunks are as even as they can be. Of equal choices, later stages take the odd layers:
/// early ranks keep more activations.
/// @throw ConfigError if a cost is negative or the layers are free.
PipelineLayout balanced_layout(int64_t num_layers, const StagePlacement& placement, const LayerCosts& costs);

}  // namespace megatron
