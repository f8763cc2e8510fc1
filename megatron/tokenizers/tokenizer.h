// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

using TokenId = int32_t;

/// The facts that tell a tokenizer from any other: names and values in a fixed order; nullopt stands for Python's None.
using TokenizerIdentity = std::vector<std::pair<std::string, std::optional<std::string>>>;

/// A file that a tokenizer can be made from again, under the name that Megatron gives it in a checkpoint.
struct TokenizerFile {
  std::string name, content;
};

/// Encodes texts for one thread: owns the scratch memory and the caches that make a long run quick.
/// Refers to its tokenizer, which must outlive it.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// Appends the ids of `text` to `ids`. Literal special tokens inside the text become their ids; nothing is added
  /// around it. The result depends on `text` alone, never on what was encoded before.
  /// @throw DataError if the text cannot be encoded (not UTF-8, a character outside of the vocabulary, ...). `ids` may
  ///        then hold a part of the ids.
  virtual void append(std::string_view text, std::vector<TokenId>& ids) = 0;
};

/// A vocabulary and the rule that cuts text into its entries. Immutable after construction, so that any number of
/// threads may share one; each thread that encodes much takes a `TextEncoder` of its own.
///
///     const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer({.type = "ByteLevelTokenizer"});
///     const std::vector<TokenId> ids = tokenizer->encode("hi");  // {104, 105}
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::unique_ptr<TextEncoder> make_encoder() const = 0;
  /// Ids of one text, by a `TextEncoder` made for it. @throw DataError as `TextEncoder::append`.
  std::vector<TokenId> encode(std::string_view text) const;
  /// Text of the ids. @throw DataError for an id outside of [0, vocab_size).
  virtual std::string decode(std::span<const TokenId> ids) const = 0;

  /// Number of ids; they are 0 .. vocab_size - 1. Not padded.
  virtual int64_t vocab_size() const = 0;
  /// The id that ends a document, if the vocabulary has one.
  virtual std::optional<TokenId> eod() const = 0;
  /// The id that fills up short rows, if the vocabulary has one. May lie outside of the vocabulary (NullTokenizer: -1).
  virtual std::optional<TokenId> pad() const { return std::nullopt; }

  /// The id of the entry that is exactly `token`, such as "<fim_prefix>", if the vocabulary has one.
  virtual std::optional<TokenId> id_of(std::string_view token) const;
  /// The ids that Megatron leaves out of the text of a sample, such as the end of a document.
  virtual std::vector<TokenId> special_ids() const { return {}; }

  /// Names of dataset caches are hashed from it. Equal to Megatron 0.20's `unique_identifiers` where the type is
  /// Megatron's, so that its caches are found.
  virtual TokenizerIdentity identity() const = 0;
  /// Files from which make_tokenizer(), with the other flags as they were, makes the same tokenizer; none if it needs
  /// none. The same vocabulary gives the same bytes, whatever form the files had that it was read from.
  virtual std::vector<TokenizerFile> files() const { return {}; }

 protected:
  /// @throw DataError naming the id unless it is in [0, vocab_size).
  void require_known(TokenId id) const;
};

}  // namespace megatron
