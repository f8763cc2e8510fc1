#include "megatron/models/gpt/gpt_family.h"

#include "megatron/models/gpt/gpt_model.h"

namespace megatron {
namespace {

/// A batch of samples that are one document each, of token 0 alone.
OwnedBatch blank_gpt_batch(int64_t num_samples, int64_t sequence_length, const FamilyOptions&) {
  const auto num_tokens = static_cast<size_t>(num_samples * sequence_length);
  const std::vector<int64_t> zeros(num_tokens);
  return {.num_samples = num_samples,
          .sequence_length = sequence_length,
          .num_valid_tokens = num_samples * sequence_length,
          .tensors = {{std::string(gpt_batch::kTokens), zeros},
                      {std::string(gpt_batch::kLabels), zeros},
                      {std::string(gpt_batch::kLossMask), std::vector<float>(num_tokens, 1.0F)}},
          .sequences = {{.name = std::string(gpt_batch::kTokens),
                         .length = sequence_length,
                         .cuts = {},
                         .cut_ends = std::vector<int64_t>(static_cast<size_t>(num_samples)),
                         .position_ids = zeros}}};
}

}  // namespace

ModelFamily gpt_family() {
  ModelFamily family = gpt_family(gpt_layer_spec());
  family.has_measured_layers = true;
  return family;
}

ModelFamily gpt_family(const LayerSpec& layer_spec) {
  return {.name = "gpt",
          .description = "a GPT",
          .make_model = [layer_spec](
                            const ModuleContext& context, const PipelineLayout& layout,
                            const FamilyOptions&) { return std::make_unique<GptModel>(context, layout, layer_spec); },
          .blank_batch = blank_gpt_batch};
}

}  // namespace megatron
