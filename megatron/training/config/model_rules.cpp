// Rules of the network: precision, sizes, activations, positions, recompute.
#include <algorithm>
#include <cmath>

#include "megatron/training/config/rules.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

// One of two names of the same setting must be given, and only one.
void settle_alias(std::optional<int64_t>& name, std::optional<int64_t>& old_name, std::string_view flag,
                  std::string_view old_flag, Mistakes& mistakes) {
  if (name && old_name)
    mistakes.add({flag, old_flag}, "{} {} and {} {} are two names of one setting: give one of them", flag, *name,
                 old_flag, *old_name);
  if (!name && !old_name) mistakes.add({flag, old_flag}, "{} is required", flag);
  if (!name) name = old_name;
  old_name = name;
}

void resolve_heads(ModelConfig& model, TransformerConfig& net, Mistakes& mistakes) {
  const int64_t heads = *model.num_attention_heads;
  net.num_attention_heads = heads;
  if (!model.kv_channels && *model.hidden_size % heads != 0)
    mistakes.add({"--hidden-size", "--num-attention-heads", "--kv-channels"},
                 "--hidden-size {} does not divide by --num-attention-heads {}: each head gets an equal part. Give {}, "
                 "or set the size of a head with --kv-channels",
                 *model.hidden_size, heads, (*model.hidden_size / heads + 1) * heads);
  if (!model.kv_channels) model.kv_channels = std::max<int64_t>(1, *model.hidden_size / heads);
  net.kv_channels = *model.kv_channels;
  net.num_query_groups = model.group_query_attention ? model.num_query_groups : heads;
  if (model.group_query_attention && heads % model.num_query_groups != 0)
    mistakes.add({"--num-attention-heads", "--num-query-groups"},
                 "--num-attention-heads {} does not divide by --num-query-groups {}: each key and value head serves as "
                 "many query heads",
                 heads, model.num_query_groups);
}

void check_positions_cover(const std::optional<int64_t>& length, std::string_view flag, const ModelConfig& model,
                           Mistakes& mistakes) {
  if (length && model.max_position_embeddings && *length > *model.max_position_embeddings)
    mistakes.add(
        {flag, "--max-position-embeddings"},
        "{} {} is above --max-position-embeddings {}: every position needs one. Give --max-position-embeddings {}",
        flag, *length, *model.max_position_embeddings, *length);
}

void resolve_activation(ModelConfig& model, TransformerConfig& net, Mistakes& mistakes) {
  const int num_given = model.swiglu + model.geglu + model.quick_geglu + model.squared_relu + model.openai_gelu;
  if (num_given > 1)
    mistakes.add(
        {"--swiglu", "--geglu", "--quick-geglu", "--squared-relu", "--openai-gelu"},
        "{} activations are given; --swiglu, --geglu, --quick-geglu, --squared-relu and --openai-gelu exclude each "
        "other",
        num_given);
  if (!net.add_bias_linear) model.bias_gelu_fusion = false;
  if (model.squared_relu && model.bias_gelu_fusion)
    mistakes.add(
        {"--squared-relu", "--no-bias-gelu-fusion", "--disable-bias-linear"},
        "--squared-relu with biases needs --no-bias-gelu-fusion, as in Megatron; --disable-bias-linear does too");
  const bool tanh_form = model.openai_gelu || model.bias_gelu_fusion;
  net.activation_func = model.swiglu               ? ActivationFunc::kSilu
                        : model.quick_geglu        ? ActivationFunc::kQuickGelu
                        : model.squared_relu       ? ActivationFunc::kSquaredRelu
                        : model.geglu || tanh_form ? ActivationFunc::kGeluTanh
                                                   : ActivationFunc::kGelu;
  net.gated_linear_unit = model.swiglu || model.geglu || model.quick_geglu;
}

bool uses_yarn(const TransformerConfig& net) {
  return net.mla ? net.mla->rope_type == RopeType::kYarn : net.position_embedding_type == PositionEmbeddingType::kYarn;
}

void resolve_yarn(ModelConfig& model, TransformerConfig& net) {
  if (!uses_yarn(net)) return;
  const TransformerConfig defaults;
  const auto settle = [](auto& given, auto& resolved, auto fallback) {
    if (!given) given = fallback;
    resolved = *given;
  };
  settle(model.yarn_original_max_position_embeddings, net.yarn_original_max_position_embeddings,
         defaults.yarn_original_max_position_embeddings);
  settle(model.yarn_beta_fast, net.yarn_beta_fast, defaults.yarn_beta_fast);
  settle(model.yarn_beta_slow, net.yarn_beta_slow, defaults.yarn_beta_slow);
  settle(model.yarn_correction_range_round_to_int, net.yarn_correction_range_round_to_int,
         defaults.yarn_correction_range_round_to_int);
}

