#include "megatron/tokenizers/hugging_face/pre_tokenizers.h"

#include <algorithm>
#include <array>
#include <functional>

#include "megatron/base/error.h"
#include "megatron/tokenizers/byte_alphabet.h"
#include "megatron/tokenizers/hugging_face/crate_characters.h"
#include "megatron/tokenizers/hugging_face/text_pattern.h"
#include "megatron/tokenizers/hugging_face/unicode_scripts.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// The \w of Rust's regex crate: Unicode Technical Standard 18, annex C.
constexpr std::string_view kWords =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\s]+)";

void hand_over(Piece piece, const std::vector<std::pair<size_t, size_t>>& ranges, PieceSink sink) {
  for (const auto& [begin, end] : ranges)
    sink({piece.text.substr(begin, end - begin), piece.starts_document && begin == 0});
}

RegexSplitter& splitter_of(SplitScratch& scratch, const RegexPattern& pattern) {
  if (!scratch.splitter) scratch.splitter.emplace(pattern);
  return *scratch.splitter;
}

class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(Piece piece, SplitScratch& scratch, PieceSink sink) const override {
    RegexSplitter& splitter = splitter_of(scratch, pattern_.compiled());
    if (isolated_pattern() != nullptr) {
      splitter.for_each_piece(piece.text, [&](std::string_view part) {
        sink({part, piece.starts_document && part.data() == piece.text.data()});
      });
      return;
    }
    std::vector<PatternPart> parts = pattern_.parts(piece.text, splitter);
    if (invert_)
      for (PatternPart& part : parts) part.is_match = !part.is_match;
    hand_over(piece, pieces_of(parts, behavior_), sink);
  }
  const RegexPattern* isolated_pattern() const override {
    const bool all_parts_are_pieces = behavior_ == SplitBehavior::kIsolated && !pattern_.compiled().matches_empty();
    return all_parts_are_pieces ? &pattern_.compiled() : nullptr;
  }

 private:
  TextPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(std::function<bool(char32_t)> matches, SplitBehavior behavior)
      : matches_(std::move(matches)), behavior_(behavior) {}
  void split(Piece piece, SplitScratch&, PieceSink sink) const override {
    hand_over(piece, pieces_of(character_parts(piece.text, matches_), behavior_), sink);
  }

 private:
  std::function<bool(char32_t)> matches_;
  SplitBehavior behavior_;
};

class PrefixSpace final : public PreTokenizer {
 public:
  void split(Piece piece, SplitScratch& scratch, PieceSink sink) const override {
    if (piece.text.starts_with(' ')) return sink(piece);
    scratch.text = " ";
    scratch.text += piece.text;
    sink({scratch.text, piece.starts_document});
  }
};

class ByteMap final : public PreTokenizer {
 public:
  void split(Piece piece, SplitScratch& scratch, PieceSink sink) const override {
    scratch.text.clear();
    for (const char c : piece.text) scratch.text += alphabet_[static_cast<unsigned char>(c)];
    sink({scratch.text, piece.starts_document});
  }
  bool only_maps_bytes() const override { return true; }

 private:
  std::array<std::string, 256> alphabet_ = byte_alphabet();
};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(JsonFields& fields, const std::string& where) : replacement_(fields.get_string("replacement")) {
    require<DataError>(count_code_points(replacement_) == 1, "{}: 'replacement' is not one character", where);
    scheme_ = fields.find_string("prepend_scheme").value_or("always");
    require<NotSupported>(scheme_ == "first" || scheme_ == "never" || scheme_ == "always",
                          "{}: the prepend_scheme '{}' is unknown", where, scheme_);
    if (!fields.get_bool_or("add_prefix_space", true)) {  // of versions before prepend_scheme
      require<DataError>(scheme_ == "never" || !fields.find("prepend_scheme"),
                         "{}: add_prefix_space false contradicts the prepend_scheme '{}'", where, scheme_);
      scheme_ = "never";
    }
    fields.skip("str_rep");
    split_ = fields.get_bool_or("split", true);
  }

  void split(Piece piece, SplitScratch& scratch, PieceSink sink) const override {
    std::string& text = scratch.text;
    text.clear();
    for (const char c : piece.text) c == ' ' ? text += replacement_ : text += c;
    if (prepends(piece.starts_document) && !text.starts_with(replacement_)) text.insert(0, replacement_);
    const Piece whole{text, piece.starts_document};
    if (!split_) return sink(whole);
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t end = std::min(text.find(replacement_, begin + 1), text.size());
      sink({std::string_view(text).substr(begin, end - begin), whole.starts_document && begin == 0});
      begin = end;
    }
  }

 private:
  bool prepends(bool starts_document) const { return scheme_ == "always" || (scheme_ == "first" && starts_document); }
  std::string replacement_, scheme_;
  bool split_;
};

