#include "megatron/dist_checkpointing/module_name.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::string_view kExperts = "mlp.experts.", kStoredExperts = "mlp.experts.experts.";
constexpr std::string_view kLocalExperts = "mlp.experts.local_experts.";

/// The number that `text` begins with, which is taken off.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

/// "mlp.experts.linear_fc1.weight5", or "mlp.experts.local_experts.5.linear_fc1.weight".
void take_expert(ModuleName& parsed) {
  std::string_view rest = parsed.name;
  if (!rest.starts_with(kExperts)) return;
  require<NotSupported>(rest != "mlp.experts.weight1" && rest != "mlp.experts.weight2",
                        "[checkpoint] {} has all experts in one matrix, the form of --moe-use-legacy-grouped-gemm, "
                        "which is unsupported. Let Megatron convert it (--ckpt-convert-format torch_dist).",
                        parsed.name);
  if (rest.starts_with(kLocalExperts)) {
    rest.remove_prefix(kLocalExperts.size());
    parsed.expert = take_number(rest);
    parsed.name = std::string(kStoredExperts) + std::string(rest.substr(std::min<size_t>(1, rest.size())));
    return;
  }
  const size_t digits = rest.find_last_not_of("0123456789") + 1;
  std::string_view number = rest.substr(digits);
  if (number.empty()) return;
  parsed.expert = take_number(number);
  parsed.name = std::string(kStoredExperts) + std::string(rest.substr(kExperts.size(), digits - kExperts.size()));
}

}  // namespace

ModuleName parse_module_name(std::string_view name) {
  require<NotSupported>(!name.starts_with("language_model.") && !name.starts_with("module."),
                        "[checkpoint] {} is a tensor of a model before Megatron Core, which is unsupported. Let "
                        "Megatron's tools/checkpoint/convert.py convert it.",
                        name);
  for (const std::string_view prefix : {"decoder.layers.", "mtp.layers."}) {
    if (!name.starts_with(prefix)) continue;
    std::string_view rest = name.substr(prefix.size());
    ModuleName parsed{.prefix = std::string(prefix), .layer = take_number(rest), .name = {}, .expert = {}};
    require<NotSupported>(parsed.layer && rest.starts_with('.'), "[checkpoint] {} is the tensor of no layer", name);
    parsed.name = rest.substr(1);
    constexpr std::string_view kInner = "mtp_model_layer.";
    if (parsed.name.starts_with(kInner)) parsed.name.replace(0, kInner.size(), "transformer_layer.");
    take_expert(parsed);
    return parsed;
  }
  return {.prefix = {}, .layer = {}, .name = std::string(name), .expert = {}};
}

std::string stored_norm_name(std::string_view name, const LayerModules& layer) {
  struct Renamed {
    std::string_view module, stored;
  };
  static constexpr auto kNorms = std::to_array<Renamed>({
      {"input_layernorm.", "self_attention.linear_qkv.layer_norm_"},
      {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"},
  });
  static constexpr auto kLatentNorms = std::to_array<Renamed>({
      {"self_attention.q_layernorm.", "self_attention.linear_q_up_proj.layer_norm_"},
      {"self_attention.kv_layernorm.", "self_attention.linear_kv_up_proj.layer_norm_"},
      kNorms[1],
  });
  const std::span<const Renamed> norms = layer.has_latent_attention ? std::span<const Renamed>(kLatentNorms) : kNorms;
  for (const Renamed& norm : norms)
    if (name.starts_with(norm.module) && !(norm.module == kNorms[1].module && layer.has_experts))
      return std::string(norm.stored) + std::string(name.substr(norm.module.size()));
  return std::string(name);
}

std::optional<int> tensor_parallel_axis(std::string_view name, bool has_local_layers) {
  static constexpr auto kColumns = std::to_array<std::string_view>(
      {"word_embeddings.weight", "output_layer.weight", "output_layer.bias", "linear_qkv.weight", "linear_qkv.bias",
       "linear_fc1.weight", "linear_fc1.bias", "linear_q_proj.weight", "linear_q_up_proj.weight",
       "linear_kv_up_proj.weight", "eh_proj.weight", "softmax_offset"});
  static constexpr auto kRows = std::to_array<std::string_view>({"linear_proj.weight", "linear_fc2.weight"});
  static constexpr auto kLatents =
      std::to_array<std::string_view>({"linear_q_down_proj.weight", "linear_kv_down_proj.weight"});
  const auto is_one_of = [&](const auto& names) {
    return std::ranges::any_of(names, [&](std::string_view one) { return name.ends_with(one); });
  };
  if (is_one_of(kColumns)) return 0;
  if (is_one_of(kRows)) return 1;
  return has_local_layers && is_one_of(kLatents) ? std::optional<int>(0) : std::nullopt;
}

bool is_parameter_name(std::string_view name) {
  return !name.ends_with("._extra_state") && !name.ends_with("expert_bias") &&
         !name.ends_with("local_tokens_per_expert") && !name.ends_with("inv_freq");
}

}  // namespace megatron
