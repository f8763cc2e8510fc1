#include "megatron/models/hugging_face/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/models/hugging_face/quantization.h"

namespace megatron::hugging_face {
namespace {

/// Up to here a double holds every whole number.
constexpr double kLargestExactInteger = 9007199254740992;  // 2^53

/// Keys of any model that do not change what it computes: names, special tokens, outputs, defaults of generation.
constexpr std::string_view kWithoutEffect[] = {"architectures",
                                               "model_type",
                                               "transformers_version",
                                               "torch_dtype",
                                               "dtype",
                                               "bos_token_id",
                                               "eos_token_id",
                                               "pad_token_id",
                                               "use_cache",
                                               "_name_or_path",
                                               "output_attentions",
                                               "output_hidden_states",
                                               "return_dict",
                                               "id2label",
                                               "label2id",
                                               "task_specific_params",
                                               "problem_type",
                                               "auto_map",
                                               "_attn_implementation",
                                               "attn_implementation",
                                               "is_decoder",
                                               "is_encoder_decoder",
                                               "chunk_size_feed_forward",
                                               "tokenizer_class",
                                               "prefix",
                                               "torchscript",
                                               "use_bfloat16",
                                               "tf_legacy_loss",
                                               "finetuning_task",
                                               "decoder_start_token_id",
                                               "sep_token_id",
                                               "max_length",
                                               "min_length",
                                               "do_sample",
                                               "early_stopping",
                                               "num_beams",
                                               "num_beam_groups",
                                               "diversity_penalty",
                                               "temperature",
                                               "top_k",
                                               "top_p",
                                               "typical_p",
                                               "repetition_penalty",
                                               "length_penalty",
                                               "no_repeat_ngram_size",
                                               "encoder_no_repeat_ngram_size",
                                               "bad_words_ids",
                                               "num_return_sequences",
                                               "output_scores",
                                               "return_dict_in_generate",
                                               "forced_bos_token_id",
                                               "forced_eos_token_id",
                                               "remove_invalid_values",
                                               "exponential_decay_length_penalty",
                                               "suppress_tokens",
                                               "begin_suppress_tokens",
                                               "pretraining_tp",
                                               "pruned_heads",
                                               "cross_attention_hidden_size",
                                               "tie_encoder_decoder",
                                               "gradient_checkpointing",
                                               "_num_labels",
                                               "_commit_hash",
                                               "_attn_implementation_autoset",
                                               "transformers.js_config",
                                               "unsloth_fixed",
                                               "unsloth_version"};

void read_values(const Family& family, ConfigReader& reader, Json& arguments) {
  for (const ConfigValue& value : family.values) {
    const Json& given = reader.at(value.key);
    if (const Json& taken = given.is_null() ? value.otherwise : given; !taken.is_null())
      arguments[value.argument] = taken;
  }
}

void check_choices(const Family& family, ConfigReader& reader) {
  for (const ConfigChoice& choice : family.choices) {
    const Json& given = reader.at(choice.key);
    if (given.is_null() || std::ranges::find(choice.supported, given) != choice.supported.end()) continue;
    std::vector<std::string> supported;
    for (const Json& value : choice.supported) supported.push_back(value.dump());
    reader.reject("{} is {}; supported: {}", choice.key, given.dump(), joined(supported, ", "));
  }
}

}  // namespace

const Json& ConfigReader::at(std::string_view key) {
  static const Json kMissing = nullptr;
  read_.emplace(key);
  const auto found = config_.find(std::string(key));
  return found == config_.end() ? kMissing : *found;
}

int64_t ConfigReader::integer(std::string_view key, int64_t otherwise) {
  const Json& value = at(key);
  if (value.is_null()) return otherwise;
  const bool fits =
      !value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
  if (value.is_number_integer() && fits) return value.get<int64_t>();
  reject("{} is {}, which is no whole number of 64 bits", key, value.dump());
  return otherwise;
}

double ConfigReader::number(std::string_view key, double otherwise) {
  const Json& value = at(key);
  if (value.is_null()) return otherwise;
  if (value.is_number()) return value.get<double>();
  reject("{} is {}, which is no number", key, value.dump());
  return otherwise;
}

int64_t ConfigReader::integer_number(std::string_view key, double otherwise) {
  const double value = number(key, otherwise);
  if (value == std::floor(value) && std::abs(value) <= kLargestExactInteger) return static_cast<int64_t>(value);
  reject("{} is {}; supported: whole numbers up to 2^53", key, value);
  return 0;
}

bool ConfigReader::flag(std::string_view key, bool otherwise) {
  const Json& value = at(key);
  if (value.is_null()) return otherwise;
  if (value.is_boolean()) return value.get<bool>();
  reject("{} is {}, which is neither true nor false", key, value.dump());
  return otherwise;
}

std::string ConfigReader::text(std::string_view key, std::string_view otherwise) {
  const Json& value = at(key);
  if (value.is_null()) return std::string(otherwise);
  if (value.is_string()) return value.get<std::string>();
  reject("{} is {}, which is no text", key, value.dump());
  return std::string(otherwise);
}

std::vector<std::string> ConfigReader::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : config_.items())
    if (!read_.contains(key)) keys.push_back(key);
  return keys;
}