/// Latent attention has rotations and norms of its own.
void check_latent_attention(const ModelConfig& model, const TransformerConfig& net, Mistakes& mistakes) {
  const auto exclude = [&](bool is_given, std::string_view flag, std::string_view reason) {
    if (is_given)
      mistakes.add({"--multi-latent-attention", flag}, "--multi-latent-attention and {} exclude each other: {}", flag,
                   reason);
  };
  exclude(model.group_query_attention, "--group-query-attention", "its keys and values come from one latent vector");
  exclude(net.rotary_interleaved, "--rotary-interleaved", "it always rotates pairs of neighbours");
  exclude(net.position_embedding_type == PositionEmbeddingType::kYarn, "--position-embedding-type yarn",
          "give --rope-type yarn, which is its default");
  exclude(net.use_rope_scaling, "--use-rope-scaling", "its frequencies are scaled by --rope-type yarn");
  exclude(net.rotary_seq_len_interpolation_factor.has_value(), "--rotary-seq-len-interpolation-factor",
          "its frequencies are scaled by --rope-type yarn");
  exclude(net.dynamic_rope_factor.has_value(), "--dynamic-rope-factor",
          "its frequencies are scaled by --rope-type yarn");
  exclude(!net.longrope_long_factor.empty() || !net.longrope_short_factor.empty(), "--longrope-long-factor",
          "its frequencies are scaled by --rope-type yarn");
  exclude(net.no_rope_freq.given(), "--no-rope-freq", "it rotates in every layer");
  exclude(net.qk_l2_norm, "--qk-l2-norm", "--qk-layernorm normalises its latent vectors");
  exclude(net.qk_layernorm_across_heads, "--qk-layernorm-across-heads", "--qk-layernorm normalises its latent vectors");
  exclude(net.attention_output_gate, "--attention-output-gate", "it has no projection that gives the gates");
  exclude(net.softmax_scale.has_value(), "--softmax-scale", "the factor of its scores follows from its heads");
  exclude(net.sliding_window_rotary_base.has_value(), "--sliding-window-rotary-base",
          "its layers rotate with one table");
  if (net.mla->qk_pos_emb_head_dim % 2 != 0)
    mistakes.add({"--qk-pos-emb-head-dim"}, "--qk-pos-emb-head-dim {} is odd: rotation takes pairs. Give {}",
                 net.mla->qk_pos_emb_head_dim, net.mla->qk_pos_emb_head_dim + 1);
}

/// One scaling at a time, with a factor for each pair that rotates.
void check_rope_scalings(const TransformerConfig& net, int64_t num_rotated, Mistakes& mistakes) {
  const bool is_long = !net.longrope_long_factor.empty() || !net.longrope_short_factor.empty();
  const bool is_linear = net.rotary_seq_len_interpolation_factor.has_value();
  if (net.use_rope_scaling + net.dynamic_rope_factor.has_value() + is_long > 1 ||
      (is_linear && (net.dynamic_rope_factor || is_long)))
    mistakes.add(
        {"--use-rope-scaling", "--dynamic-rope-factor", "--longrope-long-factor",
         "--rotary-seq-len-interpolation-factor"},
        "--use-rope-scaling, --dynamic-rope-factor and --longrope-long-factor exclude each other, and the last "
        "two --rotary-seq-len-interpolation-factor: frequencies are scaled once");
  const auto pairs = static_cast<size_t>((num_rotated + 1) / 2);
  if (is_long && (net.longrope_long_factor.size() != pairs || net.longrope_short_factor.size() != pairs))
    mistakes.add(
        {"--longrope-long-factor", "--longrope-short-factor"},
        "--longrope-short-factor has {} values and --longrope-long-factor {}: each needs {}, one for each pair "
        "of a head that rotates",
        net.longrope_short_factor.size(), net.longrope_long_factor.size(), pairs);
}

void resolve_latent_attention(ModelConfig& model, TransformerConfig& net, Mistakes& mistakes) {
  if (model.rope_type == RopeType::kYarn && !model.multi_latent_attention)
    mistakes.add({"--rope-type", "--multi-latent-attention"},
                 "--rope-type yarn needs --multi-latent-attention; for self attention give --position-embedding-type "
                 "yarn");
  net.mla.reset();
  if (!model.multi_latent_attention) return;
  net.mla = model.mla;
  net.mla->rope_type = model.rope_type.value_or(RopeType::kYarn);
  check_latent_attention(model, net, mistakes);
}

