#include "megatron/tokenizers/sentence_splitter.h"

#include <algorithm>
#include <utility>

#include "megatron/tokenizers/punkt_words.h"
#include "megatron/tokenizers/python_characters.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr size_t kPieceCharacters = 1'000'000;

bool is_space_at(std::string_view text, size_t at) { return is_python_space(code_point_at(text, at)); }

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size() && is_space_at(text, at)) at += utf8_length(text[at]);
  return at;
}

size_t skip_word(std::string_view text, size_t at) {
  while (at < text.size() && !is_space_at(text, at)) at += utf8_length(text[at]);
  return at;
}

size_t length_without_end_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t last = end - 1;
    while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!is_space_at(text, last)) break;
    end = last;
  }
  return end;
}

/// Returns Python's text[begin:end], which is empty if end lies before begin.
std::string_view slice(std::string_view text, size_t begin, size_t end) {
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

/// Closing quotes and brackets that belong to the sentence before: ["\')\]}]+?(?:\s+|(?=--)|$)
struct Closing {
  size_t size;        ///< without the white space behind it; 0 if there is none
  size_t with_space;  ///< the whole match
};

Closing closing_at_start(std::string_view text) {
  for (size_t n = 0; n < text.size() && std::string_view("\"')]}").find(text[n]) != std::string_view::npos;) {
    ++n;
    if (n == text.size() || text.substr(n).starts_with("--")) return {n, n};
    if (is_space_at(text, n)) return {n, skip_space(text, n)};
  }
  return {0, 0};
}

enum class SentenceStart { kNo, kYes, kUnknown };

/// The orthographic heuristic (section 4.1.1 of the paper): whether a word begins a sentence.
SentenceStart starts_sentence(const PunktWord& word, uint32_t context) {
  if (word.text.size() == 1 && std::string_view(";:,.!?").find(word.text[0]) != std::string_view::npos)
    return SentenceStart::kNo;
  using Parameters = PunktParameters;
  if (word.starts_upper && (context & Parameters::kLower) != 0 && (context & Parameters::kMiddleUpper) == 0)
    return SentenceStart::kYes;
  if (word.starts_lower && ((context & Parameters::kUpper) != 0 || (context & Parameters::kBeginLower) == 0))
    return SentenceStart::kNo;
  return SentenceStart::kUnknown;
}

}  // namespace

SentenceSplitter::SentenceSplitter(PunktParameters parameters, const Options& options)
    : parameters_(std::move(parameters)), options_(options) {}

void SentenceSplitter::split(std::string_view text, std::vector<std::string_view>& sentences) const {
  require_utf8(text);
  while (!text.empty()) {
    const size_t size = offset_of_code_point(text, kPieceCharacters);
    split_piece(text.substr(0, size), sentences);
    text.remove_prefix(size);
  }
}

/// [.?!](?=NonWord | \s+\S+)
std::optional<SentenceSplitter::Candidate> SentenceSplitter::find_candidate(std::string_view text, size_t from) const {
  for (size_t at = text.find_first_of(".?!", from); at != text.npos; at = text.find_first_of(".?!", at + 1)) {
    const size_t end = at + 1;
    if (end == text.size()) break;
    if (separates_punkt_words(text[end])) return Candidate{at, end, end, end + 1};
    const size_t next = skip_space(text, end);
    if (next > end && next < text.size()) return Candidate{at, end, next, skip_word(text, next)};
  }
  return std::nullopt;
}

/// \S*[.?!]\s*(?=NonWord | \S+)
std::optional<SentenceSplitter::Candidate> SentenceSplitter::find_candidate_with_space(std::string_view text,
                                                                                       size_t from) const {
  for (size_t begin = skip_space(text, from); begin < text.size();) {
    const size_t word_end = skip_word(text, begin);
    for (size_t at = word_end; at > begin; --at) {
      if (!may_end_sentence(text[at - 1])) continue;
      const size_t end = skip_space(text, at);
      if (end == text.size()) continue;
      return Candidate{begin, end, end, separates_punkt_words(text[end]) ? end + 1 : skip_word(text, end)};
    }
    begin = skip_space(text, word_end);
  }
  return std::nullopt;
}

