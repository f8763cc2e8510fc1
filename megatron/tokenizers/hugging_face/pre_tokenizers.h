// Pre-tokenizers of a tokenizer.json: what cuts a normalized text into words.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/hugging_face/json_fields.h"
#include "megatron/tokenizers/regex_splitter.h"

namespace megatron::hugging_face {

/// A part of a text; valid until the call that hands it over returns.
struct Piece {
  std::string_view text;
  bool starts_document;  ///< its first character stands for the first one of the document
};

/// Refers to the callable that takes the pieces.
class PieceSink {
 public:
  template <class F>
  PieceSink(const F& f)
      : object_(&f), call_([](const void* object, Piece piece) { (*static_cast<const F*>(object))(piece); }) {}
  void operator()(Piece piece) const { call_(object_, piece); }

 private:
  const void* object_;
  void (*call_)(const void*, Piece);
};

/// The memory that one step of a thread keeps between calls.
struct SplitScratch {
  std::string text;
  std::optional<RegexSplitter> splitter;
};

/// One step. Immutable; threads may share it. Source: the component of the same name in tokenizers 0.23.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Hands the pieces to `sink`, in order; some may be empty, which do not count.
  virtual void split(Piece piece, SplitScratch& scratch, PieceSink sink) const = 0;
  /// Says whether the step only writes each byte of a piece in the alphabet of byte_alphabet.h.
  virtual bool only_maps_bytes() const { return false; }
  /// The pattern whose matches, and the stretches between them, are the pieces; nullptr if the step does anything else.
  virtual const RegexPattern* isolated_pattern() const { return nullptr; }
};

/// The steps of a pre-tokenizer; a Sequence has those of its members.
/// @throw NotSupported for an unknown type or field, DataError for a damaged one.
std::vector<std::unique_ptr<PreTokenizer>> make_pre_tokenizers(simdjson::dom::element json, const std::string& where);

}  // namespace megatron::hugging_face
