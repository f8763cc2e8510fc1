#include "megatron/training/planning/theoretical_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "megatron/optimizer/main_params.h"
#include "megatron/telemetry/run_messages.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/config/schedules.h"
#include "megatron/transformer/layer_plan.h"

namespace megatron {
namespace {

constexpr double kBillion = 1e9;
constexpr double kMegabyte = 1 << 20;

constexpr double kPrecisionBytes = 2;
constexpr double kTokenBytes = 8;
constexpr double kLossBytes = 4;                 // of the output layer's input and logits
constexpr double kOverheadOfTemporaries = 1.05;  // only in the estimate without sequence parallelism

bool has_table_2(const MemorySizes& sizes) {
  return sizes.sequence_parallel && sizes.model.recompute_granularity == RecomputeGranularity::kSelective;
}

/// A plan of the layers that can be built: one kind of attention, and feed-forwards that are dense or of experts.
LayerPlan plan_of(const MemorySizes& sizes) {
  LayerPlan plan(sizes.model);
  for (const LayerPlan::Run& run : plan.runs()) require_can_build(run.kind);
  return plan;
}

double rows(const MemorySizes& sizes) { return static_cast<double>(sizes.seq_length * sizes.micro_batch_size); }

/// How much more the interleaved schedule keeps in flight.
double interleaved_penalty(const MemorySizes& sizes) {
  const auto p = static_cast<double>(sizes.pipeline_size);
  return 1 + (p - 1) / (p * static_cast<double>(sizes.virtual_pipeline_size.value_or(1)));
}

/// Part of a stack of all layers that a first stage's schedule holds: p micro-batches of 1/p of the layers each.
double in_flight_factor(const MemorySizes& sizes, int64_t num_microbatches) {
  if (sizes.virtual_pipeline_size) return interleaved_penalty(sizes);
  return std::min(1.0, static_cast<double>(num_microbatches) / static_cast<double>(sizes.pipeline_size));
}

/// Ranks that share a routed expert's matrices and those of other experts.
double ranks_of_experts(const MemorySizes& sizes) {
  return static_cast<double>(sizes.expert_size * sizes.expert_tensor_size.value_or(sizes.tensor_size));
}

/// @param num_replicas  of the parameter
double bytes_of_a_parameter(const MemorySizes& sizes, const ParameterBytes& bytes, double num_replicas) {
  const double num_shards = sizes.use_distributed_optimizer ? num_replicas : 1;
  return static_cast<double>(bytes.weight_and_gradient) +
         static_cast<double>(bytes.optimizer) * (1 - bytes.part_on_host) / num_shards;
}
double bytes_of_a_parameter(const MemorySizes& sizes, const ParameterBytes& bytes) {
  return bytes_of_a_parameter(sizes, bytes, static_cast<double>(sizes.data_size));
}
double bytes_of_an_expert_parameter(const MemorySizes& sizes, const ParameterBytes& bytes) {
  const auto ranks = static_cast<double>(sizes.data_size * sizes.tensor_size);
  return bytes_of_a_parameter(sizes, bytes, ranks / ranks_of_experts(sizes));
}

/// Matrices of h x f in a feed-forward.
double matrices_of_feed_forward(const TransformerConfig& model) {
  return model.gated_linear_unit && model.activation_func != ActivationFunc::kQuickGelu ? 3 : 2;
}

/// The matrices of all routed experts of a layer.
double routed_expert_parameters(const TransformerConfig& model) {
  const MoeConfig& moe = model.moe.value();
  const auto width = static_cast<double>(moe.latent_size.value_or(model.hidden_size));
  return static_cast<double>(moe.num_experts * moe.ffn_hidden_size) * matrices_of_feed_forward(model) * width;
}

/// The same, and router, shared experts and latent projections.
double expert_parameters(const TransformerConfig& model) {
  const MoeConfig& moe = model.moe.value();
  const auto h = static_cast<double>(model.hidden_size), e = static_cast<double>(moe.num_experts);
  const auto width = static_cast<double>(moe.latent_size.value_or(model.hidden_size));
  const auto shared = static_cast<double>(moe.shared_expert_intermediate_size);
  return e * h + routed_expert_parameters(model) + matrices_of_feed_forward(model) * h * shared +
         (moe.latent_size ? 2 * h * width : 0);
}

/// Bytes that a token keeps in experts: input and inner activations of each expert that it goes to, and the inner ones
/// of the shared experts, counted like those of a dense feed-forward.
double expert_token_bytes(const TransformerConfig& model) {
  const MoeConfig& moe = model.moe.value();
  const auto routed = static_cast<double>(moe.topk.topk * (2 * model.hidden_size + 4 * moe.ffn_hidden_size));
  return routed + 4 * static_cast<double>(moe.shared_expert_intermediate_size);
}

/// The bytes that the last stage adds if it is the first one too.
double output_layer_bytes(const MemorySizes& sizes) {
  const auto h = static_cast<double>(sizes.model.hidden_size), v = static_cast<double>(sizes.model.padded_vocab_size);
  if (has_table_2(sizes)) return rows(sizes) * kLossBytes * (h + v);
  return rows(sizes) * kPrecisionBytes * (h + v / static_cast<double>(sizes.tensor_size));
}

/// The table of learned or rotary positions, which Megatron does not count.
double position_bytes(const PretrainConfig& config, double bytes_of_parameter) {
  const TransformerConfig& model = config.transformer;
  const auto positions = static_cast<double>(model.max_sequence_length);
  double bytes = 0;
  if (model.position_embedding_type == PositionEmbeddingType::kLearnedAbsolute)
    bytes += positions * static_cast<double>(model.hidden_size) * bytes_of_parameter;
  if (model.has_rotary_positions())
    bytes += positions * static_cast<double>(model.rotary_channels()) * model.rotary_percent *
             static_cast<double>(size_of(model.params_dtype)) * (model.sliding_window_rotary_base ? 2 : 1);
  return bytes;
}

}  // namespace

MemorySizes memory_sizes_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::optional<int64_t>& rows_of_rank = parallel.max_seqlen_per_dp_cp_rank;  // whatever the samples
  return {.model = config.transformer,
          .seq_length = rows_of_rank.value_or(config.model.seq_length.value() / parallel.context_parallel_size),
          .micro_batch_size = rows_of_rank ? 1 : config.training.micro_batch_size.value(),
          .sequence_parallel = parallel.sequence_parallel,
          .use_distributed_optimizer = config.optimizer.use_distributed_optimizer,
          .tensor_size = parallel.tensor_model_parallel_size,
          .pipeline_size = parallel.pipeline_model_parallel_size,
          .virtual_pipeline_size = parallel.virtual_pipeline_model_parallel_size,
          .data_size = parallel.num_replicas(),
          .expert_size = parallel.expert_model_parallel_size,
          .expert_tensor_size = parallel.expert_tensor_parallel_size};
}

