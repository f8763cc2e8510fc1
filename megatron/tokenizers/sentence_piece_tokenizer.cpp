#include "megatron/tokenizers/sentence_piece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/field.h"
#include "megatron/tokenizers/sentence_piece_spec.h"
#include "megatron/tokenizers/sentence_piece_unigram.h"
#include "megatron/tokenizers/tokenizer_file.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron {
namespace {
constexpr std::string_view kPlaceholder = "\u262F";  // stands for a space that the model would drop
constexpr std::string_view kSeparator = "\u2581";    // what SentencePiece writes for a space

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

size_t start_of_last_character(std::string_view text) {
  size_t start = text.size() - 1;
  while ((static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return start;
}

/// Python's str.rstrip.
std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty() && is_python_space(code_point_at(text, start_of_last_character(text))))
    text = text.substr(0, start_of_last_character(text));
  return text;
}

/// Python's str.strip.
std::string_view stripped(std::string_view text) {
  text = without_trailing_space(text);
  while (!text.empty() && is_python_space(code_point_at(text, 0))) text.remove_prefix(utf8_length(text[0]));
  return text;
}

/// Python's re.sub(r"(?<= )(?= )|^ | $", " \u262F ", text).
std::string with_placeholders(std::string_view text) {
  const std::string replacement = " " + std::string(kPlaceholder) + " ";
  const auto ends_at = [&](size_t i) { return i == text.size() || (i + 1 == text.size() && text[i] == '\n'); };
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_space = text[i] == ' ';
    if (is_space && i > 0 && text[i - 1] == ' ') result += replacement;
    if (is_space && (i == 0 || ends_at(i + 1)))
      result += replacement;
    else
      result += text[i];
  }
  return result;
}

/// Returns the end of the word that starts at `begin`: before the first spaces behind it. A single space that ends the
/// text belongs to the last word, and U+2581, which the model takes for a space, to the word in front of it.
size_t end_of_word(std::string_view text, size_t begin) {
  size_t end = std::min(text.find_first_not_of(' ', begin), text.size());
  while ((end = text.find(' ', end)) != std::string_view::npos && end + 1 < text.size()) {
    if (!text.substr(begin, end - begin).ends_with(kSeparator)) return end;
    end = std::min(text.find_first_not_of(' ', end), text.size());
  }
  return text.size();
}
}  // namespace

bool has_sentence_piece() { return true; }

/// The library's processor, the file and the special tokens of the legacy mode.
class SentencePieceTokenizer::Model {
 public:
  explicit Model(const Options& options) : content_(read_tokenizer_file("--tokenizer-model", options.path)) {
    const auto status = processor_.LoadFromSerializedProto(content_);
    require<DataError>(status.ok(), "--tokenizer-model {} is not a SentencePiece model: {}. Give the .model file",
                       options.path, status.message());
    require<ConfigError>(options.special_tokens.empty() || options.legacy,
                         "--tokenizer-special-tokens of a SentencePiece model need --tokenizer-sentencepiece-legacy, "
                         "or must be symbols of the model");
    vocab_size_ = processor_.GetPieceSize();
    separator_ = processor_.PieceToId(kSeparator);
    drops_spaces_ = encoded("x  y") == encoded("x y");
    const SentencePieceSpec spec = SentencePieceSpec::of(content_);
    adds_prefix_ = spec.add_dummy_prefix;
    encodes_words_ = spec.model_type == SentencePieceSpec::ModelType::kBpe && spec.charsmap.empty() &&
                     !spec.remove_extra_whitespaces && spec.escape_whitespaces && !spec.treat_whitespace_as_suffix &&
                     separator_ != processor_.unk_id() && pieces_stay_in_words();
    if (SentencePieceUnigram::supports(spec)) unigram_.emplace(spec);
    for (const std::string& token : options.special_tokens) add_special(token);
  }

