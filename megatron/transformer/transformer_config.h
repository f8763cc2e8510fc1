// The network, resolved: every value a layer needs, none left to derive. Names are Megatron Core's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/context_parallel/cp_comm_type.h"
#include "megatron/core/dtype.h"
#include "megatron/core/offload_choice.h"
#include "megatron/transformer/layer_kind.h"
#include "megatron/transformer/layer_pattern.h"
#include "megatron/transformer/mla_config.h"
#include "megatron/transformer/moe/moe_config.h"
#include "megatron/transformer/mtp_config.h"
#include "megatron/transformer/ssm_config.h"

namespace megatron {

enum class Normalization { kLayerNorm, kRMSNorm };
/// The place of a layer's norms: in front of each block, as in GPT-2 and Llama; in front of it and behind it, as in
/// Gemma 2 (arXiv:2408.00118, section 2); behind it alone, inside of the residual connection, as in OLMo 2
/// (arXiv:2501.00656, section 2).
enum class LayerNormPlacement { kPre, kSandwich, kPost };
enum class PositionEmbeddingType { kLearnedAbsolute, kRope, kYarn, kNone };
enum class SoftmaxType { kVanilla, kOffByOne, kLearnable };
enum class RecomputeGranularity { kNone, kSelective, kFull };
enum class RecomputeMethod { kNone, kUniform, kBlock };
/// The values that selective recompute drops in forward and computes again in backward.
enum class RecomputeModule { kCoreAttn, kLayerNorm, kMlaUpProj, kMlp, kMoe, kMoeAct, kSharedExperts };
/// The part of a layer whose values, saved for backward, fine-grained offloading moves to the host.
enum class OffloadModule { kAttnNorm, kQkvLinear, kCoreAttn, kAttnProj, kMlpNorm, kExpertFc1, kMoeAct };
/// gelu is the exact erf form; gelu_tanh is 0.5x(1+tanh(0.79788456x(1+0.044715x^2))); quick_gelu is x*sigmoid(1.702x);
/// squared_relu is max(x,0)^2. With gated_linear_unit, silu gives SwiGLU, gelu_tanh GeGLU and quick_gelu quick-GeGLU.
enum class ActivationFunc { kGelu, kGeluTanh, kQuickGelu, kSilu, kSquaredRelu };

/// Names as on the command line and in checkpoints, found by argument-dependent lookup (base/field.h).
constexpr auto names_of_enum(Normalization) {
  return std::to_array<std::pair<Normalization, std::string_view>>(
      {{Normalization::kLayerNorm, "LayerNorm"}, {Normalization::kRMSNorm, "RMSNorm"}});
}
constexpr auto names_of_enum(LayerNormPlacement) {
  return std::to_array<std::pair<LayerNormPlacement, std::string_view>>({{LayerNormPlacement::kPre, "pre"},
                                                                         {LayerNormPlacement::kSandwich, "sandwich"},
                                                                         {LayerNormPlacement::kPost, "post"}});
}
constexpr auto names_of_enum(PositionEmbeddingType) {
  return std::to_array<std::pair<PositionEmbeddingType, std::string_view>>(
      {{PositionEmbeddingType::kLearnedAbsolute, "learned_absolute"},
       {PositionEmbeddingType::kRope, "rope"},
       {PositionEmbeddingType::kYarn, "yarn"},
       {PositionEmbeddingType::kNone, "none"}});
}
constexpr auto names_of_enum(SoftmaxType) {
  return std::to_array<std::pair<SoftmaxType, std::string_view>>({{SoftmaxType::kVanilla, "vanilla"},
                                                                  {SoftmaxType::kOffByOne, "off-by-one"},
                                                                  {SoftmaxType::kLearnable, "learnable"}});
}
constexpr auto names_of_enum(OffloadModule) {
  return std::to_array<std::pair<OffloadModule, std::string_view>>({{OffloadModule::kAttnNorm, "attn_norm"},
                                                                    {OffloadModule::kQkvLinear, "qkv_linear"},
                                                                    {OffloadModule::kCoreAttn, "core_attn"},
                                                                    {OffloadModule::kAttnProj, "attn_proj"},
                                                                    {OffloadModule::kMlpNorm, "mlp_norm"},
                                                                    {OffloadModule::kExpertFc1, "expert_fc1"},
                                                                    {OffloadModule::kMoeAct, "moe_act"}});
}
/// kNone has no name: it is the absence of the flag.
constexpr auto names_of_enum(RecomputeGranularity) {
  return std::to_array<std::pair<RecomputeGranularity, std::string_view>>(
      {{RecomputeGranularity::kFull, "full"}, {RecomputeGranularity::kSelective, "selective"}});
}
constexpr auto names_of_enum(RecomputeMethod) {
  return std::to_array<std::pair<RecomputeMethod, std::string_view>>(
      {{RecomputeMethod::kUniform, "uniform"}, {RecomputeMethod::kBlock, "block"}});
}
constexpr auto names_of_enum(RecomputeModule) {
  return std::to_array<std::pair<RecomputeModule, std::string_view>>(
      {{RecomputeModule::kCoreAttn, "core_attn"},
       {RecomputeModule::kLayerNorm, "layernorm"},
       {RecomputeModule::kMlaUpProj, "mla_up_proj"},
       {RecomputeModule::kMlp, "mlp"},
       {RecomputeModule::kMoe, "moe"},
       {RecomputeModule::kMoeAct, "moe_act"},
       {RecomputeModule::kSharedExperts, "shared_experts"}});
}

/// A GPT model. Built by training/config from flags, or filled in by hand.
/// `s` sequence, `h` hidden, `n` heads, `d` head size, `f` feed-forward width, `v` vocabulary.
struct TransformerConfig {
  // Size
  int64_t num_layers = 0;
  int64_t hidden_size = 0;          ///< h
  int64_t ffn_hidden_size = 0;      ///< f; with gated_linear_unit fc1 has 2f rows
  int64_t num_attention_heads = 0;  ///< n
  int64_t num_query_groups = 0;     ///< key/value heads; n without grouped-query attention
  int64_t kv_channels = 0;          ///< d, of query, key and value heads
  int64_t vocab_size = 0;           ///< of the tokenizer: what softmax and loss see
  int64_t padded_vocab_size = 0;    ///< rows of the embedding and output weights
  int64_t max_sequence_length = 0;  ///< s, and rows of learned positions (--max-position-embeddings)
  /// Tokens of the sequences of this run, which some scalings of rotary positions depend on; 0: max_sequence_length.
  int64_t sequence_length = 0;
  bool share_embeddings_and_output_weights = true;