void resolve_positions(ModelConfig& model, TransformerConfig& net, Mistakes& mistakes) {
  if (model.use_rotary_position_embeddings) net.position_embedding_type = PositionEmbeddingType::kRope;
  if (!model.add_position_embedding && net.position_embedding_type != PositionEmbeddingType::kRope)
    mistakes.add(
        {"--no-position-embedding", "--position-embedding-type"},
        "--no-position-embedding goes with rope only. For no positions at all: --position-embedding-type none");
  resolve_latent_attention(model, net, mistakes);
  const int64_t channels = net.rotary_channels();
  const bool rotates = net.has_rotary_positions(), is_yarn = uses_yarn(net);
  const bool has_share = !net.mla || !is_yarn;  // Megatron's latent attention with YaRN rotates all of them
  const auto rotated = static_cast<int64_t>(static_cast<double>(channels) * (has_share ? net.rotary_percent : 1));
  const bool is_odd = rotated % 2 != 0;
  const bool fits = rotated > 0 && rotated + is_odd <= channels && !(is_odd && is_yarn);
  if (rotates && channels > 0 && !fits && !(net.mla && channels % 2 != 0))
    mistakes.add(
        {"--rotary-percent", "--kv-channels", "--hidden-size", "--num-attention-heads"},
        "{} of {} values of a head would rotate (--rotary-percent {}): rotation takes pairs, so a number above "
        "0 is needed whose pairs the head can hold, and an even one with yarn",
        rotated, channels, net.rotary_percent);
  check_rope_scalings(net, rotated, mistakes);
  resolve_yarn(model, net);
}

void resolve_further_tokens(const PretrainConfig& config, TransformerConfig& net, Mistakes& mistakes) {
  net.mtp.num_layers = config.model.mtp_num_layers.value_or(0);
  if (net.mtp.num_layers == 0) return;
  const PositionEmbeddingType positions = net.position_embedding_type;
  if (positions != PositionEmbeddingType::kRope && positions != PositionEmbeddingType::kNone)
    mistakes.add({"--mtp-num-layers", "--position-embedding-type"},
                 "--mtp-num-layers needs --position-embedding-type rope or none: further tokens have no positions of "
                 "their own in a table");
  const std::optional<int64_t>& s = config.model.seq_length;
  if (s && net.mtp.num_layers >= *s)
    mistakes.add({"--mtp-num-layers", "--seq-length"},
                 "--mtp-num-layers {} needs a --seq-length above it, got {}: the last layer would have no token to "
                 "predict",
                 net.mtp.num_layers, *s);
}

void resolve_precision(PretrainConfig& config, Mistakes& mistakes) {
  PrecisionConfig& precision = config.precision;
  if (precision.fp16 + precision.bf16 + precision.fp64 > 1)
    mistakes.add({"--fp16", "--bf16", "--fp64"},
                 "--fp16, --bf16 and --fp64 exclude each other: weights have one precision");
  config.transformer.params_dtype = precision.bf16   ? DType::kBFloat16
                                    : precision.fp16 ? DType::kFloat16
                                    : precision.fp64 ? DType::kFloat64
                                                     : DType::kFloat32;
  config.optimizer.params_dtype = config.transformer.params_dtype;
  if (precision.fp16_lm_cross_entropy && !precision.fp16)
    mistakes.add({"--fp16-lm-cross-entropy", "--fp16"}, "--fp16-lm-cross-entropy needs --fp16");
  if (config.transformer.fp32_residual_connection && !precision.fp16 && !precision.bf16)
    mistakes.add(
        {"--fp32-residual-connection", "--fp16", "--bf16"},
        "--fp32-residual-connection needs --bf16 or --fp16: otherwise the residual has the weights' precision anyway");
  if (precision.bf16 && !precision.grad_reduce_in_bf16 && config.optimizer.main_grads_dtype == StateDType::kFloat32)
    precision.accumulate_allreduce_grads_in_fp32 = true;
  if (precision.accumulate_allreduce_grads_in_fp32 && precision.grad_reduce_in_bf16)
    mistakes.add({"--accumulate-allreduce-grads-in-fp32", "--grad-reduce-in-bf16"},
                 "--accumulate-allreduce-grads-in-fp32 and --grad-reduce-in-bf16 exclude each other: gradients are "
                 "summed in one precision");
  if (precision.takes_tf32() && config.transformer.params_dtype != DType::kFloat32)
    mistakes.add({"--float32-matmul-precision", "--fp16", "--bf16", "--fp64"},
                 "--float32-matmul-precision high is for fp32 training, and this is {}: leave it out",
                 config.transformer.params_dtype);
  if (config.transformer.cudnn_attention_dropout && !precision.bf16 && !precision.fp16)
    mistakes.add({"--cudnn-attention-dropout", "--bf16", "--fp16"},
                 "--cudnn-attention-dropout needs --bf16 or --fp16: cuDNN's attention has no other dtypes");
  const OptimizerConfig& optimizer = config.optimizer;
  if (precision.fp16 && !optimizer.loss_scale && optimizer.initial_loss_scale < optimizer.min_loss_scale)
    mistakes.add({"--initial-loss-scale", "--min-loss-scale"},
                 "--initial-loss-scale {} is below --min-loss-scale {}: start at the lowest scale or above",
                 optimizer.initial_loss_scale, optimizer.min_loss_scale);
  // NaN gradients are what moves a dynamic loss scale.
  if (precision.fp16 && !config.optimizer.loss_scale) config.training.check_for_nan_in_loss_and_grad = false;
  config.optimizer.skips_nonfinite_gradients = config.training.check_for_nan_in_loss_and_grad;
}

