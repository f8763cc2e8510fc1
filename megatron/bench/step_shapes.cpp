#include "megatron/bench/step_shapes.h"

#include <algorithm>

#include "megatron/training/config/layouts.h"
#include "megatron/training/config/schedules.h"
#include "megatron/transformer/layer_plan.h"

namespace megatron {
namespace {

int64_t norm_parameters(const TransformerConfig& model, int64_t size) {
  return model.normalization == Normalization::kLayerNorm ? 2 * size : size;
}

int64_t attention_parameters(const StepShapes& z) {
  const bool has_bias = z.model.add_bias_linear;
  int64_t count = norm_parameters(z.model, z.h) + z.qkv_columns() * (z.h + (has_bias || z.model.add_qkv_bias)) +
                  z.n * z.d * z.h + z.h * has_bias;
  if (z.model.qk_layernorm) count += 2 * norm_parameters(z.model, z.d);
  if (z.model.softmax_type == SoftmaxType::kLearnable) count += z.n;
  return count;
}

int64_t feed_forward_parameters(const StepShapes& z) {
  const bool has_bias = z.model.add_bias_linear;
  return norm_parameters(z.model, z.h) + z.fc1_columns() * (z.h + has_bias) + z.f * z.h + z.h * has_bias;
}

int64_t expert_parameters(const StepShapes& z) {
  return z.experts.num * (z.model.gated_linear_unit ? 3 : 2) * z.experts.f * z.h;
}

int64_t router_parameters(const StepShapes& z) {
  return norm_parameters(z.model, z.h) + z.model.moe->num_experts * z.h;
}

ExpertShapes expert_shapes_of(const PretrainConfig& config, int64_t rows) {
  if (!config.transformer.moe) return {};
  const MoeConfig& moe = *config.transformer.moe;
  const ParallelConfig& parallel = config.parallel;
  const int64_t etp = parallel.expert_tensor_parallel_size.value_or(parallel.tensor_model_parallel_size);
  return {.num = moe.num_experts / parallel.expert_model_parallel_size,
          .topk = moe.topk.topk,
          .f = moe.ffn_hidden_size / etp,
          .rows = rows * etp * moe.topk.topk};
}

void require_measurable(const TransformerConfig& model) {
  const MoeConfig& moe = model.moe.value();
  const auto reject = [](bool is_there, std::string_view what, std::string_view fix) {
    require<NotSupported>(!is_there, "[bench] the kernels of {} are not measured yet. {}.", what, fix);
  };
  reject(moe.shared_expert_intermediate_size > 0, "shared experts", "Leave out --moe-shared-expert-intermediate-size");
  reject(moe.latent_size.has_value(), "experts on latent states", "Leave out --moe-latent-size");
  reject(moe.expert_capacity_factor.has_value() || moe.pad_expert_input_to_multiple > 0, "experts with a capacity",
         "Leave out --moe-expert-capacity-factor and --moe-router-padding-for-quantization");
  reject(!moe.grouped_gemm, "experts one after the other", "Give --moe-grouped-gemm");
  reject(moe.apply_probs_on_input, "probabilities on the input of experts", "Leave out --moe-apply-probs-on-input");
  reject(model.add_bias_linear, "experts with biases", "Give --disable-bias-linear");
}

void add_layers(const LayerPlan& plan, const TransformerConfig& model, StageParts& parts) {
  for (const LayerPlan::Run& run : plan.runs()) {
    require_can_build(run.kind);
    require<NotSupported>(run.kind.mixer != Mixer::kLatentAttention,
                          "[bench] the kernels of latent attention are not measured yet. Leave out "
                          "--multi-latent-attention.");
    if (run.kind.feed_forward == FeedForward::kExperts) require_measurable(model);
  }
  parts.num_attention += plan.count(Mixer::kSelfAttention);
  parts.num_feed_forward += plan.count(FeedForward::kDense);
  parts.num_experts += plan.count(FeedForward::kExperts);
}

}  // namespace

StepShapes step_shapes_of(const PretrainConfig& config) {
  const TransformerConfig& model = config.transformer;
  const int64_t tp = config.parallel.tensor_model_parallel_size;
  StepShapes z;
  z.model = model;
  z.cp = config.parallel.context_parallel_size;
  z.s = config.model.seq_length.value() / z.cp;
  z.b = config.training.micro_batch_size.value();
  z.t = z.s * z.b;
  z.rows = config.parallel.sequence_parallel ? z.t / tp : z.t;
  z.h = model.hidden_size;
  z.d = model.kv_channels;
  z.n = model.num_attention_heads / tp;
  z.g = std::max<int64_t>(1, model.num_query_groups / tp);
  z.f = model.ffn_hidden_size / tp;
  z.v = model.padded_vocab_size / tp;
  z.experts = expert_shapes_of(config, z.rows);
  z.num_microbatches = microbatch_calculator_of(config).at(0).num_microbatches;
  z.gradient_dtype = model.params_dtype;
  if (model.params_dtype != DType::kFloat64 && data_parallel_config_of(config).grad_reduce_in_fp32)
    z.gradient_dtype = DType::kFloat32;
  z.optimizer = config.optimizer;
  return z;
}

StageParts stage_parts_of(const PretrainConfig& config, int rank) {
  require<NotSupported>(config.transformer.mtp.num_layers == 0,
                        "[bench] the kernels of layers for further tokens are not measured yet. Leave out "
                        "--mtp-num-layers.");
  require<NotSupported>(!config.transformer.attention_output_gate,
                        "[bench] the gates on attention's output are not measured yet. Leave out "
                        "--attention-output-gate.");
  const PipelineLayout layout = pipeline_layout_of(config);
  const LayerPlan plan(config.transformer);
  StageParts parts;
  for (int chunk = 0; chunk < layout.placement().num_chunks(); ++chunk) {
    const StageLayers& stage = layout.at({.rank = rank, .chunk = chunk});
    add_layers(plan.part(stage.first_layer, stage.num_layers), config.transformer, parts);
    parts.has_embedding |= stage.has_embedding;
    parts.has_head |= stage.has_head;
  }
  return parts;
}

int64_t num_parameters(const StepShapes& z, const StageParts& stage) {
  int64_t count = stage.num_attention * attention_parameters(z) + stage.num_feed_forward * feed_forward_parameters(z);
  if (stage.num_experts > 0) count += stage.num_experts * (router_parameters(z) + expert_parameters(z));
  if (stage.has_embedding) {
    count += z.v * z.h;
    if (z.model.position_embedding_type == PositionEmbeddingType::kLearnedAbsolute)
      count += z.model.max_sequence_length * z.h;
  }
  if (stage.has_head) {
    const bool is_shared = z.model.share_embeddings_and_output_weights && stage.has_embedding;
    count += norm_parameters(z.model, z.h) + (is_shared ? 0 : z.v * z.h);
  }
  return count;
}

int64_t num_optimized_parameters(const PretrainConfig& config, const StepShapes& shapes, const StageParts& stage) {
  const int64_t count = num_parameters(shapes, stage);
  if (!config.optimizer.use_distributed_optimizer) return count;
  const ParallelConfig& parallel = config.parallel;
  const int64_t num_ranks = parallel.num_replicas();
  const int64_t of_experts = stage.num_experts * expert_parameters(shapes);
  const int64_t etp = parallel.expert_tensor_parallel_size.value_or(parallel.tensor_model_parallel_size);
  const int64_t num_expert_ranks = std::max<int64_t>(
      1, num_ranks * parallel.tensor_model_parallel_size / (parallel.expert_model_parallel_size * etp));
  return (count - of_experts + num_ranks - 1) / num_ranks + (of_experts + num_expert_ranks - 1) / num_expert_ranks;
}

}  // namespace megatron