  const std::string& content() const { return content_; }
  int vocab_size() const { return vocab_size_; }
  TokenId separator() const { return separator_; }
  bool drops_spaces() const { return drops_spaces_; }
  /// Says whether a text has the ids of its words: no merge of a byte-pair encoding joins the spaces in front of a word
  /// with the word before them. Cuts of unigram models also depend on the rounded sum of all scores so far.
  bool encodes_words() const { return encodes_words_; }
  /// Encodes faster than the library; null for other models than unigram ones.
  const SentencePieceUnigram* unigram() const { return unigram_ ? &*unigram_ : nullptr; }
  /// Says whether a space is put in front of each text.
  bool adds_prefix() const { return adds_prefix_; }
  TokenId eos() const { return processor_.eos_id(); }
  TokenId pad() const { return processor_.pad_id(); }
  const std::vector<std::pair<std::string, TokenId>>& special_tokens() const { return special_tokens_; }
  const std::string* special_of(TokenId id) const {
    const auto place = std::ranges::find(special_tokens_, id, &std::pair<std::string, TokenId>::second);
    return place == special_tokens_.end() ? nullptr : &place->first;
  }

  std::vector<TokenId> encoded(std::string_view text) const {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    require<DataError>(status.ok(), "SentencePiece cannot encode the text: {}", status.message());
    return ids;
  }

  std::string decoded(std::span<const TokenId> ids) const {
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    require<DataError>(status.ok(), "SentencePiece cannot decode the ids: {}", status.message());
    return text;
  }

 private:
  bool pieces_stay_in_words() const {
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string_view piece = processor_.IdToPiece(id);
      if (processor_.IsControl(id) || processor_.IsUnknown(id)) continue;
      std::string_view rest = piece;
      while (rest.starts_with(kSeparator)) rest.remove_prefix(kSeparator.size());
      if (rest.find(kSeparator) != std::string_view::npos || rest.find(' ') != std::string_view::npos) return false;
    }
    return true;
  }
  void add_special(const std::string& token) {
    require<ConfigError>(!token.empty(), "a special token is empty");
    const auto named = [&](const auto& entry) { return entry.first == token; };
    if (std::ranges::any_of(special_tokens_, named)) return;
    const TokenId known = processor_.PieceToId(token);
    special_tokens_.emplace_back(token, known == processor_.unk_id() ? vocab_size_++ : known);
  }

  std::string content_;
  sentencepiece::SentencePieceProcessor processor_;
  std::optional<SentencePieceUnigram> unigram_;
  int vocab_size_ = 0;
  TokenId separator_ = -1;
  bool drops_spaces_ = false, adds_prefix_ = true, encodes_words_ = false;
  std::vector<std::pair<std::string, TokenId>> special_tokens_;
};

