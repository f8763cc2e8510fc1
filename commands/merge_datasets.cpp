#include "commands/merge_datasets.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>

#include "commands/exit_code.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/mistakes.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/training/config/flag_synonyms.h"

namespace megatron {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kMergeIntroduction =
    R"(usage: megatron merge_datasets --input FOLDER --output-prefix PREFIX [--multimodal]

Joins the .bin and .idx files of a folder, in the order of their names, into PREFIX.bin and PREFIX.idx. The
files equal those of Megatron's merge_datasets.py, byte for byte, and appear when they are complete.

  megatron merge_datasets --input data/parts --output-prefix data/corpus_text_document

)";

struct MergeConfig {
  std::string input, output_prefix;
  bool multimodal = false;
};

FieldTable describe_merge(MergeConfig& config) {
  FieldTable table;
  table.begin_group("Input and output", "");
  table.add("input", config.input, "folder with the datasets; its own folders are not searched");
  table.add("output_prefix", config.output_prefix, "path of the output without .bin and .idx");
  table.add("multimodal", config.multimodal, "the datasets have a mode for each sequence");
  return table;
}

/// Prefixes of the datasets in a folder, sorted. Other files are named in `err` and left out.
std::vector<std::string> prefixes_in(const std::string& folder, std::ostream& err) {
  require<DataError>(fs::is_directory(folder), "--input {}: there is no such folder", folder);
  std::set<std::string> prefixes;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const fs::path& path = entry.path();
    if (path.extension() == ".bin" || path.extension() == ".idx")
      prefixes.insert(path.parent_path() / path.stem());
    else
      err << fmt::format("{} is no part of a dataset and is left out.\n", path.string());
  }
  require<DataError>(!prefixes.empty(), "--input {}: there are no .bin and .idx files", folder);
  return {prefixes.begin(), prefixes.end()};
}

void merge(const MergeConfig& config, std::ostream& out, std::ostream& err) {
  const std::vector<std::string> prefixes = prefixes_in(config.input, err);
  for (const std::string& prefix : prefixes) require_dataset_files(prefix);
  const fs::path output = fs::absolute(config.output_prefix).lexically_normal();
  const bool is_input =
      std::ranges::any_of(prefixes, [&](const auto& p) { return fs::absolute(p).lexically_normal() == output; });
  require<ConfigError>(!is_input,
                       "--output-prefix {}: the folder of --input has a dataset of that name, which would be merged "
                       "into itself. Remove it, or write elsewhere",
                       config.output_prefix);
  const TokenType type = IndexedDataset(prefixes.front(), {.multimodal = config.multimodal}).token_type();
  IndexedDatasetBuilder builder(config.output_prefix, {.token_type = type, .multimodal = config.multimodal});
  for (const std::string& prefix : prefixes) builder.add_index(prefix);
  builder.finalize();
  out << fmt::format("{}.bin, .idx: {} documents and {} sequences of {} datasets\n", config.output_prefix,
                     builder.num_documents(), builder.num_sequences(), prefixes.size());
}

}  // namespace

int merge_datasets_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  return run_command("merge_datasets", err, [&] {
    MergeConfig config;
    FieldTable table = describe_merge(config);
    if (asks_for_help(args))
      return show_text(
          help_text(
              {.command = "megatron merge_datasets", .introduction = std::string(kMergeIntroduction), .table = table},
              args),
          out);
    Mistakes mistakes;
    parse_flags(table, args, {.synonyms = flag_synonyms()}, mistakes);
    if (config.input.empty()) mistakes.add({"--input"}, "--input is missing: give the folder with the datasets");
    if (config.output_prefix.empty())
      mistakes.add({"--output-prefix"}, "--output-prefix is missing: give the path of the output");
    mistakes.throw_if_any("the flags are wrong");
    merge(config, out, err);
  });
}

}  // namespace megatron
