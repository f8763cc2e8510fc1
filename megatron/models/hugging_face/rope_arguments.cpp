// rope_theta, rope_scaling (transformers 4) and rope_parameters (transformers 5) as Megatron's rotary arguments.
#include <algorithm>
#include <cmath>

#include "megatron/base/word_list.h"
#include "megatron/models/hugging_face/config_reader.h"
#include "megatron/models/hugging_face/config_writer.h"

namespace megatron::hugging_face {
namespace {

/// Above it no double has a fraction.
constexpr double kLargestFraction = 4503599627370496;  // 2^52

/// The two places of the rotary settings as one object: what rope_parameters and rope_scaling hold, then rope_theta and
/// partial_rotary_factor of the configuration itself where these do not.
Json merged_rope(ConfigReader& config) {
  Json rope = Json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json& given = config.at(key);
    if (given.is_object())
      rope.update(given);
    else if (!given.is_null())
      config.reject("{} is {}, which is no object", key, given.dump());
  }
  for (const char* key : {"rope_theta", "partial_rotary_factor"})
    if (const Json& given = config.at(key); !given.is_null() && !rope.contains(key)) rope[key] = given;
  if (rope.contains("type") && !rope.contains("rope_type")) rope["rope_type"] = rope["type"];
  rope.erase("type");
  return rope;
}

void set_llama3(ConfigReader& rope, Json& arguments) {
  arguments["use_rope_scaling"] = true;
  arguments["rope_scaling_factor"] = rope.number("factor", 8);
  arguments["rope_scaling_low_freq_factor"] = rope.number("low_freq_factor", 1);
  arguments["rope_scaling_high_freq_factor"] = rope.number("high_freq_factor", 4);
  arguments["rope_scaling_original_max_position_embeddings"] = rope.integer("original_max_position_embeddings", 8192);
}

/// cos and sin grow by attention_factor, or else by what mscale and mscale_all_dim say, by default 0.1 ln(factor) + 1.
void set_yarn(ConfigReader& rope, Json& arguments, int64_t max_positions) {
  const int64_t original = rope.integer("original_max_position_embeddings", max_positions);
  const double factor = rope.number("factor", static_cast<double>(max_positions) / static_cast<double>(original));
  const double mscale = rope.number("mscale", 0), mscale_all_dim = rope.number("mscale_all_dim", 0);
  const bool has_both = mscale != 0 && mscale_all_dim != 0;
  arguments["position_embedding_type"] = "yarn";
  arguments["yarn_original_max_position_embeddings"] = original;
  arguments["rotary_scaling_factor"] = factor;
  arguments["yarn_beta_fast"] = rope.number("beta_fast", 32);
  arguments["yarn_beta_slow"] = rope.number("beta_slow", 1);
  arguments["mscale"] = has_both ? mscale : 1.0;
  arguments["mscale_all_dim"] = has_both ? mscale_all_dim : 0.0;
  arguments["yarn_correction_range_round_to_int"] = rope.flag("truncate", true);
  if (!rope.has("attention_factor")) return;
  const double growth = rope.number("attention_factor", 1);
  if (factor > 1 && growth >= 1) {
    arguments["mscale"] = (growth - 1) / (0.1 * std::log(factor));
    arguments["mscale_all_dim"] = 0.0;
  } else if (growth != 1) {
    rope.reject("attention_factor is {} with factor {}; supported: 1 or above, with a factor above 1", growth, factor);
  }
}

/// Frequencies depend on the length of a run's sequences, which may pass the length of the training, as far as the
/// factor says.
void set_dynamic(ConfigReader& rope, Json& arguments, int64_t max_positions) {
  const double factor = rope.number("factor", 1);
  arguments["dynamic_rope_factor"] = factor;
  arguments["rope_scaling_original_max_position_embeddings"] = max_positions;
  arguments["max_position_embeddings"] = static_cast<int64_t>(std::ceil(factor * static_cast<double>(max_positions)));
}

/// The list of a factor for each frequency.
Json factors_of(ConfigReader& rope, std::string_view key) {
  const Json& factors = rope.at(key);
  if (factors.is_array() && std::ranges::all_of(factors, [](const Json& factor) { return factor.is_number(); }))
    return factors;
  rope.reject("{} is {}; it needs a list of numbers", key, factors.dump());
  return Json::array();
}

/// cos and sin grow by attention_factor, or else by the root of 1 + ln(factor) / ln(original length), which Phi-3 says
/// outside of the rotary settings.
void set_longrope(ConfigReader& config, ConfigReader& rope, Json& arguments, int64_t max_positions) {
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  const int64_t original = config.integer(kOriginal, rope.integer(kOriginal, max_positions));
  const double factor = rope.number("factor", static_cast<double>(max_positions) / static_cast<double>(original));
  const double growth = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
  arguments["longrope_short_factor"] = factors_of(rope, "short_factor");
  arguments["longrope_long_factor"] = factors_of(rope, "long_factor");
  arguments["longrope_attention_factor"] = rope.number("attention_factor", growth);
  arguments["rope_scaling_original_max_position_embeddings"] = original;
}

/// Megatron's base is a whole number. That of StarCoder 2 3B is not: divisors of the frequencies have the rest,
/// exactly, as the frequencies of a base b are b^(-2 i / d).
void set_fractional_base(ConfigReader& config, double base, Json& arguments) {
  const double whole = std::round(base);
  arguments["rotary_base"] = static_cast<int64_t>(whole);
  const double channels = arguments.value("kv_channels", 0.0) * arguments["rotary_percent"].get<double>();
  Json divisors = Json::array();
  for (double i = 0; i < channels; i += 2) divisors.push_back(std::pow(base / whole, i / channels));
  arguments["longrope_short_factor"] = arguments["longrope_long_factor"] = std::move(divisors);
  arguments["longrope_attention_factor"] = 1.0;
  arguments["rope_scaling_original_max_position_embeddings"] = config.integer("max_position_embeddings", 2048);
}

void set_scaling(ConfigReader& config, ConfigReader& rope, Json& arguments) {
  const int64_t max_positions = config.integer("max_position_embeddings", 2048);
  const std::string type = rope.text("rope_type", "default");
  if (type == "linear")
    arguments["rotary_seq_len_interpolation_factor"] = rope.number("factor", 1);
  else if (type == "llama3")
    set_llama3(rope, arguments);
  else if (type == "yarn")
    set_yarn(rope, arguments, max_positions);
  else if (type == "dynamic")
    set_dynamic(rope, arguments, max_positions);
  else if (type == "longrope" || type == "su")  // the name that Phi-3 gave it at first
    set_longrope(config, rope, arguments, max_positions);
  else if (type != "default")
    rope.reject("rope_type is \"{}\"; supported: default, linear, llama3, yarn, dynamic, longrope", type);
}

Json yarn_parameters(const Json& arguments) {
  const double factor = argument_or(arguments, "rotary_scaling_factor", 1.0);
  const double mscale = argument_or(arguments, "mscale", 1.0), of_all = argument_or(arguments, "mscale_all_dim", 0.0);
  Json rope = {
      {"rope_type", "yarn"},
      {"factor", factor},
      {"original_max_position_embeddings", argument_or<int64_t>(arguments, "yarn_original_max_position_embeddings", 0)},
      {"beta_fast", argument_or(arguments, "yarn_beta_fast", 32.0)},
      {"beta_slow", argument_or(arguments, "yarn_beta_slow", 1.0)},
      {"truncate", argument_or(arguments, "yarn_correction_range_round_to_int", true)}};
  if (of_all != 0) {
    rope["mscale"] = mscale;
    rope["mscale_all_dim"] = of_all;
  } else if (mscale != 1) {
    rope["attention_factor"] = 0.1 * mscale * std::log(factor) + 1;
  }
  return rope;
}

Json llama3_parameters(const Json& arguments) {
  return {{"rope_type", "llama3"},
          {"factor", arguments.at("rope_scaling_factor")},
          {"low_freq_factor", arguments.at("rope_scaling_low_freq_factor")},
          {"high_freq_factor", arguments.at("rope_scaling_high_freq_factor")},
          {"original_max_position_embeddings", arguments.at("rope_scaling_original_max_position_embeddings")}};
}

Json longrope_parameters(const Json& arguments) {
  return {{"rope_type", "longrope"},
          {"short_factor", arguments.at("longrope_short_factor")},
          {"long_factor", arguments.at("longrope_long_factor")},
          {"attention_factor", arguments.at("longrope_attention_factor")},
          {"original_max_position_embeddings", arguments.at("rope_scaling_original_max_position_embeddings")}};
}

/// The inverse of set_scaling().
Json scaling_of(const Json& arguments) {
  if (argument_or<std::string>(arguments, "position_embedding_type", "rope") == "yarn")
    return yarn_parameters(arguments);
  if (argument_or(arguments, "use_rope_scaling", false)) return llama3_parameters(arguments);
  if (!argument_or(arguments, "longrope_long_factor", Json::array()).empty()) return longrope_parameters(arguments);
  if (const double factor = argument_or(arguments, "dynamic_rope_factor", 0.0); factor > 0)
    return {{"rope_type", "dynamic"}, {"factor", factor}};
  if (const double factor = argument_or(arguments, "rotary_seq_len_interpolation_factor", 1.0); factor != 1)
    return {{"rope_type", "linear"}, {"factor", factor}};
  return {{"rope_type", "default"}};
}

}  // namespace

