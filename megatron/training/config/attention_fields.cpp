// Attention and positions.
#include "megatron/training/config/fields.h"
#include "megatron/training/config/layer_pattern.h"

namespace megatron {
namespace {

using Window = std::optional<std::pair<int64_t, int64_t>>;

FieldValue value_of(const LayerPattern& pattern) {
  if (pattern.interval != 0) return pattern.interval;
  if (!pattern.per_layer.empty()) return pattern.per_layer;
  return std::monostate{};
}

LayerPattern pattern_of(const FieldValue& value) {
  if (const auto* interval = std::get_if<int64_t>(&value)) return {.interval = *interval, .per_layer = {}};
  if (const auto* entries = std::get_if<std::vector<int64_t>>(&value)) return {.interval = 0, .per_layer = *entries};
  require<ConfigError>(std::holds_alternative<std::monostate>(value), "{} is no layer pattern", python_text(value));
  return {};
}

FieldValue value_of(const Window& window) {
  if (!window) return std::monostate{};
  return std::vector<int64_t>{window->first, window->second};
}

Window window_of(const FieldValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
  const auto* sides = std::get_if<std::vector<int64_t>>(&value);
  require<ConfigError>(sides != nullptr && sides->size() == 2, "{} is no window of two sides", python_text(value));
  return std::pair{(*sides)[0], (*sides)[1]};
}

// "8,0" or "(8,0)": one word, as in Megatron.
FieldValue read_window(std::string_view word) {
  std::string text(word);
  std::erase(text, ' ');
  if (text.size() > 1 && text.front() == '(' && text.back() == ')') text = text.substr(1, text.size() - 2);
  const size_t comma = text.find(',');
  require<ConfigError>(comma != std::string::npos, "must be one word of two numbers, such as 128,0");
  const auto side = [](const std::string& digits) {
    size_t used = 0;
    int64_t number = 0;
    try {
      number = std::stoll(digits, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    require<ConfigError>(used == digits.size() && used > 0 && number >= -1,
                         "each side must be a number of positions, or -1");
    return number;
  };
  return std::vector<int64_t>{side(text.substr(0, comma)), side(text.substr(comma + 1))};
}

void describe_qk_clip(FieldTable& table, PretrainConfig& config) {
  TransformerConfig& net = config.transformer;
  const auto clips = [&net] { return net.qk_clip; };
  table
      .add("qk_clip", net.qk_clip,
           "after a step, scale the weights of queries and keys of heads whose largest logit is above "
           "--qk-clip-threshold, and log that logit; attention sinks are no logits")
      .differs({.megatron = "scales a weight and its main parameters each on its own, fails with "
                            "--use-distributed-optimizer and with --attention-output-gate, makes weights NaN where a "
                            "head of a clipped layer has no logit above 0, and 0 where one is infinite",
                .ours = "scales the main parameters and rounds them to the weights, whatever keeps them; heads at or "
                        "below the threshold, or with a logit that is not finite, stay as they are",
                .in_force = clips});
  table.add("qk_clip_threshold", net.qk_clip_threshold, "largest logit that --qk-clip leaves as it is")
      .above(0)
      .needs("--qk-clip", clips)
      .such_as("--qk-clip --qk-clip-threshold 50");
  table
      .add("qk_clip_alpha", net.qk_clip_alpha,
           "--qk-clip multiplies queries by f^alpha and keys by f^(1 - alpha), where f is threshold / logit")
      .at_least(0)
      .at_most(1)
      .needs("--qk-clip", clips)
      .such_as("--qk-clip --qk-clip-alpha 0.3");
}

void describe_core(FieldTable& table, PretrainConfig& config) {
  TransformerConfig& net = config.transformer;
  table.begin_group("Attention", "Always causal. Grouped queries are with the size of the model.");
  table.add("qk_layernorm", net.qk_layernorm, "normalise each head's queries and keys, with weights")
      .gives_weights_meaning();
  table.add("qk_l2_norm", net.qk_l2_norm, "normalise each head's queries and keys, without weights")
      .gives_weights_meaning()
      .differs({.megatron = "takes --qk-l2-norm alone",
                .ours = "rejected: one norm at a time",
                .topic = "--qk-layernorm --qk-l2-norm"});
  table
      .add("qk_layernorm_across_heads", net.qk_layernorm_across_heads,
           "--qk-layernorm over all heads of a token together, as in OLMo 2 (megatron.cpp only)")
      .gives_weights_meaning()
      .needs("--qk-layernorm", [&net] { return net.qk_layernorm; })
      .such_as("--qk-layernorm --qk-layernorm-across-heads");
  table
      .add("attention_output_gate", net.attention_output_gate,
           "multiply attention's output by sigmoid(gate) before the last linear, with a gate for each query head from "
           "the projection of queries, keys and values, as in Qwen3-Next")
      .gives_weights_meaning()
      .differs({.megatron = "leaves the weights of the gates out of the theoretical memory footprint",
                .ours = "counts them",
                .in_force = [&config] { return config.transformer.attention_output_gate; }})
      .known_as("gated-attention attn-output-gate output-gate");
  table.add("softmax_scale", net.softmax_scale, "factor of the scores (megatron.cpp only)")
      .by_default("1/sqrt(--kv-channels)")
      .above(0)
      .gives_weights_meaning()
      .needs("self attention, not --multi-latent-attention", [&net] { return !net.mla; })
      .known_as("attention-multiplier query-pre-attn-scalar");
  table
      .add("attn_logit_softcapping", net.attn_logit_softcapping,
           "bend scores towards C and -C, C * tanh(score / C), as Gemma 2 does (megatron.cpp only)")
      .by_default("none")
      .above(0)
      .gives_weights_meaning()
      .known_as("attention-softcap attn-softcap soft-cap");
  table
      .add("softmax_type", net.softmax_type,
           "off-by-one: one more logit of 0; learnable: one more logit per head, learned")
      .gives_weights_meaning();
  Field& window =
      table.add_untyped("window_size", WordKind::kText,
                        "sliding window A,B in one word: positions before and after that a query sees; -1: no limit");
  window.get = [&net] { return value_of(net.window_size); };
  window.set = [&net](const FieldValue& value) { net.window_size = window_of(value); };
  window.read_by(read_window)
      .gives_weights_meaning()
      .differs({.megatron = "--transformer-impl local lets a query see B later positions, and with -1 not its own; "
                            "Transformer Engine takes 0 for B",
                .ours = "B has no effect: attention is causal, so a query sees its own position and none after it",
                .in_force =
                    [&config] { return config.transformer.window_size && config.transformer.window_size->second != 0; },
                .topic = "--window-size A,B"})
      .known_as("sliding-window window")
      .such_as("--window-size 128,0");
  add_pattern(table, "window_attn_skip_freq", net.window_attn_skip_freq,
              "layers without the window: N, every N-th layer; or a list with 0 for each of them")
      .gives_weights_meaning()
      .needs("--window-size", [&config] { return config.transformer.window_size.has_value(); })
      .such_as("--window-size 128,0 --window-attn-skip-freq 2");
  describe_qk_clip(table, config);
  table.add("deterministic_mode", net.deterministic_mode,
            "gradients of attention are equal to the bit in two runs on CUDA too, for time and up to 1 GiB");
}

void describe_latent_attention(FieldTable& table, PretrainConfig& config) {
  ModelConfig& model = config.model;
  const auto is_latent = [&config] { return config.transformer.mla.has_value(); };
  const auto add = [&](std::string_view name, auto& value, std::string_view help, const char* example) -> Field& {
    return table.add(name, value, help)
        .at_least(1)
        .gives_weights_meaning()
        .needs("--multi-latent-attention", is_latent)
        .such_as(fmt::format("--multi-latent-attention {}", example));
  };
  table.begin_group("Multi-latent attention",
                    "Keys and values come from one small latent vector a token, as in DeepSeek-V2. DeepSeek-V3: "
                    "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-layernorm "
                    "--rotary-scaling-factor 40 --mscale 1 --mscale-all-dim 1");
  table
      .add("multi_latent_attention", model.multi_latent_attention,
           "project queries, keys and values from latent vectors; --qk-layernorm normalises these")
      .gives_weights_meaning()
      .known_as("mla latent-attention");
  add("q_lora_rank", model.mla.q_lora_rank, "size of the latent vector of queries; none: no such vector",
      "--q-lora-rank 24")
      .by_default("none");
  add("kv_lora_rank", model.mla.kv_lora_rank, "size of the latent vector of keys and values", "--kv-lora-rank 16");
  add("qk_head_dim", model.mla.qk_head_dim, "part of a query's and key's head that does not rotate",
      "--qk-head-dim 16");
  add("qk_pos_emb_head_dim", model.mla.qk_pos_emb_head_dim,
      "part of a query's and key's head that rotates; the heads of keys share it", "--qk-pos-emb-head-dim 8");
  add("v_head_dim", model.mla.v_head_dim, "size of a value's head", "--v-head-dim 16");
  table.add("rope_type", model.rope_type, "rotation of the part that rotates")
      .by_default("yarn")
      .gives_weights_meaning()
      .needs("--multi-latent-attention", is_latent)
      .such_as("--multi-latent-attention --rope-type rope --rotary-scaling-factor 2 --mscale-all-dim 1");
}

/// Describes the settings of YaRN that Megatron-LM passes to self attention alone.
FieldDifference read_by_latent_attention(PretrainConfig& config, const char* name, std::string megatron) {
  return {.megatron = std::move(megatron),
          .ours = "it is read by --multi-latent-attention too",
          .in_force = [&config, name] { return config.transformer.mla && config.given.contains(name); }};
}

/// Scalings that depend on the length of a run's sequences.
void describe_length_scalings(FieldTable& table, TransformerConfig& net) {
  const auto is_rope = [&net] { return net.position_embedding_type == PositionEmbeddingType::kRope && !net.mla; };
  const std::string rope = "--position-embedding-type rope without --multi-latent-attention";
  const std::string example =
      "--position-embedding-type rope --kv-channels 4 --longrope-short-factor 1 2 --longrope-long-factor 2 4";
  table
      .add("dynamic_rope_factor", net.dynamic_rope_factor,
           "dynamic NTK scaling: the base grows with --seq-length above "
           "--rope-scaling-original-max-position-embeddings (megatron.cpp only)")
      .at_least(1)
      .gives_weights_meaning()
      .needs(rope, is_rope)
      .such_as("--position-embedding-type rope --dynamic-rope-factor 2");
  const auto add_list = [&](std::string_view name, std::vector<double>& factors, std::string_view help) {
    table.add(name, factors, help).above(0).gives_weights_meaning().needs(rope, is_rope).such_as(example);
  };
  add_list("longrope_short_factor", net.longrope_short_factor,
           "LongRoPE: a divisor of each frequency for --seq-length up to "
           "--rope-scaling-original-max-position-embeddings (megatron.cpp only)");
  add_list("longrope_long_factor", net.longrope_long_factor,
           "LongRoPE: a divisor of each frequency for longer sequences (megatron.cpp only)");
  table
      .add("longrope_attention_factor", net.longrope_attention_factor,
           "LongRoPE: factor of cosine and sine (megatron.cpp only)")
      .above(0)
      .gives_weights_meaning()
      .needs("--longrope-long-factor", [&net] { return !net.longrope_long_factor.empty(); })
      .such_as(example + " --longrope-attention-factor 1.5");
}

void describe_positions(FieldTable& table, PretrainConfig& config) {
  ModelConfig& model = config.model;
  TransformerConfig& net = config.transformer;
  const auto is_rope = [&net] { return net.position_embedding_type == PositionEmbeddingType::kRope; };
  const auto is_yarn = [&net] {
    return net.mla ? net.mla->rope_type == RopeType::kYarn
                   : net.position_embedding_type == PositionEmbeddingType::kYarn;
  };
  const auto rotates = [&net] { return net.has_rotary_positions(); };
  const std::string yarn = "--position-embedding-type yarn, or --multi-latent-attention with --rope-type yarn";
  table.begin_group("Positions",
                    "rope is what current models use: --position-embedding-type rope --rotary-base 500000");
  table.add("position_embedding_type", net.position_embedding_type, "how a layer knows positions")
      .later({"mrope", "relative"})
      .gives_weights_meaning()
      .known_as("rope use-rope", "its value is rope");
  table
      .add("use_rotary_position_embeddings", model.use_rotary_position_embeddings,
           "old name of --position-embedding-type rope")
      .taken_from_checkpoint();
  table
      .add("add_position_embedding", model.add_position_embedding,
           "old flag, accepted with rope, which has no table of positions")
      .turned_off_by({"--no-position-embedding"})
      .taken_from_checkpoint()
      .such_as("--position-embedding-type rope --no-position-embedding");
  table.add("rotary_base", net.rotary_base, "base of the rotation's frequencies")
      .at_least(2)
      .gives_weights_meaning()
      .needs("--position-embedding-type rope or yarn, or --multi-latent-attention", rotates)
      .known_as("rope-theta rope-base")
      .such_as("--position-embedding-type rope --rotary-base 500000");
  table
      .add("sliding_window_rotary_base", net.sliding_window_rotary_base,
           "--rotary-base of the layers with --window-size, whose frequencies are not scaled, as in Gemma 3 "
           "(megatron.cpp only)")
      .by_default("--rotary-base")
      .at_least(2)
      .gives_weights_meaning()
      .needs("--window-size", [&net] { return net.window_size.has_value(); })
      .known_as("rope-local-base-freq")
      .such_as(
          "--position-embedding-type rope --window-size 128,0 --window-attn-skip-freq 6 "
          "--sliding-window-rotary-base 10000 --rotary-base 1000000");
  table.add("rotary_percent", net.rotary_percent, "part of a head that rotates")
      .above(0)
      .at_most(1)
      .gives_weights_meaning()
      .needs("--position-embedding-type rope or yarn, or --multi-latent-attention with --rope-type rope",
             [&net, is_yarn] { return net.has_rotary_positions() && !(net.mla && is_yarn()); })
      .such_as("--position-embedding-type rope --rotary-percent 0.5");
  table.add("rotary_interleaved", net.rotary_interleaved, "rotate pairs of neighbours instead of the two halves")
      .gives_weights_meaning()
      .needs("--position-embedding-type rope or yarn", rotates)
      .such_as("--position-embedding-type rope --rotary-interleaved");
  table
      .add("rotary_seq_len_interpolation_factor", net.rotary_seq_len_interpolation_factor,
           "positions are divided by it")
      .above(0)
      .gives_weights_meaning()
      .needs("--position-embedding-type rope", is_rope)
      .such_as("--position-embedding-type rope --rotary-seq-len-interpolation-factor 2");
  table.add("use_rope_scaling", net.use_rope_scaling, "scale low frequencies as Llama 3.1 does")
      .gives_weights_meaning()
      .needs("--position-embedding-type rope", is_rope)
      .such_as("--position-embedding-type rope --use-rope-scaling");
  table.add("rope_scaling_factor", net.rope_scaling_factor, "of --use-rope-scaling")
      .at_least(1)
      .gives_weights_meaning()
      .needs("--use-rope-scaling", [&config] { return config.transformer.use_rope_scaling; })
      .such_as("--position-embedding-type rope --use-rope-scaling --rope-scaling-factor 4");
  const auto scales = [&config] { return config.transformer.use_rope_scaling; };
  table
      .add("rope_scaling_low_freq_factor", net.rope_scaling_low_freq_factor,
           "of --use-rope-scaling: wavelengths above the original length / it are stretched (megatron.cpp only)")
      .above(0)
      .gives_weights_meaning()
      .needs("--use-rope-scaling", scales)
      .such_as("--position-embedding-type rope --use-rope-scaling --rope-scaling-low-freq-factor 2");
  table
      .add("rope_scaling_high_freq_factor", net.rope_scaling_high_freq_factor,
           "of --use-rope-scaling: wavelengths below the original length / it stay (megatron.cpp only)")
      .above(0)
      .gives_weights_meaning()
      .needs("--use-rope-scaling", scales)
      .such_as("--position-embedding-type rope --use-rope-scaling --rope-scaling-high-freq-factor 8");
  table
      .add("rope_scaling_original_max_position_embeddings", net.rope_scaling_original_max_position_embeddings,
           "sequence length before the extension by one of these scalings (megatron.cpp only)")
      .at_least(1)
      .gives_weights_meaning()
      .needs("--use-rope-scaling, --dynamic-rope-factor or --longrope-long-factor",
             [&net] { return net.use_rope_scaling || net.dynamic_rope_factor || !net.longrope_long_factor.empty(); })
      .such_as(
          "--position-embedding-type rope --use-rope-scaling --rope-scaling-original-max-position-embeddings 4096");
  describe_length_scalings(table, net);
  add_pattern(table, "no_rope_freq", net.no_rope_freq,
              "layers without rotation: N, every N-th layer; or a list with 1 for each of them")
      .gives_weights_meaning()
      .needs("--position-embedding-type rope or yarn", rotates)
      .such_as("--position-embedding-type rope --no-rope-freq 4");
  table
      .add("yarn_original_max_position_embeddings", model.yarn_original_max_position_embeddings,
           "yarn: sequence length before the extension")
      .also({"--original-max-position-embeddings"})
      .by_default("4096")
      .differs(read_by_latent_attention(config, "yarn_original_max_position_embeddings",
                                        "latent attention has 4096, whatever is given"))
      .at_least(1)
      .gives_weights_meaning()
      .needs(yarn, is_yarn)
      .such_as("--position-embedding-type yarn --yarn-original-max-position-embeddings 8192");
  table.add("rotary_scaling_factor", net.yarn_rotary_scaling_factor, "yarn: how many times longer sequences get")
      .above(0)
      .gives_weights_meaning()
      .needs(yarn, is_yarn)
      .such_as("--position-embedding-type yarn --rotary-scaling-factor 8");
  table.add("yarn_beta_fast", model.yarn_beta_fast, "yarn: rotations above which a frequency stays")
      .by_default("32")
      .differs(read_by_latent_attention(config, "yarn_beta_fast", "latent attention has 32, whatever is given"))
      .above(0)
      .gives_weights_meaning()
      .needs(yarn, is_yarn)
      .such_as("--position-embedding-type yarn --yarn-beta-fast 16");
  table.add("yarn_beta_slow", model.yarn_beta_slow, "yarn: rotations below which a frequency is divided")
      .by_default("1")
      .differs(read_by_latent_attention(config, "yarn_beta_slow", "latent attention has 1, whatever is given"))
      .above(0)
      .gives_weights_meaning()
      .needs(yarn, is_yarn)
      .such_as("--position-embedding-type yarn --yarn-beta-slow 2");
  table.add("mscale", net.yarn_mscale, "yarn: strength of the scores' growth")
      .at_least(0)
      .gives_weights_meaning()
      .needs(yarn, is_yarn)
      .such_as("--position-embedding-type yarn --mscale 0.7");
  table.add("mscale_all_dim", net.yarn_mscale_all_dim, "yarn: the part of it that is taken back")
      .at_least(0)
      .gives_weights_meaning()
      .needs(yarn, is_yarn)
      .such_as("--position-embedding-type yarn --mscale-all-dim 0.7");
  table
      .add("yarn_correction_range_round_to_int", model.yarn_correction_range_round_to_int,
           "yarn: round the border dimensions")
      .differs(read_by_latent_attention(config, "yarn_correction_range_round_to_int",
                                        "latent attention rounds them, whatever is given"))
      .by_default("yes")
      .also_turned_off_by("--no-yarn-correction-range-round-to-int")
      .gives_weights_meaning()
      .needs(yarn, is_yarn)
      .such_as("--position-embedding-type yarn --no-yarn-correction-range-round-to-int");
}

}  // namespace

Field& add_pattern(FieldTable& table, std::string_view name, LayerPattern& pattern, std::string_view help) {
  Field& field = table.add_untyped(name, WordKind::kText, help);
  field.get = [&pattern] { return value_of(pattern); };
  field.set = [&pattern](const FieldValue& value) { pattern = pattern_of(value); };
  return field.read_by([](std::string_view word) { return value_of(parse_layer_pattern(word)); });
}

void describe_attention(FieldTable& table, PretrainConfig& config) {
  describe_core(table, config);
  describe_latent_attention(table, config);
  describe_positions(table, config);
}

}  // namespace megatron
