#include "commands/data.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>
#include <utility>

#include "commands/data_check.h"
#include "commands/exit_code.h"
#include "commands/terminal.h"
#include "commands/tokenizer_flags.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/field.h"
#include "megatron/base/field_needs.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/mistakes.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/dataset_builder.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/tokenizers/tokenizer_factory.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/config/flag_synonyms.h"

namespace megatron {
namespace {

constexpr std::string_view kDataIntroduction =
    R"(usage: megatron data inspect --data-path PREFIX... [flags]

Prints the contents of PREFIX.idx and PREFIX.bin, and checks them; with --document also one document.
With --seq-length it prints the sequences of each split, and with --sample one sample as training
with the same flags reads it. 'megatron data check PREFIX...' looks for tokens outside of the vocabulary.

  megatron data inspect --data-path data/corpus_text_document --seq-length 1024 --sample 0 \
      --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt

)";

enum class IndexSplit { kTrain, kValid, kTest };
constexpr std::array<std::pair<IndexSplit, std::string_view>, 3> names_of_enum(IndexSplit) {
  return {{{IndexSplit::kTrain, "train"}, {IndexSplit::kValid, "valid"}, {IndexSplit::kTest, "test"}}};
}

struct InspectConfig {
  std::vector<std::string> data_path;
  std::string split = "969, 30, 1";
  bool mmap_bin_files = true;
  std::optional<int64_t> document;
  std::optional<int64_t> seq_length;
  int64_t seed = 1234;
  std::optional<int64_t> sample;
  IndexSplit index_split = IndexSplit::kTrain;
  std::optional<int64_t> num_samples;
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  TokenizerOptions tokenizer;

