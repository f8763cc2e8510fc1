#include "megatron/base/command_help.h"

#include <algorithm>

#include "megatron/base/flag_help.h"
#include "megatron/base/flag_synonym.h"
#include "megatron/base/nearest_name.h"
#include "megatron/base/word_list.h"

namespace megatron {
namespace {

constexpr std::string_view kHelp = "--help", kHelpOf = "--help=";

bool is_request(const std::string& word) { return word == "-h" || word == kHelp || word.starts_with(kHelpOf); }

/// Suggests words to look for instead of a word that no flag has.
std::string advice_for(const FieldTable& table, std::string_view word) {
  std::vector<std::string> flags;
  table.for_each([&](const Field& field) {
    const std::vector<std::string> spellings = field.spellings();
    flags.insert(flags.end(), spellings.begin(), spellings.end());
  });
  if (const auto synonym = find_synonym(word, synonyms_of(table)))
    return synonym->flags.empty() ? synonym->remark
                                  : fmt::format("did you mean {}?", joined(words_in(synonym->flags), " or "));
  const std::string near = nearest_name(word, flags);
  return near.empty() ? "--help lists all flags" : fmt::format("did you mean {}?", near);
}

std::string more_about_word(const CommandHelp& help, std::string_view word) {
  return help.more_about_word ? help.more_about_word(word) : "";
}

std::string help_of_flag(const CommandHelp& help, std::string flag) {
  if (!flag.starts_with("-")) flag = "--" + flag;
  if (const Field* field = help.table.find_flag(flag))
    return help_of(*field) + (help.more_about_field ? help.more_about_field(*field) : "");
  const std::string other = help.about_other_flag ? help.about_other_flag(flag) : "";
  return other.empty() ? fmt::format("{}: there is no such flag; {}\n", flag, advice_for(help.table, flag)) : other;
}

std::string help_of_word(const CommandHelp& help, std::string_view word) {
  const std::string own = help_about(help.table, word), more = more_about_word(help, word);
  if (own.empty() && more.empty())
    return fmt::format("No flag mentions '{}'; {}\n", word, advice_for(help.table, word));
  return own + more + fmt::format("'{} --help=FLAG' prints everything about one flag.\n", help.command);
}

std::string whole_help(const CommandHelp& help) {
  return help.introduction +
         "'--help WORD' lists the flags that mention WORD, '--help=FLAG' prints everything about one flag.\n\n" +
         help_of(help.table) + more_about_word(help, "");
}

}  // namespace

bool asks_for_help(const std::vector<std::string>& args) { return std::any_of(args.begin(), args.end(), is_request); }

std::string help_text(const CommandHelp& help, const std::vector<std::string>& args) {
  const auto request = std::find_if(args.begin(), args.end(), is_request);
  if (request == args.end()) return whole_help(help);
  if (request->starts_with(kHelpOf)) return help_of_flag(help, request->substr(kHelpOf.size()));
  if (request + 1 == args.end()) return whole_help(help);
  const std::string& word = request[1];
  return help.table.find_flag(word) != nullptr ? help_of_flag(help, word) : help_of_word(help, word);
}

}  // namespace megatron
