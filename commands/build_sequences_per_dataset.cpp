#include "commands/build_sequences_per_dataset.h"

#include <fmt/core.h>

#include <optional>
#include <ostream>

#include "commands/exit_code.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/mistakes.h"
#include "megatron/datasets/data_paths.h"
#include "megatron/datasets/sequence_counts.h"
#include "megatron/training/config/flag_synonyms.h"

namespace megatron {
namespace {

constexpr std::string_view kCountsIntroduction =
    R"(usage: megatron build_sequences_per_dataset --per-dataset-sequences-path FILE --data-path PREFIX...

Writes the numbers of sequences and of document indices of each dataset, {"PREFIX": [N, D], ...}, for
Megatron-LM's flag --per-dataset-sequences-path, and checks the index of each dataset. The file is that of
Megatron's build_sequences_per_dataset.py.

  megatron build_sequences_per_dataset --data-args-path words.txt --per-dataset-sequences-path counts.json

)";

struct SequenceCountsConfig {
  std::vector<std::string> data_path, train_data_path, valid_data_path, test_data_path;
  std::optional<std::string> data_args_path, per_split_data_args_path;
  std::string per_dataset_sequences_path;
};

FieldTable describe_counts(SequenceCountsConfig& config) {
  FieldTable table;
  table.begin_group("Data", "Flags of training have the same meaning here; all that are given count.");
  table.add("data_path", config.data_path, "prefixes, or weights and prefixes in turn");
  table.add("train_data_path", config.train_data_path, "the same for training");
  table.add("valid_data_path", config.valid_data_path, "the same for validation");
  table.add("test_data_path", config.test_data_path, "the same for the test");
  table.add("data_args_path", config.data_args_path, "file with the words of --data-path");
  table.add("per_split_data_args_path", config.per_split_data_args_path,
            "JSON file with the keys train, valid and test");
  table.begin_group("Output", "");
  table.add("per_dataset_sequences_path", config.per_dataset_sequences_path, "file to write");
  return table;
}

std::vector<std::string> prefixes_of(const SequenceCountsConfig& config) {
  std::vector<std::string> prefixes;
  const auto add = [&](const std::optional<Blend>& blend) {
    if (blend) prefixes.insert(prefixes.end(), blend->prefixes.begin(), blend->prefixes.end());
  };
  const auto add_items = [&](const std::vector<std::string>& items) {
    if (!items.empty()) add(parse_blend(items));
  };
  add_items(config.data_path);
  if (config.data_args_path) add_items(read_data_args_file(*config.data_args_path));
  add_items(config.train_data_path);
  add_items(config.valid_data_path);
  add_items(config.test_data_path);
  if (config.per_split_data_args_path)
    for (const std::optional<Blend>& blend : read_per_split_data_args_file(*config.per_split_data_args_path))
      add(blend);
  return prefixes;
}

}  // namespace

int build_sequences_per_dataset_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  return run_command("build_sequences_per_dataset", err, [&] {
    SequenceCountsConfig config;
    FieldTable table = describe_counts(config);
    if (asks_for_help(args))
      return show_text(help_text({.command = "megatron build_sequences_per_dataset",
                                  .introduction = std::string(kCountsIntroduction),
                                  .table = table},
                                 args),
                       out);
    Mistakes mistakes;
    parse_flags(table, args, {.synonyms = flag_synonyms()}, mistakes);
    if (config.per_dataset_sequences_path.empty())
      mistakes.add({"--per-dataset-sequences-path"}, "--per-dataset-sequences-path is missing: give the file to write");
    std::vector<std::string> prefixes;
    mistakes.attempt({"--data-path"}, [&] { prefixes = prefixes_of(config); });
    if (prefixes.empty() && mistakes.texts().empty())
      mistakes.add({"--data-path"}, "there are no datasets to count: give --data-path or one of its kin");
    mistakes.throw_if_any("the flags are wrong");
    out << "Building sequences per dataset...\n" << std::flush;
    const SequenceCountsByPrefix counts = count_sequences(prefixes);
    out << fmt::format("Number of unique file prefixes: {}\n", counts.size());
    write_sequence_counts(config.per_dataset_sequences_path, counts);
    out << fmt::format("Done! Saving --per-dataset-sequences-path file to {}\n", config.per_dataset_sequences_path);
  });
}

}  // namespace megatron
