#include "commands/data_check.h"

#include <fmt/core.h>

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "commands/conversation_check.h"
#include "commands/terminal.h"
#include "commands/tokenizer_flags.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/mistakes.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/token_check.h"
#include "megatron/tokenizers/chat_template_source.h"
#include "megatron/training/config/flag_synonyms.h"

namespace megatron {
namespace {

constexpr std::string_view kCheckIntroduction =
    R"(usage: megatron data check PREFIX... [flags]

Reads all of PREFIX.idx and PREFIX.bin: whether the files are complete and fit each other, and whether
every token is in the vocabulary, of --vocab-size entries or that of the tokenizer. The first fault of
each dataset is named with its document, sequence, position, byte and token.

  megatron data check data/corpus_text_document --vocab-size 50257
  megatron data check chats.jsonl --sft --sft-tokenizer-prompt-format chat-template --seq-length 4096 \
      --tokenizer-type SFTTokenizer --tokenizer-model model/
  megatron data check data/*.idx --tokenizer-type HuggingFaceTokenizer --tokenizer-model model/

)";

struct CheckConfig {
  std::vector<std::string> data_path;
  bool sft = false;
  std::optional<int64_t> seq_length;
  PromptFormat sft_tokenizer_prompt_format = PromptFormat::kNemotronHAligned;
  std::optional<std::string> chat_template;
  bool mmap_bin_files = true;
  TokenizerOptions tokenizer;
};

FieldTable describe_check(CheckConfig& config) {
  FieldTable table;
  table.begin_group("Data", "");
  table.add("data_path", config.data_path, "prefixes, or .idx files; those before the flags need no flag");
  table.add("mmap_bin_files", config.mmap_bin_files, "read .bin files instead of mapping them")
      .turned_off_by({"--no-mmap-bin-files"});
  table.begin_group("Conversations", "Flags of training have the same meaning here.");
  table.add("sft", config.sft, "the files are conversations in JSON Lines; every line is encoded as training does");
  table.add("seq_length", config.seq_length, "count the lines that have more tokens").in("tokens").at_least(1);
  table.add("sft_tokenizer_prompt_format", config.sft_tokenizer_prompt_format, "how a conversation becomes text");
  table.add("chat_template", config.chat_template, "a chat template in Jinja, or its file")
      .by_default("that of --tokenizer-model");
  describe_tokenizer_flags(table, config.tokenizer);
  return table;
}

/// The number of ids that are right; 0: not known.
int64_t vocab_size_of(const TokenizerOptions& tokenizer) {
  if (tokenizer.type.empty()) return tokenizer.vocab_size.value_or(0);
  return make_tokenizer(tokenizer)->vocab_size();
}

std::unique_ptr<Tokenizer> conversation_tokenizer_of(TokenizerOptions options) {
  if (tokenizer_reads(options.type, "--tokenizer-hf-no-include-special-tokens"))
    options.hf_no_include_special_tokens = true;  // the format of a conversation has them
  return make_tokenizer(options);
}

ConversationEncoder encoder_of(const CheckConfig& config, const Tokenizer& tokenizer) {
  ConversationEncoder::Options options{.format = config.sft_tokenizer_prompt_format};
  if (has_chat_template(options.format)) {
    ChatTemplateSource source = find_chat_template(config.tokenizer, config.chat_template);
    options.chat_template = std::move(source.text);
    options.variables = std::move(source.variables);
  }
  return {tokenizer, options};
}

/// One line of the report. @throw DataError
std::string checked(const std::string& prefix, const CheckConfig& config, int64_t vocab_size, Progress& progress) {
  const IndexedDataset data(prefix, {.access = config.mmap_bin_files ? FileAccess::kMap : FileAccess::kPread});
  progress.begin({.title = "checking " + prefix, .unit = "tokens", .total = data.num_tokens()});
  const TokenCheck check = check_tokens(data, vocab_size, [&](int64_t done) { progress.update(done, ""); });
  progress.end();
  if (!check.first_fault)
    return fmt::format("{}: {} documents, {} sequences, {} tokens of {}, the largest {}: no fault\n", prefix,
                       data.num_documents(), data.num_sequences(), data.num_tokens(), name_of(data.token_type()),
                       check.largest_token);
  const TokenFault& fault = *check.first_fault;
  throw DataError(fmt::format(
      "{}.bin: token {} at byte {} (document {}, sequence {}, position {}) is not in the vocabulary{}. Check with the "
      "tokenizer that the data was made with, or preprocess the text again.",
      prefix, fault.token, fault.byte_offset, fault.document, fault.sequence, fault.position,
      vocab_size > 0 ? fmt::format(" of {} tokens", vocab_size) : ", whose tokens are not negative"));
}

/// Prints what `check` says of each path. @throw DataError with all that it throws, once all are checked
void check_each(const std::vector<std::string>& paths, std::ostream& out,
                const std::function<std::string(const std::string&)>& check) {
  std::vector<std::string> faults;
  for (const std::string& path : paths) {
    try {
      out << check(path) << std::flush;
    } catch (const DataError& error) {
      faults.emplace_back(error.what());
    }
  }
  require<DataError>(faults.empty(), "{}", joined(faults, "\n"));
}

}  // namespace

void data_check(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  CheckConfig config;
  FieldTable table = describe_check(config);
  std::vector<std::string> words = args;
  if (!words.empty() && !words[0].starts_with("-")) words.insert(words.begin(), "--data-path");
  if (asks_for_help(args))
    return show_text(
        help_text({.command = "megatron data check", .introduction = std::string(kCheckIntroduction), .table = table},
                  args),
        out);
  Mistakes mistakes;
  RefusedFlags refused = refused_tokenizer_flags();
  refused.erase("--chat-template");
  const GivenFields given = parse_flags(table, words, {.refused = refused, .synonyms = flag_synonyms()}, mistakes);
  for (const std::string_view name : {"seq_length", "sft_tokenizer_prompt_format", "chat_template"})
    if (!config.sft && given.contains(name)) mistakes.add({"--sft"}, "{} needs --sft", table.find(name)->spelling());
  if (config.data_path.empty()) mistakes.add({"--data-path"}, "there is nothing to check: give prefixes of datasets");
  mistakes.throw_if_any("the flags are wrong");

  ProgressBarOptions bar = bar_options(out, false);
  if (!bar.is_terminal) bar.line_interval = ProgressBarOptions().line_interval;
  std::ostream& shown = bar.is_terminal ? out : err;
  ProgressBar progress(bar, [&](std::string_view text) { shown << text << std::flush; });
  if (config.sft) {
    const std::unique_ptr<Tokenizer> tokenizer = conversation_tokenizer_of(config.tokenizer);
    const ConversationEncoder encoder = encoder_of(config, *tokenizer);
    check_each(config.data_path, out, [&](const std::string& path) {
      return check_conversations(path, encoder, config.seq_length, progress);
    });
    return;
  }
  const int64_t vocab_size = vocab_size_of(config.tokenizer);
  check_each(config.data_path, out, [&](std::string prefix) {
    if (prefix.ends_with(".idx")) prefix.resize(prefix.size() - 4);
    return checked(prefix, config, vocab_size, progress);
  });
}

}  // namespace megatron