Json rope_parameters_of(const Json& arguments, PartialRotation partial) {
  Json rope = scaling_of(arguments);
  rope["rope_theta"] = argument_or(arguments, "rotary_base", 10000.0);
  if (partial == PartialRotation::kSupported)
    rope["partial_rotary_factor"] = argument_or(arguments, "rotary_percent", 1.0);
  return rope;
}

void restore_rope(const Json& arguments, Json& config, PartialRotation partial) {
  Json rope = rope_parameters_of(arguments, partial);
  if (rope["rope_type"].get<std::string>() == "dynamic")  // extends what the original length was
    config["max_position_embeddings"] = arguments.at("rope_scaling_original_max_position_embeddings");
  if (rope["rope_type"].get<std::string>() == "longrope")
    config["original_max_position_embeddings"] = rope["original_max_position_embeddings"];
  // Version 4 of transformers reads these keys; version 5 reads rope_parameters.
  config["rope_theta"] = rope["rope_theta"];
  if (rope.contains("partial_rotary_factor")) config["partial_rotary_factor"] = rope["partial_rotary_factor"];
  if (rope["rope_type"].get<std::string>() != "default") {
    config["rope_scaling"] = rope;
    for (const char* key : {"rope_theta", "partial_rotary_factor"}) config["rope_scaling"].erase(key);
  }
  config["rope_parameters"] = std::move(rope);
}