  // Kinds of layers (LayerPlan)
  std::optional<MoeConfig> moe;  ///< experts instead of the dense feed-forward, in the layers that it names
  std::optional<MlaConfig> mla;  ///< latent attention instead of self attention
  SsmConfig ssm;                 ///< of layers with a state space
  MtpConfig mtp;
  std::vector<LayerKind> layer_kinds;  ///< [num_layers] of a hybrid model; empty: `moe` and `mla` say it

  // Norms, biases, residual
  Normalization normalization = Normalization::kLayerNorm;
  LayerNormPlacement layernorm_placement = LayerNormPlacement::kPre;
  double layernorm_epsilon = 1e-5;
  bool layernorm_zero_centered_gamma = false;  ///< gamma is stored as gamma - 1
  bool add_bias_linear = true;                 ///< biases of all linears of a layer, q, k and v included
  bool add_qkv_bias = false;                   ///< bias of q, k and v alone
  bool fp32_residual_connection = false;
  double embedding_multiplier = 1;  ///< of the embedding's output; rounded to params_dtype, as Gemma's sqrt(h) is
  double residual_multiplier = 1;   ///< of each block's output, before it is added to the residual stream
  double logits_multiplier = 1;     ///< of the logits, before their soft cap
  std::optional<double> final_logit_softcapping;  ///< logits become c tanh(logit / c)

  // Attention
  bool qk_layernorm = false;                     ///< normalization over d of queries and keys, with weights
  bool qk_layernorm_across_heads = false;        ///< over all heads of a token together: n d queries, g d keys
  bool qk_l2_norm = false;                       ///< the same without weights
  std::optional<double> softmax_scale;           ///< none: 1/sqrt(d)
  std::optional<double> attn_logit_softcapping;  ///< scaled scores become c tanh(score / c), before mask and softmax
  SoftmaxType softmax_type = SoftmaxType::kVanilla;
  /// Positions before and after its own that a query sees; -1 is no limit. None: all before, none after.
  std::optional<std::pair<int64_t, int64_t>> window_size;
  /// Interval N: layers divisible by N, counted from 1, see everything; list: entry 0 sees everything.
  LayerPattern window_attn_skip_freq;
  bool log_max_attention_logit = false;  ///< steps find the largest logit of each head
  bool qk_clip = false;                  ///< with the largest logits, weights are scaled (QkClip)
  double qk_clip_threshold = 100, qk_clip_alpha = 0.5;
  bool attention_output_gate = false;  ///< attention's output times sigmoid(gate), one for each element

  /// How context-parallel ranks share the attention of all layers, or [num_layers] of each.
  std::vector<CpCommType> cp_comm_type = {CpCommType::kP2p};
  bool deterministic_mode = false;  ///< gradients of two runs are equal to the bit, on CUDA too

  // Feed-forward
  ActivationFunc activation_func = ActivationFunc::kGelu;
  bool gated_linear_unit = false;
  double glu_linear_offset = 0.0;                     ///< added to the linear half: act(gate) * (up + offset)
  std::optional<double> activation_func_clamp_value;  ///< gate <= c, -c <= up <= c, before the activation