class FixedLength final : public PreTokenizer {
 public:
  FixedLength(JsonFields& fields, const std::string& where) : length_(fields.get_integer_or("length", 5)) {
    require<DataError>(length_ >= 1, "{}: the length {} is not at least 1", where, length_);
  }
  void split(Piece piece, SplitScratch&, PieceSink sink) const override {
    for (size_t begin = 0; begin < piece.text.size();) {
      const size_t size = offset_of_code_point(piece.text.substr(begin), static_cast<size_t>(length_));
      sink({piece.text.substr(begin, size), piece.starts_document && begin == 0});
      begin += size;
    }
  }

 private:
  int64_t length_;
};

class UnicodeScripts final : public PreTokenizer {
 public:
  void split(Piece piece, SplitScratch& scratch, PieceSink sink) const override {
    // A text that starts with characters of no script loses them, as the reference does.
    splitter_of(scratch, pattern_).for_each_match(piece.text, [&](RegexSplitter::Range run) {
      sink({piece.text.substr(run.begin, run.end - run.begin), piece.starts_document && run.begin == 0});
    });
  }

 private:
  RegexPattern pattern_{script_runs_pattern()};
};

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

void add_byte_level(JsonFields& fields, Steps& steps) {
  if (fields.get_bool("add_prefix_space")) steps.push_back(std::make_unique<PrefixSpace>());
  fields.skip("trim_offsets");  // says nothing about ids
  if (fields.get_bool_or("use_regex", true))
    steps.push_back(std::make_unique<PatternSplit>(TextPattern::regex(kGpt2Pattern), SplitBehavior::kIsolated, false));
  steps.push_back(std::make_unique<ByteMap>());
}

void add_bert(Steps& steps) {
  steps.push_back(std::make_unique<CharacterSplit>(is_white_space, SplitBehavior::kRemoved));
  steps.push_back(std::make_unique<CharacterSplit>(is_punctuation, SplitBehavior::kIsolated));
}

char32_t delimiter_of(JsonFields& fields) {
  const std::string text = fields.get_string("delimiter");
  require<DataError>(count_code_points(text) == 1, "{}: 'delimiter' is not one character", fields.where());
  return code_point_at(text, 0);
}

/// @return the step, or nullptr for a type that is unknown.
std::unique_ptr<PreTokenizer> make_step(const std::string& type, JsonFields& fields, const std::string& where) {
  if (type == "Metaspace") return std::make_unique<Metaspace>(fields, where);
  if (type == "FixedLength") return std::make_unique<FixedLength>(fields, where);
  if (type == "UnicodeScripts") return std::make_unique<UnicodeScripts>();
  if (type == "WhitespaceSplit") return std::make_unique<CharacterSplit>(is_white_space, SplitBehavior::kRemoved);
  if (type == "Whitespace")
    return std::make_unique<PatternSplit>(TextPattern::regex(kWords), SplitBehavior::kRemoved, true);
  if (type == "Digits")
    return std::make_unique<CharacterSplit>(
        is_number, fields.get_bool("individual_digits") ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  if (type == "Punctuation")
    return std::make_unique<CharacterSplit>(
        is_punctuation, split_behavior_of(fields.find_string("behavior").value_or("Isolated"), where));
  if (type == "CharDelimiterSplit")
    return std::make_unique<CharacterSplit>([delimiter = delimiter_of(fields)](char32_t c) { return c == delimiter; },
                                            SplitBehavior::kRemoved);
  if (type == "Split")
    return std::make_unique<PatternSplit>(TextPattern(fields.get("pattern"), where + ".pattern"),
                                          split_behavior_of(fields.get_string("behavior"), where),
                                          fields.get_bool("invert"));
  throw NotSupported(fmt::format("{}: the pre-tokenizer type '{}' is unknown", where, type));
}

void add_steps(simdjson::dom::element json, const std::string& where, Steps& steps) {
  JsonFields fields(json, where);
  const std::string type = fields.get_string("type");
  if (type == "Sequence") {
    size_t index = 0;
    for (const auto& member : fields.get_array("pretokenizers"))
      add_steps(member, fmt::format("{}[{}]", where, index++), steps);
  } else if (type == "ByteLevel") {
    add_byte_level(fields, steps);
  } else if (type == "BertPreTokenizer") {
    add_bert(steps);
  } else {
    steps.push_back(make_step(type, fields, where));
  }
  fields.require_all_read();
}
}  // namespace

std::vector<std::unique_ptr<PreTokenizer>> make_pre_tokenizers(simdjson::dom::element json, const std::string& where) {
  Steps steps;
  add_steps(json, where, steps);
  return steps;
}

}  // namespace megatron::hugging_face