void restore_latent_rope(const Json& arguments, Json& config) {
  Json of_part = arguments;
  of_part["position_embedding_type"] = argument_or<std::string>(arguments, "rope_type", "yarn");
  restore_rope(of_part, config);
}

void derive_rope(ConfigReader& config, Json& arguments, double default_base) {
  const Json rope_object = merged_rope(config);
  ConfigReader rope(rope_object);
  arguments["position_embedding_type"] = "rope";
  arguments["rotary_percent"] = rope.number("partial_rotary_factor", arguments.value("rotary_percent", 1.0));
  const double base = rope.number("rope_theta", default_base);
  const bool is_default = rope.text("rope_type", "default") == "default";
  if (is_default && base != std::round(base) && base > 2 && base < kLargestFraction)
    set_fractional_base(config, base, arguments);
  else
    arguments["rotary_base"] = rope.integer_number("rope_theta", default_base);
  set_scaling(config, rope, arguments);
  for (const std::string& mistake : rope.mistakes()) config.reject("rotary positions: {}", mistake);
  for (const std::string& key : rope.unread())
    config.reject("rotary positions: {} is {}, an unknown setting", key, rope_object[key].dump());
}

void derive_latent_rope(ConfigReader& config, Json& arguments) {
  derive_rope(config, arguments);
  const bool is_yarn = arguments["position_embedding_type"] == "yarn";
  arguments["position_embedding_type"] = "rope";
  arguments["rope_type"] = is_yarn ? "yarn" : "rope";
  for (const char* argument :
       {"use_rope_scaling", "rotary_seq_len_interpolation_factor", "dynamic_rope_factor", "longrope_long_factor"})
    if (arguments.contains(argument))
      config.reject("rotary positions: latent attention supports the types default and yarn alone");
  // The softmax scale grows with mscale_all_dim, cos and sin with both.
  const Json rope_object = merged_rope(config);
  ConfigReader rope(rope_object);
  const bool has_mscale = rope.number("mscale", 0) != 0, has_all = rope.number("mscale_all_dim", 0) != 0;
  if (is_yarn && (has_mscale != has_all || (rope.has("attention_factor") && has_all)))
    config.reject(
        "rotary positions: yarn of latent attention supports mscale and mscale_all_dim together without "
        "attention_factor, or neither");
}

}  // namespace megatron::hugging_face