TheoreticalParameters theoretical_parameters(const MemorySizes& sizes) {
  const TransformerConfig& model = sizes.model;
  const LayerPlan plan = plan_of(sizes);
  const int64_t norms_of_block = model.layernorm_placement == LayerNormPlacement::kSandwich ? 2 : 1;
  const auto h = static_cast<double>(model.hidden_size);
  const auto query = static_cast<double>(model.kv_channels * model.num_attention_heads);
  const auto key = static_cast<double>(model.kv_channels * model.num_query_groups);
  const double norm = (model.normalization == Normalization::kRMSNorm ? 1 : 2) * h;
  const double attention =
      model.mla ? static_cast<double>(model.mla->num_weights(model.hidden_size, model.num_attention_heads))
                : 2 * h * (query + key) + (model.attention_output_gate ? h * query : 0);
  const double feed_forward = matrices_of_feed_forward(model) * h * static_cast<double>(model.ffn_hidden_size);
  const auto num_expert_layers = static_cast<double>(plan.count(FeedForward::kExperts));
  const double embedding = h * static_cast<double>(model.padded_vocab_size);
  const bool is_untied = !model.share_embeddings_and_output_weights;
  const auto p = static_cast<double>(sizes.pipeline_size), t = static_cast<double>(sizes.tensor_size);

  TheoreticalParameters parameters;
  parameters.transformer_block = attention * static_cast<double>(plan.num_layers() - plan.count(Mixer::kNone)) +
                                 feed_forward * static_cast<double>(plan.count(FeedForward::kDense)) +
                                 (num_expert_layers > 0 ? num_expert_layers * expert_parameters(model) : 0) +
                                 norm * static_cast<double>(norms_of_block * plan.num_residual_blocks() + 1);
  // The layers for further tokens: one of the last kind, the projection of two vectors to one, and three norms.
  const bool ends_with_experts = plan.at(plan.num_layers()).feed_forward == FeedForward::kExperts;
  parameters.transformer_block +=
      static_cast<double>(model.mtp.num_layers) *
      (attention + (ends_with_experts ? expert_parameters(model) : feed_forward) + 2 * h * h + (2 + 3) * norm);
  parameters.embedding_layers = (is_untied ? 2 : 1) * embedding;
  const bool holds_output_too = is_untied && sizes.pipeline_size == 1;
  const double num_routed = num_expert_layers + (ends_with_experts ? static_cast<double>(model.mtp.num_layers) : 0);
  if (num_routed > 0) parameters.routed_experts = num_routed * routed_expert_parameters(model);
  parameters.experts_of_shard = parameters.routed_experts / (p * ranks_of_experts(sizes));
  parameters.other_shards =
      (parameters.transformer_block - parameters.routed_experts) / (p * t) + parameters.experts_of_shard;
  parameters.most_loaded_shard = parameters.other_shards + (holds_output_too ? 2 : 1) * embedding / t;
  return parameters;
}