  Split wanted_split() const { return kSplits[static_cast<size_t>(index_split)]; }
};

FieldTable describe(InspectConfig& config) {
  FieldTable table;
  table.begin_group("Data", "Flags of training have the same meaning here.");
  table.add("data_path", config.data_path, "prefixes, or alternating weights and prefixes");
  table.add("split", config.split, "parts for training, validation and test");
  table.add("mmap_bin_files", config.mmap_bin_files, "read .bin files instead of mapping them")
      .turned_off_by({"--no-mmap-bin-files"});
  table.add("document", config.document, "show this document of each prefix").at_least(0);
  table.begin_group("Samples", "");
  table.add("seq_length", config.seq_length, "show the splits in samples of this length").in("tokens").at_least(1);
  table.add("seed", config.seed, "seed of the order of samples")
      .at_least(0)
      .at_most(kLargestSeed)
      .needs("--seq-length", [&config] { return config.seq_length.has_value(); });
  table.add("sample", config.sample, "show this sample").at_least(0).needs("--seq-length", [&config] {
    return config.seq_length.has_value();
  });
  table.add("index_split", config.index_split, "the split of --sample");
  table
      .add("num_samples", config.num_samples,
           "number of samples that training requests from the split; the order of samples depends on it")
      .by_default("one pass over the data")
      .at_least(1)
      .needs("--seq-length", [&config] { return config.seq_length.has_value(); });
  table.add("reset_position_ids", config.reset_position_ids, "count positions from 0 in each document");
  table.add("reset_attention_mask", config.reset_attention_mask, "tokens attend only to their own document");
  table.add("eod_mask_loss", config.eod_mask_loss, "no loss at positions whose input is an end of document");
  // For the text of --document and --sample, and to check their tokens against the vocabulary.
  describe_tokenizer_flags(table, config.tokenizer);
  return table;
}

InspectConfig parse(const std::vector<std::string>& args, std::ostream& err) {
  InspectConfig config;
  FieldTable table = describe(config);
  Mistakes mistakes;
  const GivenFields given = parse_flags(table, args, {.synonyms = flag_synonyms()}, mistakes);
  if (config.data_path.empty()) mistakes.add({"--data-path"}, "--data-path is missing: give the data to inspect");
  check_needs(table, given, mistakes);
  if (given.contains("tokenizer_type") && !config.document && !config.sample)
    mistakes.add({"--tokenizer-type", "--sample"},
                 "--tokenizer-type needs --document or --sample: it checks their tokens and shows them as text");
  mistakes.throw_if_any("the flags are wrong");
  for (const std::string& note : notes_without_effect(table, given)) err << "megatron data: " << note << '\n';
  return config;
}

std::string count_of(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

void print_files(const IndexedDataset& data, std::ostream& out) {
  std::vector<int32_t> lengths(static_cast<size_t>(data.num_sequences()));
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = data.sequence_length(static_cast<int64_t>(i));
  const auto num_empty = std::count(lengths.begin(), lengths.end(), 0);
  out << data.name() << '\n'
      << fmt::format("  documents  {}\n", data.num_documents())
      << fmt::format("  sequences  {} ({} empty)\n", data.num_sequences(), num_empty)
      << fmt::format("  tokens     {} of type {}\n", data.num_tokens(), name_of(data.token_type()));
  if (!lengths.empty()) {
    const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
    std::nth_element(lengths.begin(), middle, lengths.end());
    const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
    out << fmt::format("  lengths    {} to {} tokens, mean {:.1f}, median {}\n", *shortest, *longest,
                       static_cast<double>(data.num_tokens()) / static_cast<double>(lengths.size()), *middle);
  }
  out << fmt::format("  files      .idx {} bytes, .bin {} bytes\n", data.index_bytes(), data.token_bytes());
  const uint64_t used = static_cast<uint64_t>(data.num_tokens()) * size_of(data.token_type());
  if (data.token_bytes() > used) {
    out << fmt::format("  note       .bin has {} bytes more than the sequences need\n", data.token_bytes() - used);
  }
}

void print_splits(const IndexedDataset& data, const InspectConfig& config, std::ostream& out) {
  out << fmt::format("  split \"{}\", {} a sample:\n", config.split, count_of(*config.seq_length, "token"));
  const SplitMatrix matrix = parse_split(config.split);
  for (Split split : kSplits) {
    if (!matrix[index_of(split)].has_value()) {
      out << fmt::format("    {:5}  nothing\n", name_of(split));
      continue;
    }
    const IndexRange range = split_range(*matrix[index_of(split)], data.num_sequences());
    int64_t tokens = 0;
    for (int64_t i = range.begin; i < range.end; ++i) tokens += data.sequence_length(i);
    out << fmt::format("    {:5}  sequences {} to {}: {}, {} a pass\n", name_of(split), range.begin, range.end,
                       count_of(tokens, "token"),
                       count_of(std::max<int64_t>(tokens - 1, 0) / *config.seq_length, "sample"));
  }
}

/// Numbers in lines of up to 100 columns, or that there are none.
void print_numbers(std::string_view title, std::span<const int64_t> numbers, std::ostream& out) {
  constexpr size_t kColumns = 100;
  std::string line = fmt::format("  {:10}{}", title, numbers.empty() ? " none" : "");
  for (int64_t number : numbers) {
    const std::string text = fmt::format(" {}", number);
    if (line.size() + text.size() > kColumns) {
      out << line << '\n';
      line = std::string(12, ' ');
    }
    line += text;
  }
  out << line << '\n';
}

/// Positions with a zero in the mask.
std::vector<int64_t> untrained(const GptSample& sample) {
  std::vector<int64_t> positions;
  for (size_t i = 0; i < sample.loss_mask.size(); ++i) {
    if (sample.loss_mask[i] == 0) positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

void print_text(const Tokenizer& tokenizer, std::span<const int64_t> tokens, std::ostream& out) {
  std::vector<TokenId> ids;
  for (int64_t token : tokens) ids.push_back(static_cast<TokenId>(token));
  out << "  text\n" << tokenizer.decode(ids) << '\n';
}

void print_document(const IndexedDataset& data, int64_t document, const Tokenizer* tokenizer, std::ostream& out) {
  require<ConfigError>(document < data.num_documents(), "--document {}: {} has {}, numbered from 0", document,
                       data.name(), count_of(data.num_documents(), "document"));
  const int64_t first = data.document_index(document), end = data.document_index(document + 1);
  std::vector<int64_t> tokens;
  for (int64_t i = first; i < end; ++i) {
    const std::vector<int64_t> sequence = data.sequence(i);
    tokens.insert(tokens.end(), sequence.begin(), sequence.end());
  }
  out << fmt::format("\ndocument {} of {}: {}, {}\n", document, data.num_documents(), count_of(end - first, "sequence"),
                     count_of(std::ssize(tokens), "token"));
  print_numbers("tokens", tokens, out);
  if (tokenizer != nullptr) print_text(*tokenizer, tokens, out);
}

void print_sample(const InspectConfig& config, const Tokenizer* tokenizer, std::ostream& out, std::ostream& err) {
  GptDatasetConfig dataset_config;
  dataset_config.sequence_length = *config.seq_length;
  dataset_config.random_seed = config.seed;
  dataset_config.reset_position_ids = config.reset_position_ids;
  dataset_config.reset_attention_mask = config.reset_attention_mask;
  dataset_config.eod_mask_loss = config.eod_mask_loss;
  dataset_config.write_cache = false;
  dataset_config.bin_access = config.mmap_bin_files ? FileAccess::kMap : FileAccess::kPread;
  if (tokenizer != nullptr) dataset_config.tokenizer = facts_of(*tokenizer);

  const GptDataSources sources = {.blend = parse_blend(config.data_path), .split = config.split};
  require<ConfigError>(!sources.blend->weights.has_value() || config.num_samples.has_value(),
                       "--num-samples is missing: with weights, samples depend on the number that training requests");
  SampleCounts sizes;  // the other splits are not read, but weights need a size
  if (sources.blend->weights.has_value()) sizes = {0, 0, 0};
  const size_t wanted = index_of(config.wanted_split());
  sizes[wanted] = config.num_samples;
  const MessageLog log = {{}, [&err](const std::string& text) { err << "warning: " << text << '\n'; }};
  const GptDatasets datasets = build_gpt_datasets(dataset_config, sources, sizes, log);
  const Dataset* valid = datasets.valid.empty() ? nullptr : datasets.valid[0].get();
  const Dataset* dataset = std::array<const Dataset*, 3>{datasets.train.get(), valid, datasets.test.get()}[wanted];
  const std::string_view name = name_of(config.wanted_split());
  require<ConfigError>(dataset != nullptr, "--split \"{}\" leaves nothing to the {} split", config.split, name);
  require<ConfigError>(*config.sample < dataset->size(), "--sample {}: the {} split has {}, numbered from 0",
                       *config.sample, name, count_of(dataset->size(), "sample"));

  GptSample sample;
  dataset->read(*config.sample, sample);
  out << fmt::format("\nsample {} of {} ({}), seed {}", *config.sample, dataset->size(), name, config.seed);
  if (sources.blend->prefixes.size() > 1) {
    out << ", from " << sources.blend->prefixes[static_cast<size_t>(sample.dataset_id)];
  }
  out << '\n';
  print_numbers("tokens", sample.tokens, out);
  print_numbers("last label", std::span(sample.labels).last(1), out);
  print_numbers("untrained", untrained(sample), out);
  print_numbers("cuts", std::vector<int64_t>(sample.document_cuts.begin(), sample.document_cuts.end()), out);
  if (tokenizer != nullptr) print_text(*tokenizer, sample.tokens, out);
}

void inspect(const InspectConfig& config, std::ostream& out, std::ostream& err) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!config.tokenizer.type.empty()) tokenizer = make_tokenizer(config.tokenizer);
  for (const std::string& prefix : parse_blend(config.data_path).prefixes) {
    const IndexedDataset data(prefix, {.access = config.mmap_bin_files ? FileAccess::kMap : FileAccess::kPread});
    print_files(data, out);
    if (config.seq_length) print_splits(data, config, out);
    if (config.document) print_document(data, *config.document, tokenizer.get(), out);
  }
  if (config.sample) print_sample(config, tokenizer.get(), out, err);
}

std::string data_help(const std::vector<std::string>& args) {
  InspectConfig defaults;
  const FieldTable table = describe(defaults);
  return help_text({.command = "megatron data", .introduction = std::string(kDataIntroduction), .table = table}, args);
}

}  // namespace

int data_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  return run_command("data", err, [&] {
    if (!args.empty() && args[0] == "check") return data_check({args.begin() + 1, args.end()}, out, err);
    if (asks_for_help(args)) return show_text(data_help(args), out);
    require<ConfigError>(!args.empty() && args[0] == "inspect",
                         "{}Usage: megatron data inspect --data-path PREFIX, or megatron data check PREFIX. --help "
                         "describes the flags.",
                         args.empty() ? "" : fmt::format("there is no \"data {}\". ", args[0]));
    inspect(parse({args.begin() + 1, args.end()}, err), out, err);
  });
}

}  // namespace megatron