void resolve_sizes(PretrainConfig& config, Mistakes& mistakes) {
  ModelConfig& model = config.model;
  TransformerConfig& net = config.transformer;
  settle_alias(model.num_layers, model.encoder_num_layers, "--num-layers", "--encoder-num-layers", mistakes);
  settle_alias(model.seq_length, model.encoder_seq_length, "--seq-length", "--encoder-seq-length", mistakes);
  if (!model.hidden_size) mistakes.add({"--hidden-size"}, "--hidden-size is required");
  if (!model.num_attention_heads) mistakes.add({"--num-attention-heads"}, "--num-attention-heads is required");
  if (!model.max_position_embeddings)
    mistakes.add({"--max-position-embeddings"},
                 "--max-position-embeddings is required; --seq-length's value is the usual one");
  check_positions_cover(model.seq_length, "--seq-length", model, mistakes);
  check_positions_cover(model.decoder_seq_length, "--decoder-seq-length", model, mistakes);
  if (model.hidden_size && model.num_attention_heads) resolve_heads(model, net, mistakes);
  if (model.hidden_size && !model.ffn_hidden_size)
    model.ffn_hidden_size = model.swiglu ? *model.hidden_size * 4 * 2 / 3 / 64 * 64 : 4 * *model.hidden_size;
  if (model.ffn_hidden_size == 0)
    mistakes.add({"--hidden-size", "--ffn-hidden-size"},
                 "--swiglu rounds the width of the feed-forward down to a multiple of 64, which leaves 0 at "
                 "--hidden-size {}; give --ffn-hidden-size",
                 *model.hidden_size);
  net.num_layers = model.num_layers.value_or(0);
  net.hidden_size = model.hidden_size.value_or(0);
  net.ffn_hidden_size = model.ffn_hidden_size.value_or(0);
  net.max_sequence_length = model.max_position_embeddings.value_or(0);
  net.sequence_length = model.seq_length.value_or(0);
  net.share_embeddings_and_output_weights = !model.untie_embeddings_and_output_weights;
}

/// Norms and factors on the way from a block to the residual stream.
void check_residual_stream(const TransformerConfig& net, Mistakes& mistakes) {
  const bool has_factor = net.residual_multiplier != 1;
  if (net.add_bias_linear && (net.has_post_norms() || has_factor)) {
    const std::string_view flag = net.has_post_norms() ? "--layernorm-placement" : "--residual-multiplier";
    mistakes.add({flag, "--disable-bias-linear"},
                 "{} needs --disable-bias-linear: biases are added together with the residual stream, behind it", flag);
  }
  if (net.sliding_window_rotary_base && net.mtp.num_layers > 0)
    mistakes.add({"--sliding-window-rotary-base", "--mtp-num-layers"},
                 "--sliding-window-rotary-base and --mtp-num-layers exclude each other: further tokens have one table "
                 "of positions");
}