ParameterBytes parameter_bytes_of(const PretrainConfig& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  const DType weight = config.transformer.params_dtype;
  const bool is_double = weight == DType::kFloat64;
  const bool sums_in_fp32 = !is_double && data_parallel_config_of(config).grad_reduce_in_fp32;
  ParameterBytes bytes{.weight_and_gradient = size_of(weight) + size_of(sums_in_fp32 ? DType::kFloat32 : weight),
                       .optimizer = 0};
  const MainParams main = main_params_of(weight, optimizer);
  if (main == MainParams::kCopy) bytes.optimizer += size_of(DType::kFloat32);
  if (main == MainParams::kRemainder) bytes.optimizer += size_of(DType::kFloat32) - size_of(weight);
  const auto moment_bytes = [&](StateDType dtype) { return size_of(is_double ? weight : dtype_of(dtype)); };
  const bool is_adam = optimizer.optimizer == OptimizerType::kAdam;
  if (is_adam || optimizer.sgd_momentum != 0) bytes.optimizer += moment_bytes(optimizer.exp_avg_dtype);
  if (is_adam) bytes.optimizer += moment_bytes(optimizer.exp_avg_sq_dtype);
  if (optimizer.optimizer_cpu_offload) bytes.part_on_host = optimizer.optimizer_offload_fraction;
  return bytes;
}

double theoretical_weight_and_optimizer_bytes(const MemorySizes& sizes, const ParameterBytes& bytes) {
  const TheoreticalParameters parameters = theoretical_parameters(sizes);
  return (parameters.most_loaded_shard - parameters.experts_of_shard) * bytes_of_a_parameter(sizes, bytes) +
         parameters.experts_of_shard * bytes_of_an_expert_parameter(sizes, bytes);
}

double theoretical_layer_activation_bytes(const MemorySizes& sizes, const LayerKind& kind) {
  const auto h = static_cast<double>(sizes.model.hidden_size), t = static_cast<double>(sizes.tensor_size);
  const double attention = kind.mixer != Mixer::kNone, feed_forward = kind.feed_forward != FeedForward::kNone;
  const bool has_experts = kind.feed_forward == FeedForward::kExperts;
  if (has_table_2(sizes)) {
    const double inner =
        has_experts ? expert_token_bytes(sizes.model) : 4 * static_cast<double>(sizes.model.ffn_hidden_size);
    return rows(sizes) * ((13 * attention + 5 * feed_forward) * h + feed_forward * inner) / t;
  }
  const double inner = has_experts ? expert_token_bytes(sizes.model) : 16 * h;
  return rows(sizes) * (5 * (attention + feed_forward) * h + (8 * attention * h + feed_forward * inner) / t);
}

