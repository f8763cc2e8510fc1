#include "megatron/tokenizers/hugging_face_tokenizer.h"

#include <filesystem>

#include "megatron/base/error.h"
#include "megatron/base/field.h"
#include "megatron/tokenizers/hugging_face/config_json.h"
#include "megatron/tokenizers/hugging_face/framed_encoder.h"
#include "megatron/tokenizers/tokenizer_file.h"

namespace megatron {
namespace {
constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kMapFile = "special_tokens_map.json";
constexpr const char* kChatTemplateFile = "chat_template.jinja";

std::filesystem::path json_path(const std::string& path) {
  const std::filesystem::path given(path);
  auto file = std::filesystem::is_directory(given) ? given / kTokenizerFile : given;
  require<DataError>(std::filesystem::exists(file),
                     "--tokenizer-model {}: there is no {}. Give the folder that holds a tokenizer.json, or the file; "
                     "models are not fetched by their name on a hub",
                     path, file.string());
  return file;
}

/// The tokens that a tokenizer_config.json or special_tokens_map.json names.
class SpecialTokenNames {
 public:
  SpecialTokenNames(const std::string& json, std::string where) : where_(std::move(where)) {
    require<DataError>(!parser_.parse(hugging_face::with_readable_integers(json)).get(object_),
                       "{} is not a JSON object", where_);
  }

  /// A string, or an object whose field content is one.
  std::optional<std::string> find(std::string_view role) {
    simdjson::dom::element value;
    if (object_.at_key(role).get(value) || value.is_null()) return std::nullopt;
    std::string_view text;
    const bool is_text = !value.get(text) || !value["content"].get(text);
    require<DataError>(is_text, "{}: {} is not a token", where_, role);
    return std::string(text);
  }

  std::optional<bool> find_bool(std::string_view name) {
    bool value = false;
    if (object_.at_key(name).get(value)) return std::nullopt;
    return value;
  }

  /// Throws unless each token of added_tokens_decoder, {"id": {"content": ...}}, has its id in `json`.
  void require_added_tokens(const hugging_face::TokenizerJson& json) {
    simdjson::dom::object tokens;
    if (object_.at_key("added_tokens_decoder").get(tokens)) return;
    for (const auto& [id, token] : tokens) {
      std::string_view content;
      const bool is_same =
          !token["content"].get(content) && json.id_of(content) && fmt::format("{}", *json.id_of(content)) == id;
      require<DataError>(is_same, "{}: added_tokens_decoder gives the id {} to '{}', which tokenizer.json does not",
                         where_, id, content);
    }
  }

  const std::string& where() const { return where_; }

 private:
  std::string where_;
  simdjson::dom::parser parser_;
  simdjson::dom::object object_;
};

/// Some classes of transformers follow these fields, others the post-processor: both must say the same.
void require_same_frame(SpecialTokenNames& names, const hugging_face::SpecialTokenFrame& frame) {
  const auto check = [&](std::string_view field, bool has) {
    const auto wanted = names.find_bool(field);
    require<DataError>(!wanted || *wanted == has,
                       "{}: {} is {}, but the post_processor of tokenizer.json {} such a token. Make the files agree",
                       names.where(), field, wanted.value_or(false), has ? "adds" : "does not add");
  };
  check("add_bos_token", !frame.prefix.empty());
  check("add_eos_token", !frame.suffix.empty());
}
}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(const Options& options) : options_(options) {
  const std::filesystem::path path = json_path(options.path);
  files_.push_back({kTokenizerFile, read_tokenizer_file("--tokenizer-model", path.string())});
  json_ = std::make_unique<hugging_face::TokenizerJson>(files_[0].content, path.string(), options.special_tokens);
  read_roles(path.parent_path().string());
}

HuggingFaceTokenizer::~HuggingFaceTokenizer() = default;

std::vector<std::string> HuggingFaceTokenizer::paths(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> result;
  for (const char* name : {kTokenizerFile, kConfigFile, kMapFile, kChatTemplateFile}) {
    const std::filesystem::path file = std::filesystem::path(path) / name;
    if (std::filesystem::exists(file)) result.push_back(file.string());
  }
  return result;
}

void HuggingFaceTokenizer::read_roles(const std::string& folder) {
  std::optional<std::string> eos, sep, pad;
  for (const char* name : {kConfigFile, kMapFile}) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (!std::filesystem::exists(path)) continue;
    files_.push_back({name, read_tokenizer_file("--tokenizer-model", path.string())});
    SpecialTokenNames names(files_.back().content, path.string());
    if (!eos) eos = names.find("eos_token");
    if (!sep) sep = names.find("sep_token");
    if (!pad) pad = names.find("pad_token");
    names.require_added_tokens(*json_);
    require_same_frame(names, json_->frame());
  }
  const std::filesystem::path chat_template = std::filesystem::path(folder) / kChatTemplateFile;
  if (std::filesystem::exists(chat_template))
    files_.push_back({kChatTemplateFile, read_tokenizer_file("--tokenizer-model", chat_template.string())});
  const auto id_of = [&](const std::optional<std::string>& token) -> std::optional<TokenId> {
    if (!token) return std::nullopt;
    const auto id = json_->id_of(*token);
    require<DataError>(id.has_value(), "{}: tokenizer_config.json names the token '{}', which tokenizer.json has not",
                       options_.path, *token);
    return id;
  };
  eod_ = id_of(eos ? eos : sep);
  pad_ = id_of(pad);
}

std::unique_ptr<TextEncoder> HuggingFaceTokenizer::make_encoder() const {
  return std::make_unique<hugging_face::FramedEncoder>(*json_, options_.include_special_tokens);
}

std::string HuggingFaceTokenizer::decode(std::span<const TokenId> ids) const {
  for (const TokenId id : ids) require_known(id);
  return json_->decode(ids, false);
}

int64_t HuggingFaceTokenizer::vocab_size() const { return json_->end_of_ids(); }

std::optional<TokenId> HuggingFaceTokenizer::id_of(std::string_view token) const { return json_->id_of(token); }

std::vector<TokenId> HuggingFaceTokenizer::special_ids() const { return json_->special_ids(); }

TokenizerIdentity HuggingFaceTokenizer::identity() const {
  return {{"class", "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"},
          {"tokenizer_path", options_.path},
          {"chat_template", "None"},
          {"vocab_file", "None"},
          {"merges_file", "None"},
          {"additional_special_tokens", python_text(options_.special_tokens)},
          {"use_fast", "True"},
          {"trust_remote_code", "False"},
          {"include_special_tokens", options_.include_special_tokens ? "True" : "False"},
          {"use_gigatoken", "False"}};
}

}  // namespace megatron
