#include "megatron/training/config/unsupported_flags.h"

#include <algorithm>

#include "megatron/base/flag_help.h"
#include "megatron/base/word_list.h"

namespace megatron {
namespace {

constexpr std::string_view kNotYet = "not yet: ", kInstead = "instead: ", kModel = "(model)";

UnsupportedFlag parse_flag(std::string_view line) {
  const std::vector<std::string_view> words = words_in(line);
  const bool is_spelling = words.size() == 3 && words[1] == "=" && words[2].starts_with("--");
  const bool is_of_model = words.size() == 2 && words[1] == kModel;
  require<InternalError>(words.front().starts_with("--") && (words.size() == 1 || is_spelling || is_of_model),
                         "unsupported_flags.txt: '{}' is not a flag, '--flag = --other' or '--flag (model)'", line);
  return {.flag = words.front(),
          .spelling_of = is_spelling ? words.back() : std::string_view{},
          .changes_the_model = is_of_model};
}

std::string refusal_of(const UnsupportedFlags& group, const UnsupportedFlag& flag) {
  if (!group.is_not_yet) return std::string(group.reason);
  const std::string text = fmt::format("a flag of Megatron that megatron.cpp does not have yet: {}", group.reason);
  return flag.spelling_of.empty() ? text : fmt::format("Megatron's flag is {}, {}", flag.spelling_of, text);
}

std::vector<std::string_view> spellings_of(const UnsupportedFlags& group) {
  std::vector<std::string_view> spellings;
  for (const UnsupportedFlag& flag : group.flags) spellings.push_back(flag.flag);
  return spellings;
}

}  // namespace

std::vector<UnsupportedFlags> parse_unsupported_flags(std::string_view text) {
  std::vector<UnsupportedFlags> groups;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    const bool is_not_yet = line.starts_with(kNotYet);
    if (is_not_yet || line.starts_with(kInstead)) {
      groups.push_back({is_not_yet, line.substr(is_not_yet ? kNotYet.size() : kInstead.size()), {}});
      continue;
    }
    require<InternalError>(line.starts_with("  ") && !words_in(line).empty() && !groups.empty(),
                           "unsupported_flags.txt: '{}' is neither a reason nor a flag below one", line);
    groups.back().flags.push_back(parse_flag(line));
  }
  return groups;
}

std::vector<UnsupportedFlags> unsupported_flags() { return parse_unsupported_flags(unsupported_flags_text()); }

RefusedFlags refused_flags() {
  RefusedFlags refused;
  for (const UnsupportedFlags& group : unsupported_flags())
    for (const UnsupportedFlag& flag : group.flags)
      require<InternalError>(refused.emplace(flag.flag, refusal_of(group, flag)).second,
                             "unsupported_flags.txt has {} twice", flag.flag);
  return refused;
}

std::string unsupported_flags_help(std::string_view word) {
  std::string help;
  for (const UnsupportedFlags& group : unsupported_flags()) {
    const bool is_about = mentions(group.reason, word);
    std::vector<std::string_view> flags;
    for (const std::string_view flag : spellings_of(group))
      if (is_about || mentions(flag, word)) flags.push_back(flag);
    if (!flags.empty()) help += help_entry(fmt::format("{}:", group.reason), joined(flags, ", "));
  }
  if (help.empty()) return help;
  return "Flags of Megatron-LM that are rejected: by the feature that they belong to, or what to give instead\n" +
         help + "\n";
}

std::string unsupported_flags_markdown() {
  std::string out =
      "## Flags that are rejected\n\nFlags of Megatron-LM that belong to features which are not supported yet, and "
      "flags that were replaced.\n\n| reason, or what to give instead | flags |\n|---|---|\n";
  for (const UnsupportedFlags& group : unsupported_flags())
    out += fmt::format("| {} | `{}` |\n", group.reason, joined(spellings_of(group), "`, `"));
  return out + "\n";
}

}  // namespace megatron