void resolve_network(PretrainConfig& config, Mistakes& mistakes) {
  ModelConfig& model = config.model;
  TransformerConfig& net = config.transformer;
  if (net.add_bias_linear) net.add_qkv_bias = true;
  resolve_activation(model, net, mistakes);
  resolve_positions(model, net, mistakes);
  resolve_further_tokens(config, net, mistakes);
  if (config.no_effect.apply_query_key_layer_scaling) config.no_effect.attention_softmax_in_fp32 = true;
  if (net.qk_layernorm && net.qk_l2_norm)
    mistakes.add({"--qk-layernorm", "--qk-l2-norm"}, "--qk-layernorm and --qk-l2-norm exclude each other");
  check_residual_stream(net, mistakes);
  check_pattern(net.window_attn_skip_freq, "--window-attn-skip-freq", net.num_layers, mistakes);
  check_pattern(net.no_rope_freq, "--no-rope-freq", net.num_layers, mistakes);
  if (!model.embedding_init_method_std) model.embedding_init_method_std = net.init_method_std;
  net.embedding_init_method_std = *model.embedding_init_method_std;
}

void resolve_recompute(PretrainConfig& config, Mistakes& mistakes) {
  TransformerConfig& net = config.transformer;
  net.recompute_num_layers = config.model.recompute_num_layers.value_or(0);
  if (config.model.recompute_activations) net.recompute_granularity = RecomputeGranularity::kSelective;
  const bool whole_layers = net.recompute_granularity == RecomputeGranularity::kFull;
  const bool method_given = net.recompute_method != RecomputeMethod::kNone;
  if (whole_layers && (!method_given || net.recompute_num_layers == 0))
    mistakes.add({"--recompute-granularity", "--recompute-method", "--recompute-num-layers"},
                 "--recompute-granularity full needs --recompute-method and --recompute-num-layers; uniform and 1 save "
                 "the most memory");
  if (net.recompute_granularity == RecomputeGranularity::kSelective && (method_given || net.recompute_num_layers != 0))
    mistakes.add(
        {"--recompute-granularity", "--recompute-method", "--recompute-num-layers"},
        "--recompute-method and --recompute-num-layers go with --recompute-granularity full only{}",
        config.model.recompute_activations
            ? "; --recompute-activations, which is --recompute-granularity selective, wins over it: leave it out"
            : "");
  if (net.recompute_num_layers > net.num_layers && net.num_layers > 0)
    mistakes.add({"--recompute-num-layers", "--num-layers"}, "--recompute-num-layers {} is above --num-layers {}",
                 net.recompute_num_layers, net.num_layers);
  const bool selective = net.recompute_granularity == RecomputeGranularity::kSelective;
  if (selective && net.recompute_modules.empty()) net.recompute_modules = {RecomputeModule::kCoreAttn};
  if (selective && net.moe && config.experts.layer_recompute && !net.recomputes(RecomputeModule::kMoe))
    net.recompute_modules.push_back(RecomputeModule::kMoe);
  if (selective && net.recomputes(RecomputeModule::kMlaUpProj) && !net.mla)
    mistakes.add(
        {"--recompute-modules", "--multi-latent-attention"},
        "--recompute-modules mla_up_proj needs --multi-latent-attention, whose up projections it repeats: leave "
        "it out");
  if (!selective && !net.recompute_modules.empty())
    mistakes.add({"--recompute-modules", "--recompute-granularity"},
                 "--recompute-modules goes with --recompute-granularity selective only");
}

void resolve_vocabulary(PretrainConfig& config, Mistakes& mistakes) {
  if (!config.tokenizer.vocab_size) return;
  try {
    set_vocab_size(config, *config.tokenizer.vocab_size);
  } catch (const ConfigError& error) {
    mistakes.add({"--vocab-size", "--padded-vocab-size", "--make-vocab-size-divisible-by"}, "{}", error.what());
    mistakes.doubt("--padded-vocab-size");
  }
}

}  // namespace

void check_pattern(const LayerPattern& pattern, std::string_view flag, int64_t num_layers, Mistakes& mistakes) {
  if (num_layers > 0 && !pattern.per_layer.empty() && static_cast<int64_t>(pattern.per_layer.size()) != num_layers)
    mistakes.add({flag, "--num-layers"}, "{} lists {} layers, --num-layers is {}: one entry per layer is needed", flag,
                 pattern.per_layer.size(), num_layers);
}

void resolve_model(PretrainConfig& config, Mistakes& mistakes) {
  resolve_precision(config, mistakes);
  resolve_sizes(config, mistakes);
  resolve_network(config, mistakes);
  resolve_experts(config, mistakes);
  resolve_recompute(config, mistakes);
  resolve_vocabulary(config, mistakes);
}

}  // namespace megatron
