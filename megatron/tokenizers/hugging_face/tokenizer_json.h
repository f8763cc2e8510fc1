// A tokenizer.json as a whole: text to ids and back.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "megatron/tokenizers/hugging_face/added_tokens.h"
#include "megatron/tokenizers/hugging_face/decoders.h"
#include "megatron/tokenizers/hugging_face/models.h"
#include "megatron/tokenizers/hugging_face/post_processors.h"
#include "megatron/tokenizers/hugging_face/pre_tokenizers.h"
#include "megatron/tokenizers/id_buffer.h"

namespace megatron::hugging_face {

/// The components of a tokenizer.json. Immutable; threads may share it.
class TokenizerJson {
 public:
  /// @param json  the content of the file. @param where  its name in errors.
  /// @param special_tokens  added as special tokens, behind the vocabulary if it has them not.
  /// @throw DataError for a damaged file, NotSupported naming what it holds that is unknown.
  TokenizerJson(std::string_view json, const std::string& where, const std::vector<std::string>& special_tokens);

  /// One more than the largest id.
  TokenId end_of_ids() const;
  std::optional<TokenId> id_of(std::string_view token) const;
  /// The ids of the special added tokens, ascending.
  std::vector<TokenId> special_ids() const;
  /// The text of the ids, which must be below end_of_ids(). An id without a token has none.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;
  const SpecialTokenFrame& frame() const { return frame_; }

 private:
  friend class TextPipeline;
  void add_tokens(const std::vector<AddedToken>& tokens);
  std::string normalized_content(const AddedToken& token) const;

  std::string where_;
  std::unique_ptr<Normalizer> normalizer_;                // null: none
  std::vector<std::unique_ptr<PreTokenizer>> splitting_;  // without a last step that only maps bytes
  std::unique_ptr<PreTokenizer> byte_map_;                // that step, or null
  std::unique_ptr<Model> model_;
  std::unique_ptr<Decoder> decoder_;  // null: tokens are joined by spaces
  SpecialTokenFrame frame_;
  AddedTokenMatcher raw_matcher_, normalized_matcher_;
  bool has_normalized_tokens_ = false;
  std::unordered_map<TokenId, std::string> added_;    // the text that decoding takes
  std::unordered_set<std::string> special_contents_;  // which need not be that text
  std::unordered_map<std::string, TokenId> added_ids_;
  TokenId end_of_ids_ = 0;
};

/// Encodes texts for one thread. Refers to the TokenizerJson, which must outlive it.
class TextPipeline {
 public:
  explicit TextPipeline(const TokenizerJson& tokenizer);
  ~TextPipeline();
  /// Appends the ids of a text, without the frame. @throw DataError if the text is not UTF-8.
  void append(std::string_view text, std::vector<TokenId>& ids);

 private:
  class Words;
  void append_part(std::string_view part, bool starts_document);
  void append_normalized(std::string_view text, bool starts_document);
  void split(size_t step, Piece piece);

  const TokenizerJson& tokenizer_;
  std::vector<SplitScratch> scratch_;           // of each step
  std::optional<RegexSplitter> last_splitter_;  // of the last step, if that only cuts by a pattern
  IdBuffer ids_;
  std::unique_ptr<Words> words_;
};

}  // namespace megatron::hugging_face
