// WordPiece and WordLevel: words are looked up.
#include "megatron/base/error.h"
#include "megatron/tokenizers/hugging_face/models.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

/// Wu et al. 2016 (arXiv:1609.08144), section 4.1: the longest entry first.
class WordPieceModel final : public Model {
 public:
  explicit WordPieceModel(JsonFields& fields) {
    read_vocabulary(fields.get("vocab"), fields.where() + ".vocab", vocabulary_);
    unknown_token_ = fields.get_string("unk_token");
    prefix_ = fields.get_string("continuing_subword_prefix");
    max_characters_ = static_cast<size_t>(fields.get_integer("max_input_chars_per_word"));
  }
  std::unique_ptr<WordEncoder> make_encoder() const override;

  void append(std::string_view word, std::string& entry, std::vector<TokenId>& ids) const {
    const size_t old_size = ids.size();
    bool is_known = count_code_points(word) <= max_characters_;
    for (size_t start = 0; is_known && start < word.size();) {
      size_t end = word.size();
      std::optional<TokenId> id;
      while (end > start && !id) {
        entry = start > 0 ? prefix_ : "";
        entry += word.substr(start, end - start);
        id = vocabulary_.id_of(entry);
        if (!id) end = start_of_last_character(word, end);
      }
      is_known = id.has_value();
      if (id) ids.push_back(*id);
      start = end;
    }
    if (is_known) return;
    ids.resize(old_size);
    const auto unknown = vocabulary_.id_of(unknown_token_);
    require<DataError>(unknown.has_value(), "the word '{}' is unknown, and the vocabulary has no {}", word,
                       unknown_token_);
    ids.push_back(*unknown);
  }

 private:
  static size_t start_of_last_character(std::string_view text, size_t end) {
    do --end;
    while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
    return end;
  }

  std::string unknown_token_, prefix_;
  size_t max_characters_;
};

class WordPieceEncoder final : public WordEncoder {
 public:
  explicit WordPieceEncoder(const WordPieceModel& model) : model_(model) {}
  void append(std::string_view word, std::vector<TokenId>& ids) override { model_.append(word, entry_, ids); }

 private:
  const WordPieceModel& model_;
  std::string entry_;
};

std::unique_ptr<WordEncoder> WordPieceModel::make_encoder() const { return std::make_unique<WordPieceEncoder>(*this); }

class WordLevelModel final : public Model {
 public:
  explicit WordLevelModel(JsonFields& fields) {
    read_vocabulary(fields.get("vocab"), fields.where() + ".vocab", vocabulary_);
    unknown_token_ = fields.get_string("unk_token");
  }
  std::unique_ptr<WordEncoder> make_encoder() const override;

  TokenId id_of(std::string_view word) const {
    if (const auto id = vocabulary_.id_of(word)) return *id;
    const auto unknown = vocabulary_.id_of(unknown_token_);
    require<DataError>(unknown.has_value(), "the word '{}' is unknown, and the vocabulary has no {}", word,
                       unknown_token_);
    return *unknown;
  }

 private:
  std::string unknown_token_;
};

class WordLevelEncoder final : public WordEncoder {
 public:
  explicit WordLevelEncoder(const WordLevelModel& model) : model_(model) {}
  void append(std::string_view word, std::vector<TokenId>& ids) override { ids.push_back(model_.id_of(word)); }

 private:
  const WordLevelModel& model_;
};

std::unique_ptr<WordEncoder> WordLevelModel::make_encoder() const { return std::make_unique<WordLevelEncoder>(*this); }

}  // namespace

std::unique_ptr<Model> make_word_piece_model(JsonFields& fields) { return std::make_unique<WordPieceModel>(fields); }
std::unique_ptr<Model> make_word_level_model(JsonFields& fields) { return std::make_unique<WordLevelModel>(fields); }

}  // namespace megatron::hugging_face
