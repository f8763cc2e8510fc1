#include "megatron/models/hugging_face/config_writer.h"

#include <cmath>

namespace megatron::hugging_face {
namespace {

/// Positions that a query sees, its own included; 0: all of them.
int64_t window_of(const Json& arguments) {
  const auto sides = argument_or(arguments, "window_size", std::vector<int64_t>{});
  return sides.empty() ? 0 : sides.front() + 1;
}

/// Lists of one number stand for it in the arguments.
const Json& only_value(const Json& value) { return value.is_array() && value.size() == 1 ? value.front() : value; }

}  // namespace

Json config_of(const Family& family, const Json& arguments) {
  Json config = {{"architectures", {family.architecture}}, {"model_type", family.model_type}};
  for (const ConfigChoice& choice : family.choices)
    if (choice.written == Written::kAlways) config[choice.key] = choice.supported.front();
  for (const ConfigValue& value : family.values) {
    const auto found = arguments.find(value.argument);
    if (found != arguments.end() && !found->is_null()) config[value.key] = only_value(*found);
  }
  family.restore(arguments, config);
  return config;
}

Json snapped(double value) {
  const double whole = std::round(value);
  if (std::abs(value - whole) <= 1e-9 * std::abs(value)) return static_cast<int64_t>(whole);
  return value;
}

void restore_tied_embeddings(const Json& arguments, Json& config) {
  config["tie_word_embeddings"] = !argument_or(arguments, "untie_embeddings_and_output_weights", false);
}

void restore_sliding_window(const Json& arguments, Json& config) {
  const int64_t window = window_of(arguments);
  config["sliding_window"] = window > 0 ? Json(window) : Json();
}

bool restore_sliding_layers(const Json& arguments, Json& config) {
  const int64_t window = window_of(arguments);
  const auto marks = argument_or(arguments, "window_attn_skip_freq", std::vector<int64_t>{});
  Json types = Json::array();
  const auto num_layers = argument_or<int64_t>(arguments, "num_layers", 0);
  for (size_t layer = 0; layer < static_cast<size_t>(num_layers); ++layer) {
    const bool is_sliding = window > 0 && (layer >= marks.size() || marks[layer] != 0);
    types.push_back(is_sliding ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
  if (window > 0) config["sliding_window"] = window;
  return window > 0;
}

}  // namespace megatron::hugging_face
