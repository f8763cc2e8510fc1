// The kind of each layer of a model, made once from the configuration. Whatever depends on the kinds of layers reads
// it: the layers themselves, counts of operations and parameters, estimates of memory, costs of pipeline stages, the
// names of tensors in checkpoints, and the kernels that `bench` measures.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/transformer/layer_kind.h"

namespace megatron {

struct TransformerConfig;

/// The kind of layer `layer_number`, from 1.
LayerKind layer_kind(const TransformerConfig& config, int64_t layer_number);

/// The one place that knows which kinds of layers this version can build.
/// @throw NotSupported for others.
void require_can_build(const LayerKind& kind);

/// The kinds of a run of layers.
/// Example:
///   const LayerPlan plan(config);
///   plan.at(4).feed_forward == FeedForward::kExperts;
///   plan.part(stage.first_layer, stage.num_layers).count(Mixer::kSelfAttention);
class LayerPlan {
 public:
  /// Neighbours of one kind.
  struct Run {
    LayerKind kind;
    int64_t num_layers = 0;
    bool operator==(const Run&) const = default;
  };

  /// @param config  valid
  explicit LayerPlan(const TransformerConfig& config);

  int64_t num_layers() const;
  /// @param layer_number from 1
  const LayerKind& at(int64_t layer_number) const;
  const std::vector<Run>& runs() const { return runs_; }
  int64_t count(Mixer mixer) const;
  int64_t count(FeedForward feed_forward) const;
  /// The number of norms and of residual connections: one for each mixer and each feed-forward.
  int64_t num_residual_blocks() const;
  /// Layers from `first_layer`, from 0.
  LayerPlan part(int64_t first_layer, int64_t num_layers) const;

  /// True if checkpoints hold the layers' tensors of one name as one tensor with a leading axis, as Megatron stores a
  /// model whose layers it regards as equal; otherwise names contain the layer's number. Megatron regards any list of
  /// kinds as unequal, even a list of equal kinds.
  bool stacks_layers() const { return stacks_layers_; }

 private:
  explicit LayerPlan(bool stacks_layers) : stacks_layers_(stacks_layers) {}
  void append(const LayerKind& kind, int64_t num_layers);

  std::vector<Run> runs_;
  bool stacks_layers_;
};

}  // namespace megatron
