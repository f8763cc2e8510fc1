// Byte-pair encoding.
#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/tokenizers/bpe_merges.h"
#include "megatron/tokenizers/hugging_face/models.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

class BpeModel final : public Model {
 public:
  explicit BpeModel(JsonFields& fields);
  std::unique_ptr<WordEncoder> make_encoder() const override;

  /// Appends the ids that a word starts from: one a character, or the bytes of one that the vocabulary has not.
  void append_symbols(std::string_view word, std::vector<TokenId>& ids) const;
  std::optional<TokenId> whole_word(std::string_view word) const {
    return ignore_merges_ ? vocabulary_.id_of(word) : std::nullopt;
  }
  const BpeMerges& merges() const { return merges_; }

 private:
  void read_merges(JsonFields& fields);
  void add_merge(std::string_view left, std::string_view right, const std::string& where);
  std::optional<TokenId> symbol_of(std::string_view character, bool is_first, bool is_last) const;
  bool append_bytes(std::string_view symbol, std::vector<TokenId>& ids) const;

  BpeMerges merges_;
  std::string prefix_, suffix_;  // of characters that continue a word, and of its last one
  std::optional<TokenId> unknown_;
  bool fuse_unknown_, byte_fallback_, ignore_merges_;
  std::vector<TokenId> byte_ids_;
  std::vector<TokenId> small_ids_;  // of code points below 0x180, -1: none; without prefix and suffix
};

class BpeEncoder final : public WordEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model) : model_(model), merger_(model.merges()) {}
  void append(std::string_view word, std::vector<TokenId>& ids) override {
    if (const auto id = model_.whole_word(word)) return ids.push_back(*id);
    symbols_.clear();
    model_.append_symbols(word, symbols_);
    merger_.merge(symbols_);
    ids.insert(ids.end(), symbols_.begin(), symbols_.end());
  }

 private:
  const BpeModel& model_;
  BpeMerger merger_;
  std::vector<TokenId> symbols_;
};

BpeModel::BpeModel(JsonFields& fields) {
  read_vocabulary(fields.get("vocab"), fields.where() + ".vocab", vocabulary_);
  prefix_ = fields.find_string("continuing_subword_prefix").value_or("");
  suffix_ = fields.find_string("end_of_word_suffix").value_or("");
  fuse_unknown_ = fields.get_bool_or("fuse_unk", false);
  byte_fallback_ = fields.get_bool_or("byte_fallback", false);
  ignore_merges_ = fields.get_bool_or("ignore_merges", false);
  fields.skip("dropout");  // for training of models that see other cuts of a word; encoding is to be repeatable
  if (const auto token = fields.find_string("unk_token")) {
    unknown_ = vocabulary_.id_of(*token);
    require<DataError>(unknown_.has_value(), "{}: the unk_token '{}' is not in the vocabulary", fields.where(), *token);
  }
  if (byte_fallback_) byte_ids_ = byte_token_ids(vocabulary_);
  read_merges(fields);
  if (!prefix_.empty() || !suffix_.empty()) return;
  for (char32_t c = 0; c < 0x180; ++c) {
    std::string text;
    append_utf8(c, text);
    small_ids_.push_back(vocabulary_.id_of(text).value_or(-1));
  }
}

void BpeModel::read_merges(JsonFields& fields) {
  const std::string where = fields.where() + ".merges";
  for (const auto& merge : fields.get_array("merges")) {
    std::string_view line;
    if (!merge.get(line)) {  // before version 0.20: "left right"
      if (line.starts_with("#version")) continue;
      const size_t space = line.find(' ');
      require<DataError>(space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos,
                         "{}: '{}' is not two tokens with one space between them", where, line);
      add_merge(line.substr(0, space), line.substr(space + 1), where);
      continue;
    }
    simdjson::dom::array pair;
    std::string_view left, right;
    require<DataError>(!merge.get(pair) && pair.size() == 2 && !pair.at(0).get(left) && !pair.at(1).get(right),
                       "{}: a rule is not two tokens", where);
    add_merge(left, right, where);
  }
}

void BpeModel::add_merge(std::string_view left, std::string_view right, const std::string& where) {
  const auto id_of = [&](std::string_view token) {
    const auto id = vocabulary_.id_of(token);
    require<DataError>(id.has_value(), "{}: the rule '{} {}' needs the token '{}', which the vocabulary has not", where,
                       left, right, token);
    return *id;
  };
  const TokenId left_id = id_of(left), right_id = id_of(right);
  const std::string result = std::string(left).append(right.substr(std::min(prefix_.size(), right.size())));
  require<DataError>(merges_.add(left_id, right_id, id_of(result)), "{}: the rule '{} {}' is there twice", where, left,
                     right);
}

std::optional<TokenId> BpeModel::symbol_of(std::string_view character, bool is_first, bool is_last) const {
  if (!small_ids_.empty()) {
    const char32_t code_point = code_point_at(character, 0);
    if (code_point < small_ids_.size()) {
      const TokenId id = small_ids_[code_point];
      return id < 0 ? std::nullopt : std::optional(id);
    }
    return vocabulary_.id_of(character);
  }
  std::string symbol = is_first ? "" : prefix_;
  symbol += character;
  if (is_last) symbol += suffix_;
  return vocabulary_.id_of(symbol);
}

bool BpeModel::append_bytes(std::string_view symbol, std::vector<TokenId>& ids) const {
  const auto id_of = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (!byte_fallback_ || std::ranges::any_of(symbol, [&](char c) { return id_of(c) < 0; })) return false;
  for (const char c : symbol) ids.push_back(id_of(c));
  return true;
}

void BpeModel::append_symbols(std::string_view word, std::vector<TokenId>& ids) const {
  // An unknown token waits for the next known character, as in the reference: bytes may overtake it.
  bool is_unknown_pending = false;
  for (size_t offset = 0, length; offset < word.size(); offset += length) {
    length = utf8_length(word[offset]);
    const bool is_first = offset == 0, is_last = offset + length == word.size();
    const std::string_view character = word.substr(offset, length);
    const auto id = symbol_of(character, is_first, is_last);
    if (id) {
      if (is_unknown_pending) ids.push_back(*unknown_);
      is_unknown_pending = false;
      ids.push_back(*id);
      continue;
    }
    std::string symbol = is_first ? "" : prefix_;
    symbol += character;
    if (is_last) symbol += suffix_;
    if (append_bytes(symbol, ids) || !unknown_) continue;
    if (is_unknown_pending && !fuse_unknown_) ids.push_back(*unknown_);
    is_unknown_pending = true;
  }
  if (is_unknown_pending) ids.push_back(*unknown_);
}

std::unique_ptr<WordEncoder> BpeModel::make_encoder() const { return std::make_unique<BpeEncoder>(*this); }

}  // namespace

std::unique_ptr<Model> make_bpe_model(JsonFields& fields) { return std::make_unique<BpeModel>(fields); }

}  // namespace megatron::hugging_face
