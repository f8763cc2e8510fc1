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

Field& add_pattern(FieldTable& table, std::string_view name, LayerPattern& pattern, std::string_view help) {
  Field& field = table.add_untyped(name, WordKind::kText, help);
  field.get = [&pattern] { return value_of(pattern); };
  field.set = [&pattern](const FieldValue& value) { pattern = pattern_of(value); };
  return field.read_by([](std::string_view word) { return value_of(parse_layer_pattern(word)); });
}

void describe_core(FieldTable& table, TransformerConfig& net) {
  table.begin_group("Attention", "Always causal. Grouped queries are with the size of the model.");
  table.add("qk_layernorm", net.qk_layernorm, "normalise each head's queries and keys, with weights");
  table.add("qk_l2_norm", net.qk_l2_norm, "normalise each head's queries and keys, without weights");
  table.add("softmax_type", net.softmax_type,
            "off-by-one: one more logit of 0; learnable: one more logit per head, learned");
  Field& window =
      table.add_untyped("window_size", WordKind::kText,
                        "sliding window A,B in one word: positions before and after that a query sees; -1: no limit");
  window.get = [&net] { return value_of(net.window_size); };
  window.set = [&net](const FieldValue& value) { net.window_size = window_of(value); };
  window.read_by(read_window);
  add_pattern(table, "window_attn_skip_freq", net.window_attn_skip_freq,
              "layers without the window: N, every N-th layer; or a list with 0 for each of them");
  table.add("deterministic_mode", net.deterministic_mode,
            "gradients of attention are equal to the bit in two runs on CUDA too, for time and up to 1 GiB");
}

void describe_positions(FieldTable& table, ModelConfig& model, TransformerConfig& net) {
  table.begin_group("Positions",
                    "rope is what current models use: --position-embedding-type rope --rotary-base 500000");
  table.add("position_embedding_type", net.position_embedding_type, "how a layer knows positions")
      .later({"mrope", "relative"});
  table.add("use_rotary_position_embeddings", model.use_rotary_position_embeddings,
            "old name of --position-embedding-type rope");
  table
      .add("add_position_embedding", model.add_position_embedding,
           "old flag, accepted with rope, which has no table of positions")
      .turned_off_by({"--no-position-embedding"});
  table.add("rotary_base", net.rotary_base, "base of the rotation's frequencies").at_least(2);
  table.add("rotary_percent", net.rotary_percent, "part of a head that rotates").above(0).at_most(1);
  table.add("rotary_interleaved", net.rotary_interleaved, "rotate pairs of neighbours instead of the two halves");
  table
      .add("rotary_seq_len_interpolation_factor", net.rotary_seq_len_interpolation_factor,
           "positions are divided by it")
      .above(0);
  table.add("use_rope_scaling", net.use_rope_scaling, "scale low frequencies as Llama 3.1 does");
  table.add("rope_scaling_factor", net.rope_scaling_factor, "of --use-rope-scaling").at_least(1);
  add_pattern(table, "no_rope_freq", net.no_rope_freq,
              "layers without rotation: N, every N-th layer; or a list with 1 for each of them");
  table
      .add("yarn_original_max_position_embeddings", model.yarn_original_max_position_embeddings,
           "yarn: sequence length before the extension")
      .by_default("4096")
      .at_least(1);
  table.add("rotary_scaling_factor", net.yarn_rotary_scaling_factor, "yarn: how many times longer sequences get")
      .above(0);
  table.add("yarn_beta_fast", model.yarn_beta_fast, "yarn: rotations above which a frequency stays")
      .by_default("32")
      .above(0);
  table.add("yarn_beta_slow", model.yarn_beta_slow, "yarn: rotations below which a frequency is divided")
      .by_default("1")
      .above(0);
  table.add("mscale", net.yarn_mscale, "yarn: strength of the scores' growth").at_least(0);
  table.add("mscale_all_dim", net.yarn_mscale_all_dim, "yarn: the part of it that is taken back").at_least(0);
  table
      .add("yarn_correction_range_round_to_int", model.yarn_correction_range_round_to_int,
           "yarn: round the border dimensions")
      .by_default("yes")
      .also_turned_off_by("--no-yarn-correction-range-round-to-int");
}

}  // namespace

void describe_attention(FieldTable& table, PretrainConfig& config) {
  describe_core(table, config.transformer);
  describe_positions(table, config.model, config.transformer);
}

}  // namespace megatron