class SentencePieceEncoder final : public TextEncoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceTokenizer& tokenizer)
      : model_(*tokenizer.model_),
        legacy_(tokenizer.options_.legacy),
        keeps_spaces_(!tokenizer.options_.ignore_extra_whitespaces && model_.drops_spaces()) {}

  void append(std::string_view text, std::vector<TokenId>& ids) override {
    require_utf8(text);
    std::string marked;
    if (keeps_spaces_) {
      marked = with_placeholders(text);
      text = without_trailing_space(marked);
    }
    const size_t first = ids.size();
    while (legacy_) {
      const auto [begin, special] = first_special(text);
      if (special == nullptr) break;
      append_between(text.substr(0, begin), first, ids);
      ids.push_back(special->second);
      text.remove_prefix(begin + special->first.size());
    }
    if (keeps_spaces_)
      append_marked(text, ids);
    else if (model_.unigram() != nullptr)
      model_.unigram()->append(text, unigram_scratch_, ids);
    else if (model_.encodes_words())
      append_words(text, ids);
    else
      append_all(model_.encoded(text), ids);
  }

 private:
  using Special = std::pair<std::string, TokenId>;
  static void append_all(std::span<const TokenId> added, std::vector<TokenId>& ids) {
    ids.insert(ids.end(), added.begin(), added.end());
  }

  /// The special token that starts first; the one given first of several.
  std::pair<size_t, const Special*> first_special(std::string_view text) const {
    std::pair<size_t, const Special*> found{text.size(), nullptr};
    for (const Special& special : model_.special_tokens()) {
      const size_t begin = text.find(special.first);
      if (begin < found.first) found = {begin, &special};
    }
    return found;
  }

  /// Text in front of a special token. Behind another one it loses the separator that SentencePiece puts first.
  void append_between(std::string_view text, size_t first, std::vector<TokenId>& ids) const {
    const std::vector<TokenId> added = model_.encoded(text);
    const bool follows_special = ids.size() > first && model_.special_of(ids.back()) != nullptr;
    const size_t skipped = follows_special && !added.empty() && added[0] == model_.separator() ? 1 : 0;
    append_all(std::span(added).subspan(skipped), ids);
  }

  void append_words(std::string_view text, std::vector<TokenId>& ids) {
    buffer_.clear();
    for (size_t begin = 0, end; begin < text.size(); begin = end) {
      end = end_of_word(text, begin);
      // The library puts one of the spaces in front of a further word, too.
      const size_t start = begin + (begin > 0 && model_.adds_prefix() ? 1 : 0);
      const std::string_view word = text.substr(start, end - start);
      if (words_.append(word, buffer_)) continue;
      const std::vector<TokenId> added = model_.encoded(word);
      words_.insert(word, added);
      buffer_.append(added);
    }
    append_all(buffer_.ids(), ids);
  }

  /// Text with placeholders, which are encoded with what stands before them and dropped again.
  void append_marked(std::string_view text, std::vector<TokenId>& ids) const {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(kPlaceholder, begin), text.size());
      if (end > begin) {
        std::vector<TokenId> added = model_.encoded(std::string(text.substr(begin, end - begin)).append(kPlaceholder));
        if (!added.empty()) added.pop_back();
        append_all(added, ids);
      }
      begin = end + kPlaceholder.size();
    }
  }

  const SentencePieceTokenizer::Model& model_;
  bool legacy_, keeps_spaces_;
  WordCache words_;
  IdBuffer buffer_;
  SentencePieceUnigram::Scratch unigram_scratch_;
};

SentencePieceTokenizer::SentencePieceTokenizer(const Options& options)
    : options_(options), model_(std::make_unique<Model>(options)) {}
SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::unique_ptr<TextEncoder> SentencePieceTokenizer::make_encoder() const {
  return std::make_unique<SentencePieceEncoder>(*this);
}

std::string SentencePieceTokenizer::decode(std::span<const TokenId> ids) const {
  for (const TokenId id : ids) require_known(id);
  if (!options_.legacy) return model_->decoded(ids);
  std::string text;
  size_t begin = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string* special = model_->special_of(ids[i]);
    if (special == nullptr) continue;
    text += model_->decoded(ids.subspan(begin, i - begin)) + " " + *special + " ";
    begin = i + 1;
  }
  text += model_->decoded(ids.subspan(begin));
  return std::string(stripped(text));
}

int64_t SentencePieceTokenizer::vocab_size() const { return model_->vocab_size(); }

std::optional<TokenId> SentencePieceTokenizer::eod() const {
  return model_->eos() < 0 ? std::nullopt : std::optional(model_->eos());
}

std::optional<TokenId> SentencePieceTokenizer::pad() const { return model_->pad(); }

TokenizerIdentity SentencePieceTokenizer::identity() const {
  const auto text_of = [](bool value) { return value ? "True" : "False"; };
  return {{"class", "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"},
          {"tokenizer_path", options_.path},
          {"chat_template", "None"},
          {"ignore_extra_whitespaces", text_of(options_.ignore_extra_whitespaces)},
          {"legacy", text_of(options_.legacy)},
          {"special_tokens", options_.special_tokens.empty() ? "None" : python_text(options_.special_tokens)}};
}

std::vector<TokenizerFile> SentencePieceTokenizer::files() const { return {{"tokenizer.model", model_->content()}}; }

}  // namespace megatron