double theoretical_activation_bytes(const MemorySizes& sizes, int64_t num_microbatches) {
  const auto h = static_cast<double>(sizes.model.hidden_size);
  const auto t = static_cast<double>(sizes.tensor_size), p = static_cast<double>(sizes.pipeline_size);
  // Table 2 splits all of it over the tensor-parallel ranks, the embedding's input and dropout mask too.
  const double embedding_split = has_table_2(sizes) ? t : 1;
  const LayerPlan plan = plan_of(sizes);
  double bytes = 0;
  for (const LayerPlan::Run& run : plan.runs())
    bytes += theoretical_layer_activation_bytes(sizes, run.kind) * static_cast<double>(run.num_layers);
  bytes += rows(sizes) * (kTokenBytes + h) * p / embedding_split;
  bytes *= in_flight_factor(sizes, num_microbatches);
  if (sizes.pipeline_size == 1) bytes += output_layer_bytes(sizes) / embedding_split;
  return has_table_2(sizes) ? bytes : bytes * kOverheadOfTemporaries;
}

std::string memory_estimate(const PretrainConfig& config) {
  const MemorySizes sizes = memory_sizes_of(config);
  const ParameterBytes bytes = parameter_bytes_of(config);
  const double positions = position_bytes(config, bytes_of_a_parameter(sizes, bytes)) / kMegabyte;
  const double state = theoretical_weight_and_optimizer_bytes(sizes, bytes) / kMegabyte + positions;
  const double activations =
      theoretical_activation_bytes(sizes, microbatch_calculator_of(config).at(0).num_microbatches) / kMegabyte;
  std::string text = fmt::format(
      "In all a rank needs about {:.0f} MiB: {:.0f} of weights, gradients and optimizer, {:.4g} bytes a parameter, and "
      "{:.0f} of activations, by Megatron's estimate for mixed precision.",
      state + activations, state, bytes_of_a_parameter(sizes, bytes), activations);
  constexpr double kPartThatCounts = 0.1;
  if (positions > kPartThatCounts * (state + activations))
    text += fmt::format(" The table of --max-position-embeddings {} has {:.0f} MiB of them.",
                        config.transformer.max_sequence_length, positions);
  const int64_t ranks = config.parallel.expert_model_parallel_size;
  if (config.transformer.moe && ranks < config.transformer.moe->num_experts)
    text += fmt::format(" A larger --expert-model-parallel-size than {} shares its {} experts between more ranks.",
                        ranks, config.transformer.moe->num_experts);
  return text;
}

std::string theoretical_memory_report(const MemorySizes& sizes, int64_t num_microbatches) {
  const TheoreticalParameters parameters = theoretical_parameters(sizes);
  std::string text = fmt::format(
      "Number of parameters in transformer block in billions: {: .2f}\n"
      "Number of parameters in embedding layers in billions: {:.2f}\n"
      "Total number of parameters in billions: {:.2f}\n"
      "Number of parameters in most loaded shard in billions: {:.4f}\n",
      parameters.transformer_block / kBillion, parameters.embedding_layers / kBillion, parameters.total() / kBillion,
      parameters.most_loaded_shard / kBillion);
  if (sizes.pipeline_size > 1)
    text +=
        fmt::format("Number of parameters in other shards in billions: {:.4f}\n", parameters.other_shards / kBillion);
  const LayerPlan plan = plan_of(sizes);
  double largest_layer = 0;
  for (const LayerPlan::Run& run : plan.runs())
    largest_layer = std::max(largest_layer, theoretical_layer_activation_bytes(sizes, run.kind));
  text += fmt::format("Activation memory footprint per transformer layer{}: {:.1f} MB\n",
                      has_table_2(sizes) ? "" : " (precise, without SP)", largest_layer / kMegabyte);
  if (sizes.virtual_pipeline_size) {
    const double penalty = interleaved_penalty(sizes);
    text += fmt::format("Memory penalty from interleaved schedule: {:.2f}\nNumber of in-flight microbatches: {:.0f}\n",
                        penalty, std::ceil(penalty * static_cast<double>(sizes.pipeline_size)));
  } else if (sizes.pipeline_size > 1) {
    text += fmt::format("Number of in-flight microbatches: {}\n", std::min(num_microbatches, sizes.pipeline_size));
  }
  return text + theoretical_memory_line(theoretical_weight_and_optimizer_bytes(sizes),
                                        theoretical_activation_bytes(sizes, num_microbatches));
}

}  // namespace megatron
