#include "tests/models/gpt/golden_case.h"

#include <algorithm>

#include "megatron/base/field.h"
#include "tests/testing/golden_json.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;

/// Arguments that are taken one by one; at the end none may be left.
class Arguments {
 public:
  explicit Arguments(Json values) : values_(values.is_null() ? Json::object() : std::move(values)) {}

  template <class T>
  void take(const char* name, T& target) {
    if (const Json value = extract(name); !value.is_null()) target = value.get<T>();
  }
  template <class T>
  void take(const char* name, std::optional<T>& target) {
    if (const Json value = extract(name); !value.is_null()) target = value.get<T>();
  }
  template <class E>
  void take_enum(const char* name, E& target) {
    const Json value = extract(name);
    if (value.is_null()) return;
    for (const auto& [enumerator, text] : names_of_enum(E{}))
      if (text == value.get<std::string>()) return void(target = enumerator);
    throw DataError(fmt::format("{} is no {}", value.dump(), name));
  }
  void take_pattern(const char* name, LayerPattern& target) {
    const Json value = extract(name);
    if (value.is_number()) target.interval = value.get<int64_t>();
    if (value.is_array()) target.per_layer = value.get<std::vector<int64_t>>();
  }
  Json extract(const char* name) {
    const Json value = values_.value(name, Json());
    values_.erase(name);
    return value;
  }
  void require_empty() const {
    require<DataError>(values_.empty(), "arguments of the golden model that the test does not know: {}",
                       values_.dump());
  }

 private:
  Json values_;
};

void take_activation(Arguments& arguments, ActivationFunc& target) {
  const Json name = arguments.extract("activation_func");
  target = name.is_null() || name == "gelu" ? ActivationFunc::kGelu
           : name == "silu"                 ? ActivationFunc::kSilu
           : name == "quick_gelu"           ? ActivationFunc::kQuickGelu
                                            : ActivationFunc::kSquaredRelu;
}

/// Latent attention; its settings of YaRN have names without "yarn_".
void take_mla(Arguments& arguments, TransformerConfig& config) {
  MlaConfig mla;
  arguments.take("q_lora_rank", mla.q_lora_rank);
  arguments.take("kv_lora_rank", mla.kv_lora_rank);
  arguments.take("qk_head_dim", mla.qk_head_dim);
  arguments.take("qk_pos_emb_head_dim", mla.qk_pos_emb_head_dim);
  arguments.take("v_head_dim", mla.v_head_dim);
  arguments.take_enum("rope_type", mla.rope_type);
  arguments.take("rotary_base", config.rotary_base);
  arguments.take("rotary_scaling_factor", config.yarn_rotary_scaling_factor);
  arguments.take("original_max_position_embeddings", config.yarn_original_max_position_embeddings);
  arguments.take("mscale", config.yarn_mscale);
  arguments.take("mscale_all_dim", config.yarn_mscale_all_dim);
  arguments.take("beta_fast", config.yarn_beta_fast);
  arguments.take("beta_slow", config.yarn_beta_slow);
  config.mla = mla;
}

void take_transformer(const Json& json, TransformerConfig& config) {
  Arguments arguments(json);
  arguments.take("num_layers", config.num_layers);
  arguments.take("hidden_size", config.hidden_size);
  arguments.take("num_attention_heads", config.num_attention_heads);
  config.num_query_groups = config.num_attention_heads;
  config.kv_channels = config.hidden_size / config.num_attention_heads;
  config.ffn_hidden_size = 4 * config.hidden_size;
  arguments.take("num_query_groups", config.num_query_groups);
  arguments.take("kv_channels", config.kv_channels);
  arguments.take("ffn_hidden_size", config.ffn_hidden_size);
  arguments.take_enum("normalization", config.normalization);
  arguments.take("layernorm_epsilon", config.layernorm_epsilon);
  arguments.take("add_bias_linear", config.add_bias_linear);
  arguments.take("add_qkv_bias", config.add_qkv_bias);
  arguments.take("qk_layernorm", config.qk_layernorm);
  arguments.take("qk_l2_norm", config.qk_l2_norm);
  arguments.take("attention_output_gate", config.attention_output_gate);
  arguments.take("qk_clip", config.qk_clip);
  arguments.take("qk_clip_threshold", config.qk_clip_threshold);
  arguments.take("qk_clip_alpha", config.qk_clip_alpha);
  arguments.take("softmax_scale", config.softmax_scale);
  arguments.take_enum("softmax_type", config.softmax_type);
  arguments.take("window_size", config.window_size);
  arguments.take_pattern("window_attn_skip_freq", config.window_attn_skip_freq);
  take_activation(arguments, config.activation_func);
  arguments.take("gated_linear_unit", config.gated_linear_unit);
  arguments.take("glu_linear_offset", config.glu_linear_offset);
  arguments.take("activation_func_clamp_value", config.activation_func_clamp_value);
  arguments.take("rotary_interleaved", config.rotary_interleaved);
  arguments.take_pattern("no_rope_freq", config.no_rope_freq);
  if (json.contains("kv_lora_rank")) take_mla(arguments, config);
  arguments.take("mtp_num_layers", config.mtp.num_layers);
  arguments.take("mtp_loss_scaling_factor", config.mtp.loss_scaling_factor);
  arguments.take("init_method_std", config.init_method_std);
  config.embedding_init_method_std = config.init_method_std;
  arguments.take("embedding_init_method_std", config.embedding_init_method_std);
  for (const char* without_effect :
       {"apply_query_key_layer_scaling", "attention_softmax_in_fp32", "apply_residual_connection_post_layernorm"})
    arguments.extract(without_effect);  // the first two: scores and softmax are fp32
  arguments.require_empty();
}

