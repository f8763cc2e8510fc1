#include "commands/data_check.h"

#include <fmt/core.h>

#include <optional>
#include <ostream>

#include "commands/terminal.h"
#include "commands/tokenizer_flags.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/mistakes.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/token_check.h"
#include "megatron/training/config/flag_synonyms.h"

namespace megatron {
namespace {

constexpr std::string_view kCheckIntroduction =
    R"(usage: megatron data check PREFIX... [flags]

Reads all of PREFIX.idx and PREFIX.bin: whether the files are complete and fit each other, and whether
every token is in the vocabulary, of --vocab-size entries or that of the tokenizer. The first fault of
each dataset is named with its document, sequence, position, byte and token.

  megatron data check data/corpus_text_document --vocab-size 50257
  megatron data check data/*.idx --tokenizer-type HuggingFaceTokenizer --tokenizer-model model/

)";

struct CheckConfig {
  std::vector<std::string> data_path;
  bool mmap_bin_files = true;
  TokenizerOptions tokenizer;
};

FieldTable describe_check(CheckConfig& config) {
  FieldTable table;
  table.begin_group("Data", "");
  table.add("data_path", config.data_path, "prefixes, or .idx files; those before the flags need no flag");
  table.add("mmap_bin_files", config.mmap_bin_files, "read .bin files instead of mapping them")
      .turned_off_by({"--no-mmap-bin-files"});
  describe_tokenizer_flags(table, config.tokenizer);
  return table;
}

/// The number of ids that are right; 0: not known.
int64_t vocab_size_of(const TokenizerOptions& tokenizer) {
  if (tokenizer.type.empty()) return tokenizer.vocab_size.value_or(0);
  return make_tokenizer(tokenizer)->vocab_size();
}

/// One line of the report. @throw DataError
std::string checked(const std::string& prefix, const CheckConfig& config, int64_t vocab_size) {
  const IndexedDataset data(prefix, {.access = config.mmap_bin_files ? FileAccess::kMap : FileAccess::kPread});
  const TokenCheck check = check_tokens(data, vocab_size);
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

}  // namespace

void data_check(const std::vector<std::string>& args, std::ostream& out) {
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
  parse_flags(table, words, {.refused = refused_tokenizer_flags(), .synonyms = flag_synonyms()}, mistakes);
  if (config.data_path.empty()) mistakes.add({"--data-path"}, "there is nothing to check: give prefixes of datasets");
  mistakes.throw_if_any("the flags are wrong");

  const int64_t vocab_size = vocab_size_of(config.tokenizer);
  std::vector<std::string> faults;
  for (std::string prefix : config.data_path) {
    if (prefix.ends_with(".idx")) prefix.resize(prefix.size() - 4);
    try {
      out << checked(prefix, config, vocab_size) << std::flush;
    } catch (const DataError& error) {
      faults.emplace_back(error.what());
    }
  }
  require<DataError>(faults.empty(), "{}", joined(faults, "\n"));
}

}  // namespace megatron
