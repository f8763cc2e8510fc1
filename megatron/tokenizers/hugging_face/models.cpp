#include "megatron/tokenizers/hugging_face/models.h"

#include "megatron/base/error.h"

namespace megatron::hugging_face {
namespace {
/// The type of old files without the field, by the fields that only one of them has.
std::string type_of(JsonFields& fields) {
  if (const auto type = fields.find_string("type")) return *type;
  if (fields.find("merges")) return "BPE";
  if (fields.find("unk_id")) return "Unigram";
  return fields.find("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

std::unique_ptr<Model> make_by_type(const std::string& type, JsonFields& fields) {
  if (type == "BPE") return make_bpe_model(fields);
  if (type == "Unigram") return make_unigram_model(fields);
  if (type == "WordPiece") return make_word_piece_model(fields);
  if (type == "WordLevel") return make_word_level_model(fields);
  throw NotSupported(fmt::format("{}: the model type '{}' is unknown", fields.where(), type));
}
}  // namespace

std::unique_ptr<Model> make_model(simdjson::dom::element json, const std::string& where) {
  JsonFields fields(json, where);
  std::unique_ptr<Model> model = make_by_type(type_of(fields), fields);
  fields.require_all_read();
  return model;
}

void read_vocabulary(simdjson::dom::element json, const std::string& where, Vocabulary& vocabulary) {
  simdjson::dom::object object;
  require<DataError>(!json.get(object), "{} is not an object of token ids", where);
  for (const auto& [token, id] : object) vocabulary.add(token, token_id_of(id, where), where);
}

std::vector<TokenId> byte_token_ids(const Vocabulary& vocabulary) {
  std::vector<TokenId> ids;
  for (unsigned byte = 0; byte < 256; ++byte)
    ids.push_back(vocabulary.id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1));
  return ids;
}

}  // namespace megatron::hugging_face
