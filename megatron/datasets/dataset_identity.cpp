#include "megatron/datasets/dataset_identity.h"

#include <fmt/core.h>

#include "megatron/base/md5.h"

namespace megatron {
namespace {

void describe_optional(PythonJson& json, const std::optional<std::string>& text) {
  text.has_value() ? json.string(*text) : json.null();
}

void describe_optional(PythonJson& json, const std::optional<int64_t>& number) {
  number.has_value() ? json.integer(*number) : json.null();
}

void describe_split_matrix(PythonJson& json, const SplitMatrix& matrix) {
  json.begin_array();
  for (size_t i = 0; i < matrix.size(); ++i) {
    if (!matrix[i].has_value()) {
      json.null();
      continue;
    }
    json.begin_array();
    // The bound that starts the first split is an integer in Megatron, all others are floats.
    i == 0 ? json.integer(0) : json.number(matrix[i]->lower);
    json.number(matrix[i]->upper).end_array();
  }
  json.end_array();
}

}  // namespace

void GptDatasetIdentity::describe(PythonJson& json) const {
  json.begin_object();
  json.key("class").string(class_name);
  describe_optional(json.key("dataset_path"), dataset_path);
  describe_optional(json.key("num_samples"), num_samples);
  json.key("index_split").string(name_of(index_split));
  json.key("random_seed").integer(random_seed);
  json.key("sequence_length").integer(sequence_length);
  describe_optional(json.key("split"), split);
  json.key("split_matrix");
  split_matrix.has_value() ? describe_split_matrix(json, *split_matrix) : static_cast<void>(json.null());
  json.key("tokenizer").begin_object();
  for (const auto& [key, text] : tokenizer) describe_optional(json.key(key), text);
  json.end_object().end_object();
}

std::string GptDatasetIdentity::description() const {
  PythonJson json;
  describe(json);
  return json.text();
}

std::string BlendIdentity::description() const {
  PythonJson json;
  json.begin_object().key("class").string("BlendedDataset");
  json.key("datasets").begin_array();
  for (const GptDatasetIdentity& dataset : datasets) dataset.describe(json);
  json.end_array();
  json.key("split").string(name_of(split));
  json.key("weights").begin_array();
  if (const auto* fractions = std::get_if<std::vector<double>>(&weights)) {
    for (double fraction : *fractions) json.number(fraction);
  } else {
    for (int64_t count : std::get<std::vector<int64_t>>(weights)) json.integer(count);
  }
  json.end_array();
  describe_optional(json.key("size"), size);
  json.end_object();
  return json.text();
}

std::string cache_stem(std::string_view description, std::string_view class_name, Split split) {
  return fmt::format("{}-{}-{}", md5_hex(std::as_bytes(std::span(description))), class_name, name_of(split));
}

}  // namespace megatron
