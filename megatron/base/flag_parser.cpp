#include "megatron/base/flag_parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "megatron/base/nearest_name.h"
#include "megatron/base/word_list.h"

namespace megatron {
namespace {

struct Spelling {
  Field* field;
  bool turns_on;  // switches
};
using Spellings = std::map<std::string, Spelling, std::less<>>;

Spellings spellings_of(FieldTable& table) {
  Spellings spellings;
  const auto enter = [&](const std::string& flag, Spelling spelling) {
    require(spellings.emplace(flag, spelling).second, "{} is described twice", flag);
  };
  for (FieldGroup& group : table.groups())
    for (Field& field : group.fields) {
      for (const std::string& flag : field.flags) enter(flag, {&field, true});
      for (const std::string& flag : field.aliases) enter(flag, {&field, true});
      for (const std::string& flag : field.off_flags) enter(flag, {&field, false});
    }
  return spellings;
}

// Python's int() and float() allow white space around a number, a plus sign, and underscores between digits.
std::string plain_number(std::string_view word) {
  const size_t first = word.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  word = word.substr(first, word.find_last_not_of(" \t\n") - first + 1);
  if (word.size() > 1 && word.front() == '+' && word[1] != '-') word.remove_prefix(1);
  std::string text;
  const auto is_digit = [&](size_t i) { return i < word.size() && word[i] >= '0' && word[i] <= '9'; };
  for (size_t i = 0; i < word.size(); ++i)
    if (!(word[i] == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1))) text += word[i];
  return text;
}

template <class T>
std::optional<T> number_of(std::string_view word) {
  const std::string text = plain_number(word);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(value)) return std::nullopt;
  return value;
}

