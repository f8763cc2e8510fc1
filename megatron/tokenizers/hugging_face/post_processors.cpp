#include "megatron/tokenizers/hugging_face/post_processors.h"

#include <map>

#include "megatron/base/error.h"

namespace megatron::hugging_face {
namespace {

/// ["[SEP]", 102]
TokenId named_id(simdjson::dom::element json, const std::string& where) {
  simdjson::dom::array pair;
  require<DataError>(!json.get(pair) && pair.size() == 2, "{} is not a token and its id", where);
  return token_id_of(pair.at(1).value(), where);
}

std::map<std::string, std::vector<TokenId>> read_special_tokens(JsonFields& fields) {
  std::map<std::string, std::vector<TokenId>> result;
  const std::string where = fields.where() + ".special_tokens";
  simdjson::dom::object object;
  require<DataError>(!fields.get("special_tokens").get(object), "{} is not an object", where);
  for (const auto& [name, json] : object) {
    JsonFields token(json, fmt::format("{}.{}", where, name));
    token.skip("id");
    token.skip("tokens");
    for (const auto& id : token.get_array("ids")) result[std::string(name)].push_back(token_id_of(id, token.where()));
    token.require_all_read();
  }
  return result;
}

/// A part of a template is {"SpecialToken": {"id": "[CLS]", "type_id": 0}} or {"Sequence": {"id": "A", "type_id": 0}}.
SpecialTokenFrame read_template(JsonFields& fields) {
  const auto special_tokens = read_special_tokens(fields);
  SpecialTokenFrame frame;
  int num_texts = 0;
  for (const auto& json : fields.get_array("single")) {
    JsonFields part(json, fields.where() + ".single");
    const auto sequence = part.find("Sequence"), special = part.find("SpecialToken");
    part.require_all_read();
    require<DataError>(sequence.has_value() != special.has_value(), "{}: a part is neither Sequence nor SpecialToken",
                       part.where());
    JsonFields content(sequence ? *sequence : *special, part.where());
    const std::string id = content.get_string("id");
    content.skip("type_id");  // of models for two texts
    content.require_all_read();
    if (sequence) {
      require<NotSupported>(id == "A" && ++num_texts == 1, "{} holds the text more than once, or another one",
                            part.where());
      continue;
    }
    const auto ids = special_tokens.find(id);
    require<DataError>(ids != special_tokens.end(), "{}: '{}' is not among the special_tokens", part.where(), id);
    std::vector<TokenId>& side = num_texts == 0 ? frame.prefix : frame.suffix;
    side.insert(side.end(), ids->second.begin(), ids->second.end());
  }
  require<NotSupported>(num_texts == 1, "{}.single leaves the text out", fields.where());
  fields.skip("pair");  // of two texts
  return frame;
}

SpecialTokenFrame read_sequence(JsonFields& fields) {
  SpecialTokenFrame frame;
  size_t index = 0;
  for (const auto& json : fields.get_array("processors")) {
    const SpecialTokenFrame outer = read_post_processor(json, fmt::format("{}[{}]", fields.where(), index++));
    frame.prefix.insert(frame.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
    frame.suffix.insert(frame.suffix.end(), outer.suffix.begin(), outer.suffix.end());
  }
  return frame;
}

SpecialTokenFrame read_by_type(const std::string& type, JsonFields& fields) {
  if (type == "TemplateProcessing") return read_template(fields);
  if (type == "Sequence") return read_sequence(fields);
  if (type != "ByteLevel" && type != "BertProcessing" && type != "RobertaProcessing")
    throw NotSupported(fmt::format("{}: the post-processor type '{}' is unknown", fields.where(), type));
  for (const char* name : {"trim_offsets", "add_prefix_space", "use_regex"}) fields.skip(name);  // about offsets
  if (type == "ByteLevel") return {};
  return {.prefix = {named_id(fields.get("cls"), fields.where() + ".cls")},
          .suffix = {named_id(fields.get("sep"), fields.where() + ".sep")}};
}
}  // namespace

SpecialTokenFrame read_post_processor(simdjson::dom::element json, const std::string& where) {
  JsonFields fields(json, where);
  SpecialTokenFrame frame = read_by_type(fields.get_string("type"), fields);
  fields.require_all_read();
  return frame;
}

}  // namespace megatron::hugging_face
