#include "megatron/bench/step_rates.h"

#include "megatron/training/config/schedules.h"
#include "megatron/training/planning/parameter_count.h"
#include "megatron/training/planning/theoretical_flops.h"
#include "megatron/transformer/layer_plan.h"

namespace megatron {

StepWork step_work_of(const PretrainConfig& config) {
  const TransformerConfig& model = config.transformer;
  const int64_t samples = microbatch_calculator_of(config).at(0).running_batch_size,
                s = config.model.seq_length.value();
  StepWork work{.tokens = static_cast<double>(samples * s), .num_ranks = config.parallel.world_size};
  work.megatron_operations = theoretical_flops(model, samples, s);
  const auto parameters = static_cast<double>(num_model_parameters(config));
  const auto attention = static_cast<double>(LayerPlan(model).count(Mixer::kSelfAttention) * model.num_attention_heads *
                                             model.kv_channels) *
                         static_cast<double>(s);
  work.six_n_operations = work.tokens * (6 * parameters + 12 * attention);
  return work;
}

StepRates rates_of(const StepWork& work, double seconds) {
  const double rank_seconds = seconds * static_cast<double>(work.num_ranks);
  return {.tokens_per_second = work.tokens / rank_seconds,
          .megatron_flops = work.megatron_operations / rank_seconds,
          .six_n_flops = work.six_n_operations / rank_seconds};
}

}  // namespace megatron
