#include "megatron/transformer/layer_plan.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {
namespace {

template <class Enum>
std::string_view name_of(Enum value) {
  for (const auto& [enumerator, name] : names_of_enum(Enum{}))
    if (enumerator == value) return name;
  throw InternalError("[LayerPlan] a kind of layer without a name");
}

bool depends_on_layer(const TransformerConfig& config) {
  return !config.layer_kinds.empty() || (config.moe && config.moe->layer_freq.interval != 1);
}

}  // namespace

LayerKind layer_kind(const TransformerConfig& config, int64_t layer_number) {
  if (!config.layer_kinds.empty()) return config.layer_kinds.at(static_cast<size_t>(layer_number - 1));
  const bool has_experts = config.moe && config.moe->has_experts(layer_number);
  return {.mixer = config.mla ? Mixer::kLatentAttention : Mixer::kSelfAttention,
          .feed_forward = has_experts ? FeedForward::kExperts : FeedForward::kDense};
}

void require_can_build(const LayerKind& kind) {
  const bool has_mixer =
      kind.mixer == Mixer::kSelfAttention || kind.mixer == Mixer::kLatentAttention || kind.mixer == Mixer::kNone;
  require<NotSupported>(has_mixer,
                        "[LayerPlan] a layer has {} and {}. This version builds layers of self attention or latent "
                        "attention and a feed-forward, dense or of experts, or of one of them. Change the kinds of "
                        "layers of the model.",
                        name_of(kind.mixer), name_of(kind.feed_forward));
}

LayerPlan::LayerPlan(const TransformerConfig& config) : stacks_layers_(!depends_on_layer(config)) {
  if (stacks_layers_)
    append(layer_kind(config, 1), config.num_layers);
  else
    for (int64_t number = 1; number <= config.num_layers; ++number) append(layer_kind(config, number), 1);
}

void LayerPlan::append(const LayerKind& kind, int64_t num_layers) {
  if (num_layers <= 0) return;
  if (runs_.empty() || runs_.back().kind != kind) runs_.push_back({kind, 0});
  runs_.back().num_layers += num_layers;
}

int64_t LayerPlan::num_layers() const {
  int64_t count = 0;
  for (const Run& run : runs_) count += run.num_layers;
  return count;
}

const LayerKind& LayerPlan::at(int64_t layer_number) const {
  int64_t end = 0;
  for (const Run& run : runs_)
    if (layer_number > 0 && layer_number <= (end += run.num_layers)) return run.kind;
  throw InternalError(fmt::format("[LayerPlan] layer {} of {}; layers are counted from 1.", layer_number, end));
}

int64_t LayerPlan::count(Mixer mixer) const {
  int64_t count = 0;
  for (const Run& run : runs_) count += run.kind.mixer == mixer ? run.num_layers : 0;
  return count;
}

int64_t LayerPlan::count(FeedForward feed_forward) const {
  int64_t count = 0;
  for (const Run& run : runs_) count += run.kind.feed_forward == feed_forward ? run.num_layers : 0;
  return count;
}

int64_t LayerPlan::num_residual_blocks() const {
  return 2 * num_layers() - count(Mixer::kNone) - count(FeedForward::kNone);
}

LayerPlan LayerPlan::part(int64_t first_layer, int64_t num_layers) const {
  LayerPlan part(stacks_layers_);
  const int64_t end = first_layer + num_layers;
  int64_t run_begin = 0;
  for (const Run& run : runs_) {
    const int64_t run_end = run_begin + run.num_layers;
    part.append(run.kind, std::min(end, run_end) - std::max(first_layer, run_begin));
    run_begin = run_end;
  }
  return part;
}

}  // namespace megatron