Json arguments_of(const Family& family, const Json& config, const std::string& source) {
  ConfigReader reader(config);
  Json arguments = family.arguments;
  for (const std::string_view key : kWithoutEffect) reader.at(key);
  for (const std::string& key : family.without_effect) reader.at(key);
  if (!family.num_further_layers.empty()) reader.integer(family.num_further_layers, 0);
  read_values(family, reader, arguments);
  check_quantization(reader);
  check_choices(family, reader);
  family.derive(reader, arguments);
  for (const std::string& key : reader.unread())
    reader.reject("{} is {}: it is not known whether this key changes what a {} computes", key, config[key].dump(),
                  family.model_type);
  require<NotSupported>(reader.mistakes().empty(),
                        "[hugging_face] {} cannot be converted:\n  - {}\nA key that has no effect on the model can be "
                        "removed from the file.",
                        source, joined(reader.mistakes(), "\n  - "));
  return arguments;
}

void derive_tied_embeddings(ConfigReader& config, Json& arguments, bool otherwise) {
  arguments["untie_embeddings_and_output_weights"] = !config.flag("tie_word_embeddings", otherwise);
}

void read_layer_types(ConfigReader& config, std::vector<bool>& is_sliding) {
  const Json& types = config.at("layer_types");
  if (types.is_array() && types.size() == is_sliding.size()) {
    for (size_t layer = 0; layer < is_sliding.size(); ++layer) {
      is_sliding[layer] = types[layer] == "sliding_attention";
      if (types[layer] != "sliding_attention" && types[layer] != "full_attention")
        config.reject("layer_types has {}; supported: full_attention, sliding_attention", types[layer].dump());
    }
  } else if (!types.is_null()) {
    config.reject("layer_types is {}; it needs one entry for each of {} layers", types.dump(), is_sliding.size());
  }
}

void set_sliding_window(Json& arguments, int64_t window) {
  if (window > 0) arguments["window_size"] = {window - 1, 0};
}

void set_sliding_layers(Json& arguments, int64_t window, const std::vector<bool>& is_sliding) {
  if (std::ranges::none_of(is_sliding, [](bool sliding) { return sliding; })) return;
  arguments["window_size"] = {window - 1, 0};
  if (std::ranges::all_of(is_sliding, [](bool sliding) { return sliding; })) return;
  Json marks = Json::array();  // 0: the layer sees the whole sequence
  for (const bool sliding : is_sliding) marks.push_back(sliding ? 1 : 0);
  arguments["window_attn_skip_freq"] = std::move(marks);
}

}  // namespace megatron::hugging_face
