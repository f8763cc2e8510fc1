// --help, --help WORD and --help=FLAG.
#include <algorithm>

#include "megatron/base/flag_help.h"
#include "megatron/base/nearest_name.h"
#include "megatron/base/word_list.h"
#include "megatron/training/config/differences.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/config/unsupported_flags.h"

namespace megatron {
namespace {

constexpr std::string_view kHelp = "--help", kHelpOf = "--help=";

/// Whether the topic of a difference names the flag, and not only one that begins as it does.
bool names(std::string_view topic, std::string_view flag) {
  const size_t found = topic.find(flag);
  if (found == std::string_view::npos) return false;
  const size_t end = found + flag.size();
  return end == topic.size() || topic[end] == ' ' || topic[end] == ',';
}

std::string differences_of(const Field& field) {
  std::string text;
  const std::vector<std::string> spellings = field.spellings();
  for (const Difference& difference : differences({})) {
    const bool is_named =
        std::ranges::any_of(spellings, [&](const auto& flag) { return names(difference.topic, flag); });
    if (is_named || difference.flag == field.spelling())
      text += fmt::format("  difference from Megatron-LM ({}):\n    Megatron-LM: {}\n    here: {}\n", difference.topic,
                          difference.megatron, difference.ours);
  }
  return text;
}

/// What to look for instead of a word that no flag has.
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

std::string help_of_flag(const FieldTable& table, std::string flag) {
  if (!flag.starts_with("-")) flag = "--" + flag;
  if (const Field* field = table.find_flag(flag)) return help_of(*field) + differences_of(*field);
  const RefusedFlags refused = refused_flags();
  if (const auto reason = refused.find(flag); reason != refused.end())
    return fmt::format("{}: {}\n", flag, reason->second);
  return fmt::format("{}: there is no such flag; {}\n", flag, advice_for(table, flag));
}

std::string help_of_word(const FieldTable& table, std::string_view word) {
  const std::string about = help_about(table, word) + unsupported_flags_help(word);
  if (about.empty()) return fmt::format("No flag speaks of '{}'; {}\n", word, advice_for(table, word));
  return about + fmt::format("'megatron pretrain_gpt --help=FLAG' tells all about one of them.\n");
}

std::string whole_help(const FieldTable& table) {
  return "usage: megatron pretrain_gpt FLAGS\n\n"
         "Trains a GPT model. Flags, defaults and rules are Megatron-LM's. A first run, on made-up data:\n\n"
         "  megatron pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 \\\n"
         "    --max-position-embeddings 64 --micro-batch-size 4 --train-iters 20 --lr 1e-3 --log-interval 1 \\\n"
         "    --mock-data --tokenizer-type NullTokenizer --vocab-size 256\n\n"
         "'--help WORD' shows the flags that speak of WORD, '--help=FLAG' tells all about one flag.\n\n" +
         help_of(table) + unsupported_flags_help("");
}

bool is_request(const std::string& word) { return word == "-h" || word == kHelp || word.starts_with(kHelpOf); }

}  // namespace

bool asks_for_help(const std::vector<std::string>& args) { return std::any_of(args.begin(), args.end(), is_request); }

std::string help_text(const std::vector<std::string>& args) {
  PretrainConfig defaults;
  const FieldTable table = describe(defaults);
  const auto request = std::find_if(args.begin(), args.end(), is_request);
  if (request == args.end()) return whole_help(table);
  if (request->starts_with(kHelpOf)) return help_of_flag(table, request->substr(kHelpOf.size()));
  if (request + 1 == args.end()) return whole_help(table);
  const std::string& word = request[1];
  return table.find_flag(word) != nullptr ? help_of_flag(table, word) : help_of_word(table, word);
}

}  // namespace megatron