/// Accepts whole numbers of any size. @param word  as of plain_number()
bool is_whole(std::string_view word) {
  if (word.starts_with('-')) word.remove_prefix(1);
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

/// No flag begins with a digit: -1e-5 and -1,0 are values.
bool looks_like_flag(std::string_view word) {
  const bool begins_as_number =
      word.size() > 1 && std::string_view("0123456789.").find(word[1]) != std::string_view::npos;
  return word.size() > 1 && word.front() == '-' && !begins_as_number && word.find(' ') == std::string_view::npos;
}

void check_range(const Field& field, double value) {
  const bool too_small = field.least && (field.least_excluded ? value <= *field.least : value < *field.least);
  require<ConfigError>(!too_small, "must be {} {}", field.least_excluded ? "above" : "at least",
                       field.least.value_or(0));
  const bool too_large = field.most && (field.most_excluded ? value >= *field.most : value > *field.most);
  require<ConfigError>(!too_large, "must be {} {}", field.most_excluded ? "below" : "at most", field.most.value_or(0));
}

/// @return the choice that `word` names
const std::string& choice_of(const Field& field, const std::string& word) {
  const auto alias = field.choice_aliases.find(word);
  const std::string& choice = alias == field.choice_aliases.end() ? word : alias->second;
  if (field.choices.empty() || std::find(field.choices.begin(), field.choices.end(), choice) != field.choices.end())
    return choice;
  const bool later =
      std::find(field.later_choices.begin(), field.later_choices.end(), choice) != field.later_choices.end();
  require<ConfigError>(!later, "{}a choice of Megatron that megatron.cpp does not have yet; here are: {}",
                       choice == word ? "" : fmt::format("means {}, ", choice), joined(field.choices, ", "));
  const std::string near = nearest_name(word, field.choices);
  throw ConfigError(fmt::format("must be one of: {}{}", joined(field.choices, ", "),
                                near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
}

FieldValue read_word(const Field& field, const std::string& word) {
  if (field.read_word) return field.read_word(word);
  if (field.kind == WordKind::kInteger) {
    const auto number = number_of<int64_t>(word);
    const std::string plain = plain_number(word);
    if (!number && is_whole(plain)) check_range(field, plain.starts_with('-') ? -HUGE_VAL : HUGE_VAL);
    require<ConfigError>(number.has_value(), "must be a whole number");
    check_range(field, static_cast<double>(*number));
    return *number;
  }
  if (field.kind == WordKind::kNumber) {
    const auto number = number_of<double>(word);
    require<ConfigError>(number.has_value(), "must be a finite number");
    check_range(field, *number);
    return *number;
  }
  const std::string& choice = choice_of(field, word);
  require<ConfigError>(!word.empty(), "must not be empty");
  return choice;
}

template <class T>
std::vector<T> elements(const std::vector<FieldValue>& values) {
  std::vector<T> list;
  list.reserve(values.size());
  for (const FieldValue& value : values) list.push_back(std::get<T>(value));
  return list;
}

void set_words(Field& field, std::span<const std::string> words) {
  std::vector<FieldValue> values;
  values.reserve(words.size());
  for (const std::string& word : words) values.push_back(read_word(field, word));
  if (!field.is_list)
    field.set(values.front());
  else if (field.kind == WordKind::kInteger)
    field.set(elements<int64_t>(values));
  else if (field.kind == WordKind::kNumber)
    field.set(elements<double>(values));
  else
    field.set(elements<std::string>(values));
}

// The same switch with another word for on or off: --disable-x for --no-x; empty if there is none.
std::string other_switch(std::string_view flag, const Spellings& spellings) {
  constexpr std::string_view kPrefixes[] = {"--no-", "--disable-", "--enable-", "--use-", "--"};
  for (const std::string_view own : kPrefixes) {
    if (!flag.starts_with(own) || own == "--") continue;
    const bool is_off = own == "--no-" || own == "--disable-";
    for (const std::string_view other : kPrefixes) {
      std::string name = std::string(other) + std::string(flag.substr(own.size()));
      if (is_off == (other == "--no-" || other == "--disable-") && spellings.contains(name)) return name;
    }
  }
  return {};
}

struct Suggestion {
  std::vector<std::string> flags;
  std::string remark;
};

// The known flags that an unknown one was most likely meant to be.
Suggestion suggestion_for(std::string_view flag, const Spellings& spellings, std::span<const FlagSynonym> synonyms) {
  Suggestion suggestion;
  if (const auto synonym = find_synonym(flag, synonyms)) {
    suggestion.remark = synonym->remark;
    for (const std::string_view known : words_in(synonym->flags))
      if (spellings.contains(known)) suggestion.flags.emplace_back(known);
    if (!suggestion.flags.empty() || synonym->flags.empty()) return suggestion;
  }
  if (std::string other = other_switch(flag, spellings); !other.empty()) return {{std::move(other)}, {}};
  std::vector<std::string> names;
  for (const auto& [name, spelling] : spellings) names.push_back(name);
  if (std::string near = nearest_name(flag, names); !near.empty()) return {{std::move(near)}, {}};
  return {};
}

std::string text_of(const Suggestion& suggestion) {
  const std::string remark = suggestion.remark.empty() ? "" : fmt::format(" ({})", suggestion.remark);
  if (!suggestion.flags.empty()) return fmt::format("; did you mean {}?{}", joined(suggestion.flags, " or "), remark);
  return remark.empty() ? " (--help lists all)" : remark;
}

class Parser {
 public:
  Parser(FieldTable& table, std::span<const std::string> words, const ForeignFlags& foreign, Mistakes& mistakes)
      : spellings_(spellings_of(table)),
        synonyms_(synonyms_of(table)),
        words_(words),
        foreign_(foreign),
        mistakes_(mistakes) {
    synonyms_.insert(synonyms_.end(), foreign.synonyms.begin(), foreign.synonyms.end());
  }

  GivenFields run() {
    while (next_ < words_.size()) take(words_[next_++]);
    return std::move(given_);
  }

 private:
  void take(const std::string& word) {
    if (!looks_like_flag(word)) {
      mistakes_.refuse_value(last_flag_, last_flag_.empty()
                                             ? fmt::format("'{}' belongs to no flag", word)
                                             : fmt::format("'{}' is one word too many for {}", word, last_flag_));
      return;
    }
    const size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    std::vector<std::string> values;
    if (equals != std::string::npos) values.push_back(word.substr(equals + 1));
    last_flag_ = flag;
    const auto known = spellings_.find(flag);
    if (known == spellings_.end()) return refuse(flag);
    Field& field = *known->second.field;
    given_[field.name] = flag;
    if (field.kind == WordKind::kSwitch)
      turn(field, known->second.turns_on, flag, values);
    else
      read(field, flag, values);
  }

  void refuse(const std::string& flag) {
    if (const auto reason = foreign_.refused.find(flag); reason != foreign_.refused.end()) {
      mistakes_.refuse_value(flag, fmt::format("{}: {}", flag, reason->second));
    } else {
      const Suggestion suggestion = suggestion_for(flag, spellings_, synonyms_);
      mistakes_.refuse_value(flag, fmt::format("{}: there is no such flag{}", flag, text_of(suggestion)));
      for (const std::string& meant : suggestion.flags) mistakes_.doubt(meant);
    }
    while (next_ < words_.size() && !looks_like_flag(words_[next_])) ++next_;
  }

  void turn(Field& field, bool on, const std::string& flag, const std::vector<std::string>& values) {
    if (!values.empty())
      mistakes_.refuse_value(flag, fmt::format("{} is a switch and takes no value, got '{}'", flag, values.front()));
    field.set(on);
  }

  void read(Field& field, const std::string& flag, std::vector<std::string>& values) {
    const bool given_by_equals = !values.empty();
    while (!given_by_equals && next_ < words_.size() && !looks_like_flag(words_[next_]) &&
           (field.is_list ? !field.max_words || values.size() < *field.max_words : values.empty()))
      values.push_back(words_[next_++]);
    if (values.size() < (field.is_list ? field.min_words : 1)) {
      mistakes_.refuse_value(field.spelling(), field.is_list && field.min_words > 1
                                                   ? fmt::format("{} needs {} values", flag, field.min_words)
                                                   : fmt::format("{} needs a value", flag));
      return;
    }
    try {
      set_words(field, values);
    } catch (const ConfigError& error) {
      const std::string given = joined(values, " ");
      mistakes_.refuse_value(field.spelling(),
                             fmt::format("{} {}: {}", flag, given.empty() ? "''" : given, error.what()));
    }
  }

  Spellings spellings_;
  std::vector<FlagSynonym> synonyms_;
  std::span<const std::string> words_;
  const ForeignFlags& foreign_;
  Mistakes& mistakes_;
  GivenFields given_;
  size_t next_ = 0;
  std::string last_flag_;
};

}  // namespace

GivenFields parse_flags(FieldTable& table, std::span<const std::string> words, const ForeignFlags& foreign,
                        Mistakes& mistakes) {
  return Parser(table, words, foreign, mistakes).run();
}

}  // namespace megatron