/// Sentences by the candidates that do not overlap. Source: NLTK, _match_potential_end_contexts and _slices_from_text.
std::vector<SentenceSplitter::Span> SentenceSplitter::spans_of(std::string_view text) const {
  std::vector<Span> spans;
  size_t last_break = 0;
  Span word = {0, 0};
  std::optional<Candidate> before;
  const auto decide = [&](const Candidate& candidate) {
    if (!has_sentence_break(text.substr(word.begin, candidate.context_end - word.begin))) return;
    spans.push_back({last_break, candidate.end});
    last_break = candidate.next_sentence;
  };
  const auto find = [&](size_t from) {
    return options_.keep_newlines ? find_candidate_with_space(text, from) : find_candidate(text, from);
  };
  for (auto candidate = find(0); candidate; candidate = find(candidate->end)) {
    // The word in front of the match. White space that is the first character counts as none, as in NLTK.
    const std::string_view between = text.substr(word.end, candidate->begin - word.end);
    const size_t space = between.find_last_of(" \t\n\r\v\f");
    const size_t begin = space == between.npos || space == 0 ? word.begin : word.end + space + 1;
    if (before && word.end <= begin) decide(*before);
    before = candidate;
    word = {begin, candidate->begin};
  }
  if (before) decide(*before);
  spans.push_back({last_break, length_without_end_space(text)});
  return spans;
}

/// Gives closing quotes and brackets to the sentence before. Source: NLTK, _realign_boundaries.
void SentenceSplitter::split_piece(std::string_view piece, std::vector<std::string_view>& sentences) const {
  const std::vector<Span> spans = spans_of(piece);
  size_t moved = 0;
  const auto add = [&](size_t begin, size_t end) {
    if (const std::string_view sentence = slice(piece, begin, end); !sentence.empty()) sentences.push_back(sentence);
  };
  for (size_t i = 0; i < spans.size(); ++i) {
    const size_t begin = spans[i].begin + moved;
    Closing closing{0, 0};
    if (i + 1 < spans.size()) closing = closing_at_start(slice(piece, spans[i + 1].begin, spans[i + 1].end));
    add(begin, closing.size > 0 ? spans[i + 1].begin + closing.size : spans[i].end);
    moved = closing.with_space;
  }
}

bool SentenceSplitter::has_sentence_break(std::string_view context) const {
  std::vector<PunktWord> words = punkt_words(context);
  for (PunktWord& word : words) mark_alone(word);
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    mark_before(words[i], words[i + 1]);
    if (words[i].ends_sentence) return true;
  }
  return false;
}

/// The first pass: what a word tells by itself.
void SentenceSplitter::mark_alone(PunktWord& word) const {
  const std::string_view text = word.text;
  if (text.size() == 1 && may_end_sentence(text[0])) {
    word.ends_sentence = true;
  } else if (word.ends_in_period && !text.ends_with("..")) {
    const std::string stem = python_lower(text.substr(0, text.size() - 1));
    const auto& known = parameters_.abbreviations;
    word.is_abbreviation = known.contains(stem) || known.contains(stem.substr(stem.rfind('-') + 1));
    word.ends_sentence = !word.is_abbreviation;
  }
}

/// The second pass: what the next word tells.
void SentenceSplitter::mark_before(PunktWord& word, const PunktWord& next) const {
  if (!word.ends_in_period) return;
  const std::string_view type = word.type_without_period();
  const std::string next_type(next.type_in_sentence());
  const auto mark_as_abbreviation = [&word] {
    word.ends_sentence = false;
    word.is_abbreviation = true;
  };
  if (parameters_.is_collocation(type, next_type)) return mark_as_abbreviation();
  const uint32_t context = parameters_.context_of(next_type);
  const SentenceStart start = starts_sentence(next, context);
  if ((word.is_abbreviation || word.is_ellipsis) && !word.is_initial) {
    const bool is_starter = next.starts_upper && parameters_.sentence_starters.contains(next_type);
    if (start == SentenceStart::kYes || is_starter) {
      word.ends_sentence = true;
      return;
    }
  }
  if (!word.is_initial && type != "##number##") return;
  const bool is_always_upper = word.is_initial && next.starts_upper && (context & PunktParameters::kLower) == 0;
  if (start == SentenceStart::kNo || (start == SentenceStart::kUnknown && is_always_upper)) mark_as_abbreviation();
}

}  // namespace megatron
