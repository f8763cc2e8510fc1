#include "megatron/training/hugging_face/model_arguments.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/models/hugging_face/config_writer.h"
#include "megatron/models/hugging_face/families.h"
#include "megatron/training/config/fields.h"

namespace megatron {

using hugging_face::Family;
using hugging_face::Json;

namespace {

constexpr const char* kFurtherLayers = "mtp_num_layers";

/// 1 for each layer that `marks` is true of. @param marks  takes the number of a layer from 1.
template <class Marks>
Json marks_of_layers(int64_t num_layers, Marks marks) {
  Json list = Json::array();
  for (int64_t layer = 1; layer <= num_layers; ++layer) list.push_back(marks(layer) ? 1 : 0);
  return list;
}

bool has_mark(const Json& marks) {
  return std::ranges::any_of(marks, [](const Json& mark) { return mark == 1; });
}

void resolve_window(const TransformerConfig& net, Json& arguments) {
  const Json marks = marks_of_layers(net.num_layers, [&](int64_t layer) { return !net.sees_whole_sequence(layer); });
  const bool has_window = net.window_size && net.window_size->first >= 0 && has_mark(marks);
  arguments["window_attn_skip_freq"] = has_window ? marks : Json();
  // Attention is causal: the positions behind the query do not count.
  arguments["window_size"] = has_window ? Json{net.window_size->first, 0} : Json();
  if (!has_window) arguments["sliding_window_rotary_base"] = nullptr;
}

void resolve_experts(const MoeConfig& moe, int64_t num_layers, Json& arguments) {
  arguments["moe_layer_freq"] = marks_of_layers(num_layers, [&](int64_t layer) { return moe.has_experts(layer); });
  arguments["moe_ffn_hidden_size"] = moe.ffn_hidden_size;
  arguments["moe_router_topk_scaling_factor"] = moe.topk.scaling_factor;
  if (moe.topk.group_topk > 0) arguments["moe_router_group_score_topk"] = moe.topk.num_scored_per_group();
}

void resolve_yarn(const TransformerConfig& net, Json& arguments) {
  arguments["yarn_original_max_position_embeddings"] = net.yarn_original_max_position_embeddings;
  arguments["yarn_beta_fast"] = net.yarn_beta_fast;
  arguments["yarn_beta_slow"] = net.yarn_beta_slow;
  arguments["yarn_correction_range_round_to_int"] = net.yarn_correction_range_round_to_int;
}

/// Names of the arguments that the weights depend on.
std::vector<std::string> names_of_model_arguments(const PretrainConfig& config) {
  std::vector<std::string> names = {"num_layers",  "hidden_size",     "num_attention_heads", "num_query_groups",
                                    "kv_channels", "ffn_hidden_size", "rotary_percent"};
  // The rows of a table of positions; otherwise it bounds the sequences of runs alone.
  if (config.transformer.position_embedding_type == PositionEmbeddingType::kLearnedAbsolute)
    names.emplace_back("max_position_embeddings");
  PretrainConfig copy = config;
  describe(copy).for_each([&](const Field& field) {
    if (field.weights_meaning && std::ranges::find(names, field.name) == names.end()) names.push_back(field.name);
  });
  return names;
}

/// Equal but for the rounding of a few operations on doubles.
bool are_equal(const Json& a, const Json& b) {
  if (!a.is_number() || !b.is_number()) return a == b;
  const auto x = a.get<double>(), y = b.get<double>();
  return std::abs(x - y) <= 1e-12 * std::max(std::abs(x), std::abs(y));
}

bool have_same_activation(const TransformerConfig& a, const TransformerConfig& b) {
  return a.activation_func == b.activation_func && a.gated_linear_unit == b.gated_linear_unit;
}

/// A model of the family that is as close to the arguments as its config.json can say, and what differs.
struct Attempt {
  std::optional<HuggingFaceModel> model;
  std::vector<std::string> differences;
};

Attempt attempt(const Family& family, const PretrainConfig& stored, const Json& arguments) {
  try {
    HuggingFaceModel model = described_model(config_of(family, arguments), family.model_type);
    if (!family.num_further_layers.empty() && arguments.contains(kFurtherLayers) &&
        !arguments[kFurtherLayers].is_null())
      model.arguments[kFurtherLayers] = arguments[kFurtherLayers];
    std::vector<std::string> differences = model_differences(stored, model.config());
    const bool has_experts = !model.arguments.value("num_experts", Json()).is_null();
    if (has_experts && !stored.transformer.moe) differences.emplace_back("num_experts is 0 there");
    return {std::move(model), std::move(differences)};
  } catch (const NotSupported& error) {
    return {std::nullopt, {error.what()}};
  } catch (const ConfigError& error) {
    return {std::nullopt, {error.what()}};
  }
}

std::string list_of(const Attempt& attempt) { return "\n  - " + joined(attempt.differences, "\n  - "); }

}  // namespace

Json model_arguments(const PretrainConfig& config) {
  Json arguments = Json::parse(arguments_to_json(config));
  PretrainConfig copy = config;
  describe(copy).for_each([&](const Field& field) {
    if (field.need && !field.need->is_met()) arguments[field.name] = nullptr;
  });
  const TransformerConfig& net = config.transformer;
  arguments["ffn_hidden_size"] = net.ffn_hidden_size;
  arguments["num_query_groups"] = net.num_query_groups;
  if (!net.mla) arguments["kv_channels"] = net.kv_channels;
  if (!net.mla) arguments["softmax_scale"] = net.softmax_scale.value_or(1 / std::sqrt(net.kv_channels));
  const bool is_yarn =
      net.mla ? net.mla->rope_type == RopeType::kYarn : net.position_embedding_type == PositionEmbeddingType::kYarn;
  if (net.mla) arguments["rope_type"] = is_yarn ? "yarn" : "rope";
  if (is_yarn) resolve_yarn(net, arguments);
  // Without rotated layers it has no effect, and 1 is as good as none.
  if (net.rotary_seq_len_interpolation_factor == 1) arguments["rotary_seq_len_interpolation_factor"] = nullptr;
  const Json unrotated = marks_of_layers(net.num_layers, [&](int64_t layer) { return net.skips_rope(layer); });
  arguments["no_rope_freq"] = net.has_rotary_positions() && has_mark(unrotated) ? unrotated : Json();
  resolve_window(net, arguments);
  if (net.moe) resolve_experts(*net.moe, net.num_layers, arguments);
  arguments["vocab_size"] = config.tokenizer.vocab_size          ? Json(*config.tokenizer.vocab_size)
                            : config.tokenizer.padded_vocab_size ? Json(*config.tokenizer.padded_vocab_size)
                                                                 : Json();
  return arguments;
}

std::vector<std::string> model_differences(const PretrainConfig& there, const PretrainConfig& here) {
  const Json stored = model_arguments(there), own = model_arguments(here);
  std::vector<std::string> texts;
  for (const std::string& name : names_of_model_arguments(there)) {
    const bool is_of_activation = name == "bias_gelu_fusion" || name == "openai_gelu";
    if (is_of_activation && have_same_activation(there.transformer, here.transformer)) continue;
    const Json x = stored.value(name, Json()), y = own.value(name, Json());
    if (!are_equal(x, y)) texts.push_back(fmt::format("{} is {} there and {} here", name, x.dump(), y.dump()));
  }
  return texts;
}

HuggingFaceModel model_of_arguments(const PretrainConfig& stored, const std::optional<std::string>& model_type,
                                    const std::optional<std::string>& preferred_type) {
  const Json arguments = model_arguments(stored);
  if (model_type) {
    const Family family = hugging_face::family_of({{"model_type", *model_type}}, "--hf-model-type");
    Attempt only = attempt(family, stored, arguments);
    require<NotSupported>(only.model && only.differences.empty(),
                          "[hugging_face] the config.json of a {} cannot express these arguments of the checkpoint "
                          "(there: the checkpoint, here: the closest {}):{}\nGive another family with --hf-model-type, "
                          "or the folder of a model of this kind with --hf-config.",
                          *model_type, *model_type, list_of(only));
    return std::move(*only.model);
  }
  std::vector<std::string> fitting;
  std::string closest;
  Attempt best;
  for (const Family& family : hugging_face::families()) {
    Attempt next = attempt(family, stored, arguments);
    const bool fits = next.model && next.differences.empty();
    if (fits && family.model_type == preferred_type) return std::move(*next.model);
    if (fits) fitting.push_back(family.model_type);
    const bool is_better = next.model && (!best.model || next.differences.size() < best.differences.size());
    if (!is_better) continue;
    best = std::move(next);
    closest = family.model_type;
  }
  require<NotSupported>(!fitting.empty(),
                        "[hugging_face] no family of Hugging Face's has models with the arguments of the checkpoint. "
                        "The closest is {} (there: the checkpoint, here: a {}):{}\nSuch a model cannot be exported.",
                        closest, closest, list_of(best));
  require<NotSupported>(fitting.size() == 1,
                        "[hugging_face] models of several families have the arguments of the checkpoint: {}. Choose "
                        "one with --hf-model-type.",
                        joined(fitting, ", "));
  return std::move(*best.model);
}

}  // namespace megatron