  // Positions
  PositionEmbeddingType position_embedding_type = PositionEmbeddingType::kLearnedAbsolute;
  int64_t rotary_base = 10000;
  /// Base of the layers that have the window, without any scaling of frequencies; none: they rotate as the others do.
  std::optional<int64_t> sliding_window_rotary_base;
  double rotary_percent = 1.0;  ///< part of d that rotates
  bool rotary_interleaved = false;
  std::optional<double> rotary_seq_len_interpolation_factor;  ///< positions are divided by it
  bool use_rope_scaling = false;                              ///< Llama 3.1's scaling of low frequencies
  double rope_scaling_factor = 8.0;
  double rope_scaling_low_freq_factor = 1.0;   ///< wavelengths above original length / it are stretched
  double rope_scaling_high_freq_factor = 4.0;  ///< wavelengths below original length / it stay
  int64_t rope_scaling_original_max_position_embeddings = 8192;  ///< of this and the next two scalings
  std::optional<double> dynamic_rope_factor;  ///< the base grows with sequence_length above the original length
  /// Divide the frequencies, one each, where sequence_length is at most the original length, and where it is above.
  std::vector<double> longrope_short_factor, longrope_long_factor;
  double longrope_attention_factor = 1.0;  ///< of cos and sin, with the two lists above
  /// Interval N: layers divisible by N, counted from 1, do not rotate; list: entry 1 does not rotate.
  LayerPattern no_rope_freq;
  double yarn_rotary_scaling_factor = 1.0;
  int64_t yarn_original_max_position_embeddings = 4096;
  double yarn_beta_fast = 32.0;
  double yarn_beta_slow = 1.0;
  double yarn_mscale = 1.0;
  double yarn_mscale_all_dim = 0.0;
  bool yarn_correction_range_round_to_int = true;

  // Dropout and initialisation
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  bool cudnn_attention_dropout = false;     ///< cuDNN draws its mask, which depends on the layout; on GPUs alone
  double init_method_std = 0.02;            ///< linear_proj and linear_fc2 use std/sqrt(2*num_layers)
  double embedding_init_method_std = 0.02;  ///< word and position embeddings
  bool perform_initialization = true;

  // Precision and recompute
  DType params_dtype = DType::kFloat32;
  RecomputeGranularity recompute_granularity = RecomputeGranularity::kNone;
  RecomputeMethod recompute_method = RecomputeMethod::kNone;
  int64_t recompute_num_layers = 0;  ///< full recompute: layers of a unit (uniform) or layers recomputed (block)
  std::vector<RecomputeModule> recompute_modules;  ///< selective recompute

  // Values for backward in host memory
  int64_t cpu_offloading_num_layers = 0;            ///< the first layers, whose values are
  bool fine_grained_activation_offloading = false;  ///< those of the parts below are, in all layers
  std::vector<OffloadModule> offload_modules;
  int64_t min_offloaded_tensor_size = 1 << 20;  ///< elements; smaller values stay on the device

  /// @throw ConfigError listing every value that no model can be built with. Constructors of models call it.
  void validate() const;
  /// Whether layer `layer_number` (from 1) ignores window_size.
  bool sees_whole_sequence(int64_t layer_number) const;
  /// Those of the decoder, and those behind it that predict further tokens, which are of the kind of its last one.
  int64_t num_all_layers() const { return num_layers + mtp.num_layers; }
  /// Whether blocks have a norm in front of them, and one behind them.
  bool has_pre_norms() const { return layernorm_placement != LayerNormPlacement::kPost; }
  bool has_post_norms() const { return layernorm_placement != LayerNormPlacement::kPre; }
  /// That of layer `layer_number` (from 1).
  CpCommType cp_comm_type_of(int64_t layer_number) const;
  /// Whether selective recompute is on and covers `module`.
  bool recomputes(RecomputeModule module) const;
  /// Whether any values for backward are in host memory until then.
  bool offloads_activations() const { return cpu_offloading_num_layers > 0 || fine_grained_activation_offloading; }
  /// Whether fine-grained offloading covers `module`.
  OffloadChoice offload_of(OffloadModule module) const;
  /// True if queries and keys are rotated; latent attention always rotates a part of them.
  bool has_rotary_positions() const {
    return mla || position_embedding_type == PositionEmbeddingType::kRope ||
           position_embedding_type == PositionEmbeddingType::kYarn;
  }
  bool finds_max_attention_logits() const { return log_max_attention_logit || qk_clip; }
  /// Elements of a head of which --rotary-percent rotates.
  int64_t rotary_channels() const { return mla ? mla->qk_pos_emb_head_dim : kv_channels; }
  /// Whether layer `layer_number` (from 1) leaves queries and keys without rotation.
  bool skips_rope(int64_t layer_number) const;
};

}  // namespace megatron
