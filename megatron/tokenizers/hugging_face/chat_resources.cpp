#include "megatron/tokenizers/hugging_face/chat_resources.h"

#include <simdjson.h>

#include <filesystem>

#include "megatron/base/error.h"
#include "megatron/tokenizers/hugging_face/config_json.h"
#include "megatron/tokenizers/tokenizer_file.h"

namespace megatron::hugging_face {
namespace {
constexpr const char* kFlag = "--tokenizer-model";

/// A string, or a list of {"name", "template"}.
std::optional<std::string> template_of(simdjson::dom::object config, const std::string& path) {
  simdjson::dom::element value;
  if (config.at_key("chat_template").get(value) || value.is_null()) return std::nullopt;
  std::string_view text;
  if (!value.get(text)) return std::string(text);
  simdjson::dom::array list;
  require<DataError>(!value.get(list), "{}: chat_template is neither a text nor a list", path);
  for (const auto& entry : list) {
    std::string_view name;
    if (!entry["name"].get(name) && name == "default" && !entry["template"].get(text)) return std::string(text);
  }
  throw DataError(fmt::format("{}: chat_template has no template named default", path));
}

void add_special_tokens(simdjson::dom::object config, ChatResources& resources) {
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    simdjson::dom::element value;
    std::string_view text;
    if (config.at_key(name).get(value) || value.is_null()) continue;
    if (!value.get(text) || !value["content"].get(text)) resources.special_tokens.emplace_back(name, text);
  }
}
}  // namespace

ChatResources read_chat_resources(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path();
  ChatResources resources;
  if (fs::exists(folder / "chat_template.jinja"))
    resources.chat_template = read_tokenizer_file(kFlag, (folder / "chat_template.jinja").string());
  const fs::path config_path = folder / "tokenizer_config.json";
  if (!fs::exists(config_path)) return resources;
  const std::string json = read_tokenizer_file(kFlag, config_path.string());
  simdjson::dom::parser parser;
  simdjson::dom::object config;
  require<DataError>(!parser.parse(with_readable_integers(json)).get(config), "{} is not a JSON object",
                     config_path.string());
  if (!resources.chat_template) resources.chat_template = template_of(config, config_path.string());
  add_special_tokens(config, resources);
  return resources;
}

}  // namespace megatron::hugging_face
