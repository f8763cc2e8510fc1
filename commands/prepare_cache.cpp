#include "commands/prepare_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <ostream>

#include "commands/exit_code.h"
#include "commands/run_flags.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/mistakes.h"
#include "megatron/training/training_data.h"

namespace megatron {
namespace {

constexpr std::string_view kCacheIntroduction =
    R"(usage: megatron prepare_cache --prepare-cache-world-size RANKS --data-cache-path FOLDER [flags of training]

Builds the shuffles of the data sets that 'megatron pretrain_gpt' with the same flags on so many ranks
reads, so that no rank waits for them. Nothing is trained.

  megatron prepare_cache --prepare-cache-world-size 64 --data-cache-path cache --data-path corpus \
      --split 98,1,1 --seq-length 4096 --global-batch-size 512 --train-iters 10000 ...

)";
constexpr std::string_view kWorldSizeFlag = "--prepare-cache-world-size";

struct PrepareCacheConfig {
  int64_t prepare_cache_world_size = 1;
};

FieldTable describe_own(PrepareCacheConfig& config) {
  FieldTable table;
  table.begin_group("Cache", "");
  table.add("prepare_cache_world_size", config.prepare_cache_world_size, "ranks of the training run").at_least(1);
  return table;
}

/// Divides the words: those of the own flag, and the others, which are flags of training.
std::vector<std::string> take_own_words(std::vector<std::string>& words) {
  const auto is_own = [](const std::string& word) {
    return word == kWorldSizeFlag || word.starts_with(std::string(kWorldSizeFlag) + "=");
  };
  std::vector<std::string> own;
  for (auto at = words.begin(); (at = std::ranges::find_if(at, words.end(), is_own)) != words.end();) {
    const std::ptrdiff_t count = at->size() == kWorldSizeFlag.size() && words.end() - at > 1 ? 2 : 1;
    own.insert(own.end(), at, at + count);
    at = words.erase(at, at + count);
  }
  return own;
}

void check_cached(const PretrainConfig& config, Mistakes& mistakes) {
  if (!config.data.data_cache_path)
    mistakes.add({"--data-cache-path"}, "--data-cache-path is missing: give the folder that training reads");
  if (config.data.mock_data) mistakes.add({"--mock-data"}, "--mock-data: made-up data are not cached");
  if (config.data.sft) mistakes.add({"--sft"}, "--sft: conversations are read in their order and not cached");
}

std::string size_of(const Dataset* dataset) { return dataset ? fmt::format("{} samples", dataset->size()) : "none"; }

void print_sizes(const PretrainConfig& config, const GptDatasets& datasets, std::ostream& out) {
  out << fmt::format("{} ranks, data-parallel size {}, global batch size {}, cache {}\n", config.parallel.world_size,
                     config.parallel.data_parallel_size, config.training.global_batch_size.value(),
                     *config.data.data_cache_path)
      << fmt::format("  train       {}\n", size_of(datasets.train.get()));
  for (const std::unique_ptr<Dataset>& valid : datasets.valid)
    out << fmt::format("  validation  {}\n", size_of(valid.get()));
  out << fmt::format("  test        {}\n", size_of(datasets.test.get()));
}

}  // namespace

int prepare_cache_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  return run_command("prepare_cache", err, [&] {
    PrepareCacheConfig own;
    FieldTable table = describe_own(own);
    if (asks_for_help(args))
      return show_text(help_text({.command = "megatron prepare_cache",
                                  .introduction = std::string(kCacheIntroduction),
                                  .table = table,
                                  .more_about_word = flags_of_training_about,
                                  .about_other_flag = help_of_training_flag},
                                 args),
                       out);
    std::vector<std::string> words = args;
    Mistakes mistakes;
    parse_flags(table, take_own_words(words), {}, mistakes);
    mistakes.throw_if_any("the flags are wrong");
    const auto no_checkpoint = [](const CheckpointConfig&) -> std::string {
      throw ConfigError("--use-checkpoint-args: prepare_cache reads no checkpoint. Give the flags themselves");
    };
    std::unique_ptr<Tokenizer> tokenizer;
    const PretrainConfig config =
        parse_pretrain_gpt(words, static_cast<int>(own.prepare_cache_world_size), no_checkpoint, RuleSet::kMegatron,
                           [&](const PretrainConfig& parsed, Mistakes& further) {
                             check_cached(parsed, further);
                             tokenizer = check_data_and_tokenizer(parsed, further);
                           });
    const MessageLog log{.on_info = {},
                         .on_warning = [&](const std::string& text) { err << "warning: " << text << '\n'; }};
    const TrainingData data(config, *tokenizer, log, {});
    print_sizes(config, data.datasets(), out);
  });
}

}  // namespace megatron
