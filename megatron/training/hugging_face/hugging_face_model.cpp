#include "megatron/training/hugging_face/hugging_face_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/safetensors_folder.h"
#include "megatron/models/hugging_face/config_reader.h"
#include "megatron/models/hugging_face/families.h"
#include "megatron/training/hugging_face/meta_folder.h"
#include "megatron/training/planning/whole_model.h"

namespace megatron {

using hugging_face::Family;
using hugging_face::Json;
using hugging_face::WeightMap;

namespace {

/// Layers for further tokens that are stored: transformers writes their number where it drops them, too.
int64_t num_stored_further_layers(const FileSystem& files, const std::string& directory, const Family& family,
                                  const Json& json, int64_t num_layers) {
  const std::optional<std::string> tensor = hugging_face::further_projection(family, num_layers);
  const int64_t count = tensor ? json.value(family.num_further_layers, int64_t{0}) : 0;
  const bool has_weights =
      files.exists(join_path(directory, kSafetensorsFile)) || files.exists(join_path(directory, kSafetensorsIndex));
  return count > 0 && has_weights && SafetensorsFolder(files, directory).contains(*tensor) ? count : 0;
}

}  // namespace

std::vector<std::string> hugging_face_side_files() {
  return {"config.json",        "generation_config.json",
          "tokenizer.json",     "tokenizer_config.json",
          "tokenizer.model",    "special_tokens_map.json",
          "added_tokens.json",  "vocab.json",
          "merges.txt",         "vocab.txt",
          "chat_template.jinja"};
}

std::vector<std::string> hugging_face_config_files() { return {kHuggingFaceConfigFile, "generation_config.json"}; }

SmallFiles read_small_files(const FileSystem& files, const std::string& folder, const std::vector<std::string>& names) {
  SmallFiles found;
  for (const std::string& name : names)
    if (const std::string path = join_path(folder, name); files.exists(path)) found[name] = read_file(files, path);
  return found;
}

void keep_hugging_face_files(FileSystem& files, const std::string& checkpoint, const SmallFiles& kept) {
  if (kept.empty()) return;
  const std::string folder = join_path(checkpoint, kHuggingFaceFolder);
  files.create_directories(folder);
  for (const auto& [name, content] : kept) write_synced(files, join_path(folder, name), content);
  files.sync_directory(folder);
}

HuggingFaceModel read_hugging_face_model(const FileSystem& files, const std::string& directory) {
  const std::string path = join_path(directory, kHuggingFaceConfigFile);
  if (!files.exists(path) && files.exists(join_path(directory, kMetaParamsFile))) {
    HuggingFaceModel model = described_model(MetaFolder(files, directory).config(), directory);
    model.directory = directory;
    model.is_meta_format = true;
    return model;
  }
  require<CheckpointError>(
      files.exists(path),
      "[hugging_face] {} is missing. Give the folder of a model in Hugging Face's format: "
      "config.json, and safetensors files beside it; or that of a Llama in Meta's: params.json and "
      "consolidated.00.pth.",
      path);
  Json json = Json::parse(read_file(files, path), nullptr, false);
  require<CheckpointError>(json.is_object(), "[hugging_face] {} is no JSON object. Fetch the file again.", path);
  HuggingFaceModel model = described_model(std::move(json), path);
  model.directory = directory;
  const int64_t num_further = num_stored_further_layers(files, directory, model.family, model.json,
                                                        model.arguments["num_layers"].get<int64_t>());
  if (num_further > 0) model.arguments["mtp_num_layers"] = num_further;
  return model;
}

HuggingFaceModel described_model(Json json, const std::string& path) {
  Family family = hugging_face::family_of(json, path);
  Json arguments = hugging_face::arguments_of(family, json, path);
  const std::optional<hugging_face::Quantization> quantization = hugging_face::quantization_of(json);
  const Json otherwise = quantization ? "bfloat16" : "float32";
  const std::string dtype = json.value("dtype", json.value("torch_dtype", otherwise)).dump();
  if (dtype == "\"bfloat16\"") arguments["bf16"] = true;
  if (dtype == "\"float16\"") arguments["fp16"] = true;
  return {{}, std::move(family), std::move(json), std::move(arguments), quantization};
}

PretrainConfig HuggingFaceModel::config() const {
  Json complete = arguments;
  complete["seq_length"] = arguments["max_position_embeddings"];
  return arguments_from_json(complete.dump());
}

std::string hugging_face_arguments(const FileSystem& files, const std::string& directory) {
  Json arguments = read_hugging_face_model(files, directory).arguments;
  TokenizerConfig tokenizer;
  take_hugging_face_tokenizer(files, directory, tokenizer);
  if (tokenizer.tokenizer_model) {
    arguments["tokenizer_type"] = tokenizer.tokenizer_type;
    arguments["tokenizer_model"] = *tokenizer.tokenizer_model;
  }
  return arguments.dump();
}

void take_hugging_face_tokenizer(const FileSystem& files, const std::string& directory, TokenizerConfig& flags) {
  const auto path = [&](const char* name) { return join_path(directory, name); };
  if (files.exists(path("tokenizer.json"))) {
    flags.tokenizer_type = "HuggingFaceTokenizer";
    flags.tokenizer_model = directory;
  } else if (files.exists(path("tokenizer.model"))) {
    flags.tokenizer_type = "GPTSentencePieceTokenizer";
    flags.tokenizer_model = path("tokenizer.model");
  } else if (files.exists(path("vocab.json")) && files.exists(path("merges.txt"))) {
    flags.tokenizer_type = "GPT2BPETokenizer";
    flags.vocab_file = path("vocab.json");
    flags.merge_file = path("merges.txt");
  } else {
    flags.tokenizer_type = "NullTokenizer";
  }
}

WeightMap weight_map_of(const Family& family, const PretrainConfig& config) {
  std::optional<WeightMap> map;
  with_whole_model(config, [&](const Model& model) { map.emplace(family, model); });
  return std::move(*map);
}

}  // namespace megatron
