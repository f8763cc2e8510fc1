#include "megatron/tokenizers/punkt_words.h"

#include <algorithm>

#include "megatron/tokenizers/python_characters.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

/// Reads one line by NLTK's pattern of words, which the functions' comments quote.
class LineOfWords {
 public:
  explicit LineOfWords(std::string_view line) : line_(line) {}

  /// Appends the words of the line.
  void append_words(std::vector<PunktWord>& words) const {
    for (size_t begin = 0; begin < line_.size();) {
      const size_t end = word_end(begin);
      if (end == begin) {
        begin += utf8_length(line_[begin]);  // white space
        continue;
      }
      words.emplace_back(line_.substr(begin, end - begin));
      begin = end;
    }
  }

 private:
  bool is_space(size_t at) const { return at < line_.size() && is_python_space(code_point_at(line_, at)); }
  size_t next(size_t at) const { return at + utf8_length(line_[at]); }
  size_t run_end(size_t at, char c) const { return std::min(line_.find_first_not_of(c, at), line_.size()); }

  /// \-{2,} | \.{2,} | (?:\.\s){2,}\.   Returns `at` if there is none.
  size_t marks_end(size_t at) const {
    if (at >= line_.size() || (line_[at] != '-' && line_[at] != '.')) return at;
    if (const size_t end = run_end(at, line_[at]); end >= at + 2) return end;
    return line_[at] == '.' ? spaced_periods_end(at) : at;
  }

  size_t spaced_periods_end(size_t at) const {
    size_t num_periods = 0, end = at;
    for (size_t i = at; i < line_.size() && line_[i] == '.';) {
      ++num_periods;
      end = i + 1;
      if (!is_space(end)) break;
      i = next(end);
    }
    return num_periods >= 3 ? end : at;
  }

  /// \s | $ | NonWord | MultiChar
  bool is_boundary(size_t at) const {
    return at >= line_.size() || is_space(at) || separates_punkt_words(line_[at]) || marks_end(at) > at;
  }

  /// MultiChar | (?=WordStart)\S+?(?= boundary | ,(?= boundary)) | \S   Returns `begin` at white space.
  size_t word_end(size_t begin) const {
    constexpr std::string_view kNoWordStart = "(\"`{[:;&#*@)}]-,";
    if (const size_t end = marks_end(begin); end > begin) return end;
    if (is_space(begin)) return begin;
    if (kNoWordStart.find(line_[begin]) != kNoWordStart.npos) return next(begin);
    for (size_t end = next(begin);; end = next(end))
      if (is_boundary(end) || (line_[end] == ',' && is_boundary(end + 1))) return end;
  }

  std::string_view line_;
};

/// -?[\.,]?\d[\d,\.-]*\.?
bool is_number(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  if (at < text.size() && (text[at] == '.' || text[at] == ',')) ++at;
  if (at >= text.size() || !is_python_decimal(code_point_at(text, at))) return false;
  for (; at < text.size(); at += utf8_length(text[at]))
    if (text[at] != ',' && text[at] != '.' && text[at] != '-' && !is_python_decimal(code_point_at(text, at)))
      return false;
  return true;
}

bool is_letter_and_period(std::string_view text) {
  const size_t letter = utf8_length(text[0]);
  return text.size() == letter + 1 && text.back() == '.' && is_python_letter(code_point_at(text, 0));
}

bool is_blank(std::string_view line) {
  for (size_t i = 0; i < line.size(); i += utf8_length(line[i]))
    if (!is_python_space(code_point_at(line, i))) return false;
  return true;
}

}  // namespace

PunktWord::PunktWord(std::string_view word)
    : text(word),
      type(python_lower(word)),
      ends_in_period(word.ends_with('.')),
      is_ellipsis(word.size() > 1 && word.find_first_not_of('.') == word.npos),
      is_initial(is_letter_and_period(word)),
      starts_upper(is_python_upper(code_point_at(word, 0))),
      starts_lower(is_python_lower(code_point_at(word, 0))) {
  if (is_number(type)) type = "##number##";
}

std::string_view PunktWord::type_without_period() const {
  const std::string_view whole = type;
  return whole.size() > 1 && whole.ends_with('.') ? whole.substr(0, whole.size() - 1) : whole;
}

std::vector<PunktWord> punkt_words(std::string_view text) {
  std::vector<PunktWord> words;
  while (true) {
    const size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    if (!is_blank(line)) LineOfWords(line).append_words(words);
    if (newline == text.npos) return words;
    text.remove_prefix(newline + 1);
  }
}

}  // namespace megatron