void take_model(const Json& json, TransformerConfig& config) {
  Arguments arguments(json);
  arguments.take("vocab_size", config.vocab_size);
  config.padded_vocab_size = config.vocab_size;
  arguments.take("max_sequence_length", config.max_sequence_length);
  arguments.take_enum("position_embedding_type", config.position_embedding_type);
  arguments.take("share_embeddings_and_output_weights", config.share_embeddings_and_output_weights);
  arguments.take("rotary_base", config.rotary_base);
  arguments.take("rotary_percent", config.rotary_percent);
  arguments.take("rope_scaling", config.use_rope_scaling);
  arguments.take("rope_scaling_factor", config.rope_scaling_factor);
  arguments.take("seq_len_interpolation_factor", config.rotary_seq_len_interpolation_factor);
  arguments.require_empty();
}

void take_yarn(const Json& json, TransformerConfig& config) {
  Arguments arguments(json);
  arguments.take("yarn_rotary_scaling_factor", config.yarn_rotary_scaling_factor);
  arguments.take("yarn_original_max_position_embeddings", config.yarn_original_max_position_embeddings);
  arguments.take("yarn_beta_fast", config.yarn_beta_fast);
  arguments.take("yarn_beta_slow", config.yarn_beta_slow);
  arguments.take("yarn_mscale", config.yarn_mscale);
  arguments.take("yarn_mscale_all_dim", config.yarn_mscale_all_dim);
  arguments.take("yarn_correction_range_round_to_int", config.yarn_correction_range_round_to_int);
  arguments.require_empty();
}

/// [b, s] on the host as [s, b] on the device.
template <class T, class From>
Tensor upload(const Context& ctx, const Shape& batch, const std::vector<From>& rows) {
  Tensor x = ctx.empty("golden.batch", batch, dtype_of<T>(), MemoryUse::kData);
  launch(ctx, [&](auto&) {
    std::transform(rows.begin(), rows.end(), x.data<T>(), [](From value) { return static_cast<T>(value); });
  });
  return x.transpose(0, 1);
}

}  // namespace

TransformerConfig golden_config(const Json& transformer, const Json& model, const Json& yarn) {
  TransformerConfig config;
  config.hidden_dropout = config.attention_dropout = 0;
  take_transformer(transformer, config);
  take_model(model, config);
  take_yarn(yarn, config);
  return config;
}

Json golden_model(const std::string& name) {
  for (const Json& test : golden_json("training/models.json", "cases"))
    if (test["name"] == name) return test;
  throw DataError(fmt::format("models.json has no model '{}'", name));
}

void store(const std::vector<double>& values, Tensor& x) {
  require<ShapeError>(static_cast<int64_t>(values.size()) <= x.num_elements(), "{} values for shape {}", values.size(),
                      x.shape());
  dispatch_floating(x.dtype(), [&]<class T>() {
    std::transform(values.begin(), values.end(), x.data<T>(), [](double value) { return static_cast<T>(value); });
  });
}

Batch micro_batch_of(const Context& ctx, const Shape& batch, const std::vector<int64_t>& tokens,
                     const std::vector<int64_t>& labels, const std::vector<double>& loss_mask) {
  return {.tensors = {{"tokens", upload<int64_t>(ctx, batch, tokens)},
                      {"labels", upload<int64_t>(ctx, batch, labels)},
                      {"loss_mask", upload<float>(ctx, batch, loss_mask)}},
          .layouts = {{"tokens", SequenceLayout::uniform(ctx, {.s = batch[1], .b = batch[0]})}}};
}

Batch golden_batch(const Context& ctx, const GoldenTensors& tensors) {
  return micro_batch_of(ctx, tensors.shape("tokens"), tensors.integers("tokens"), tensors.integers("labels"),
                        tensors.values("loss_mask"));
}

int64_t length_there(const TransformerConfig& config, int64_t s) {
  const int64_t h = config.hidden_size;
  int64_t heads = config.num_attention_heads * config.kv_channels;
  if (config.mla) {  // the latents, their norms, and the sum over the heads that share a part of the keys
    const MlaConfig& mla = *config.mla;
    heads = config.num_attention_heads * (mla.qk_head_dim + mla.qk_pos_emb_head_dim + mla.v_head_dim + 1) +
            2 * (mla.q_lora_rank.value_or(0) + mla.kv_lora_rank);
  }
  const int64_t norms = 2 * h, projections = 2 * h + heads + config.ffn_hidden_size, attention = config.kv_channels + s;
  const int64_t num_layers = config.num_layers + config.mtp.num_layers;
  return num_layers * (norms + projections + attention) + 2 * h + config.mtp.num_layers * 5 * h;
}

int64_t length_there_and_back(const TransformerConfig& config, int64_t s, int64_t b) {
  return 2 * length_there(config, s) + s * b + config.vocab_size;
}

}  // namespace megatron::testing
