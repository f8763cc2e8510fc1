#include "megatron/datasets/dataset_builder.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/thread_name.h"
#include "megatron/base/thread_start.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/blended_dataset.h"
#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/mock_token_source.h"
#include "megatron/datasets/sft_dataset.h"

namespace megatron {
namespace {

constexpr const char* kMockSplit = "1,1,1";

/// Runs task(0) .. task(count - 1) on up to `num_threads` threads. Of several exceptions, the lowest number's is
/// thrown.
void for_each_parallel(size_t count, int num_threads, const std::function<void(size_t)>& task) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        task(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> threads;
  for (size_t t = 1; t < std::min(count, static_cast<size_t>(std::max(num_threads, 1))); ++t)
    threads.push_back(start_thread("to build datasets", [&] {
      set_worker_thread_name("dataset");
      work();
    }));
  work();
  threads.clear();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

using Mistakes = std::vector<std::string>;

void check_blend(const Blend& blend, std::string_view name, Mistakes& mistakes) {
  if (blend.prefixes.empty()) mistakes.push_back(fmt::format("the {} has no data paths", name));
  if (!blend.weights.has_value()) return;
  if (blend.weights->size() != blend.prefixes.size()) {
    mistakes.push_back(
        fmt::format("the {} has {} data paths and {} weights", name, blend.prefixes.size(), blend.weights->size()));
    return;
  }
  for (size_t i = 0; i < blend.prefixes.size(); ++i) {
    const double weight = (*blend.weights)[i];
    if (!(weight > 0))
      mistakes.push_back(fmt::format("weight {} of {} in the {} is not above zero; leave that path out", weight,
                                     blend.prefixes[i], name));
  }
}

/// Builds the datasets of one run; keeps the opened files by prefix.
class Builder {
 public:
  Builder(const GptDatasetConfig& config, const MessageLog& log) : config_(config) {
    if (config.sequence_counts) counts_ = {config.sequence_counts->begin(), config.sequence_counts->end()};
    // Members are built on several threads, but messages come one at a time.
    log_.on_info = [this, &log](const std::string& text) {
      std::lock_guard lock(log_mutex_);
      log.info(text);
    };
    log_.on_warning = [this, &log](const std::string& text) {
      std::lock_guard lock(log_mutex_);
      if (said_.insert(text).second) log.warning(text);
    };
  }

  GptDatasets build(const GptDataSources& sources, const SampleCounts& sizes) {
    GptDatasets datasets;
    PerSplit<std::unique_ptr<Dataset>> built;
    for (Split split : kSplits) {
      const size_t i = index_of(split);
      if (sources.mock_data) {
        built[i] = build_mock(split, sizes[i]);
      } else if (sources.blend.has_value()) {
        const SplitMatrix matrix = parse_split(*sources.split);
        if (matrix[i].has_value()) built[i] = build_split(*sources.blend, split, sizes[i], sources.split, matrix);
      } else if (split == Split::kValid && sources.multiple_validation_sets && sources.blend_per_split[i].has_value()) {
        for (const std::string& prefix : sources.blend_per_split[i]->prefixes) {
          datasets.valid.push_back(build_split({{prefix}, std::nullopt}, split, sizes[i], std::nullopt, std::nullopt));
        }
      } else if (sources.blend_per_split[i].has_value()) {
        built[i] = build_split(*sources.blend_per_split[i], split, sizes[i], std::nullopt, std::nullopt);
      }
    }
    datasets.train = std::move(built[index_of(Split::kTrain)]);
    if (built[index_of(Split::kValid)]) datasets.valid.push_back(std::move(built[index_of(Split::kValid)]));
    datasets.test = std::move(built[index_of(Split::kTest)]);
    for (auto& [name, source] : opened_) datasets.sources.push_back(std::move(source));
    for (auto& [name, rows] : opened_rows_) datasets.conversations.push_back(std::move(rows));
    return datasets;
  }

 private:
  std::unique_ptr<Dataset> build_mock(Split split, const std::optional<int64_t>& size) {
    std::unique_ptr<TokenSource>& source = opened_[""];
    if (!source) source = std::make_unique<MockTokenSource>(config_.tokenizer);
    return std::make_unique<GptDataset>(
        *source, part_of(source->num_sequences(), split, size, kMockSplit, parse_split(kMockSplit), true), config_,
        log_);
  }

  /// @param split_text, matrix  nullopt when the paths belong to this split alone, which then takes all of them.
  std::unique_ptr<Dataset> build_split(const Blend& blend, Split split, const std::optional<int64_t>& size,
                                       const std::optional<std::string>& split_text,
                                       const std::optional<SplitMatrix>& matrix) {
    open_all(blend.prefixes);
    const bool weighted = blend.weights.has_value();
    // The weight of a single path has no effect; with --split Megatron still makes it a blend, which has its own sizes.
    if (blend.prefixes.size() == 1 && (!weighted || !matrix.has_value())) {
      return build_path(blend.prefixes[0], split, size, split_text, matrix);
    }
    BlendedDataset::Options options{.split = split,
                                    .weights = std::nullopt,
                                    .size = size,
                                    .path_to_cache = config_.path_to_cache,
                                    .write_cache = config_.write_cache,
                                    .mid_level_dataset_surplus = config_.mid_level_dataset_surplus};
    std::vector<std::optional<int64_t>> member_sizes(blend.prefixes.size());
    if (weighted) {
      options.weights = normalize_weights(*blend.weights);
      options.size = 0;
      for (size_t j = 0; j < member_sizes.size(); ++j) {
        const double weight = (*options.weights)[j];
        *options.size += blend_member_size(weight, *size, 0.0);
        member_sizes[j] = blend_member_size(weight, *size, config_.mid_level_dataset_surplus);
      }
    }
    std::vector<std::unique_ptr<MidLevelDataset>> members(blend.prefixes.size());
    for_each_parallel(members.size(), config_.num_dataset_builder_threads, [&](size_t j) {
      members[j] = build_path(blend.prefixes[j], split, member_sizes[j], split_text, matrix);
    });
    if (!weighted && size.has_value()) {
      int64_t available = 0;
      for (const auto& member : members) available += member->size();
      options.size = std::min(*size, available);
    }
    return std::make_unique<BlendedDataset>(std::move(members), options, log_);
  }

  std::unique_ptr<MidLevelDataset> build_path(const std::string& path, Split split, const std::optional<int64_t>& size,
                                              const std::optional<std::string>& split_text,
                                              const std::optional<SplitMatrix>& matrix) {
    if (config_.conversations != nullptr) {
      const JsonlRows& rows = *opened_rows_.at(path);
      return std::make_unique<SftDataset>(rows, part_of(rows.size(), split, size, split_text, matrix, false), config_);
    }
    const TokenSource& source = *opened_.at(path);
    return std::make_unique<GptDataset>(source, part_of(source.num_sequences(), split, size, split_text, matrix, false),
                                        config_, log_);
  }

  /// The part of a path with this number of sequences or rows.
  static GptDatasetPart part_of(int64_t num_sequences, Split split, const std::optional<int64_t>& size,
                                const std::optional<std::string>& split_text, const std::optional<SplitMatrix>& matrix,
                                bool mock) {
    GptDatasetPart part{.split = split,
                        .sequences = {0, num_sequences},
                        .num_samples = size,
                        .split_text = split_text,
                        .split_matrix = matrix,
                        .mock = mock};
    if (matrix.has_value()) part.sequences = split_range(*(*matrix)[index_of(split)], num_sequences);
    return part;
  }

  void open_all(const std::vector<std::string>& paths) {
    if (config_.conversations != nullptr) {
      open_missing(opened_rows_, paths, [](const std::string& path) { return std::make_unique<JsonlRows>(path); });
    } else {
      open_missing(opened_, paths, [this](const std::string& prefix) { return open_tokens(prefix); });
    }
  }

  /// Opens those of `paths` that are not in `opened` yet, several at once.
  template <class File, class Open>
  void open_missing(std::map<std::string, std::unique_ptr<File>>& opened, const std::vector<std::string>& paths,
                    Open open) {
    std::vector<std::pair<const std::string, std::unique_ptr<File>>*> missing;
    for (const std::string& path : paths) {
      const auto [at, inserted] = opened.try_emplace(path);
      if (inserted) missing.push_back(&*at);
    }
    for_each_parallel(missing.size(), config_.num_dataset_builder_threads,
                      [&](size_t i) { missing[i]->second = open(missing[i]->first); });
  }

  std::unique_ptr<TokenSource> open_tokens(const std::string& prefix) const {
    auto data = std::make_unique<IndexedDataset>(
        prefix, IndexedDatasetOptions{.access = config_.bin_access, .multimodal = false});
    const TokenType type = data->token_type();
    require<DataError>(type != TokenType::kFloat32 && type != TokenType::kFloat64,
                       "{}.idx: tokens are {}, which GPT training does not support. The file is damaged or has other "
                       "data than text: copy it again or preprocess the text again.",
                       prefix, name_of(type));
    require_counts(*data);
    return data;
  }

  /// The numbers of --per-dataset-sequences-path against those of the .idx.
  void require_counts(const IndexedDataset& data) const {
    if (!config_.sequence_counts) return;
    constexpr const char* kMakeAgain = "Make the file again with: megatron build_sequences_per_dataset";
    const auto found = counts_.find(data.name());
    require<DataError>(found != counts_.end(), "--per-dataset-sequences-path: the file has no counts of {}. {}",
                       data.name(), kMakeAgain);
    const SequenceCounts& given = found->second;
    require<DataError>(given == SequenceCounts{data.num_sequences(), data.num_documents() + 1},
                       "--per-dataset-sequences-path: the file gives {} sequences and {} document indices to {}, whose "
                       ".idx has {} and "
                       "{}. {}",
                       given.num_sequences, given.num_document_indices, data.name(), data.num_sequences(),
                       data.num_documents() + 1, kMakeAgain);
  }

  const GptDatasetConfig& config_;
  std::map<std::string, SequenceCounts> counts_;
  std::mutex log_mutex_;
  MessageLog log_;
  std::set<std::string> said_;  // warnings, to print each once and not for every split and member
  std::map<std::string, std::unique_ptr<TokenSource>> opened_;     // by prefix; mock data under ""
  std::map<std::string, std::unique_ptr<JsonlRows>> opened_rows_;  // by path
};

}  // namespace

std::vector<std::string> mistakes_of(const GptDataSources& sources, const SampleCounts& sizes) {
  Mistakes mistakes;
  const bool any_per_split = std::any_of(sources.blend_per_split.begin(), sources.blend_per_split.end(),
                                         [](const auto& blend) { return blend.has_value(); });
  const int num_forms = int{sources.mock_data} + int{sources.blend.has_value()} + int{any_per_split};
  if (num_forms != 1) {
    mistakes.push_back(fmt::format("{} of --mock-data, --data-path and the per-split data paths are given; give one",
                                   num_forms == 0 ? "none" : "several"));
  }
  if (sources.blend.has_value()) check_blend(*sources.blend, "blend", mistakes);
  if (sources.blend.has_value() && !sources.split.has_value()) {
    mistakes.push_back("--data-path needs --split, such as --split 969,30,1");
  }
  if (any_per_split && sources.split.has_value()) {
    mistakes.push_back("--split divides --data-path; leave it out with per-split data paths");
  }
  if (sources.multiple_validation_sets && sources.blend_per_split[index_of(Split::kValid)].has_value() &&
      sources.blend_per_split[index_of(Split::kValid)]->weights.has_value()) {
    mistakes.push_back("--multiple-validation-sets evaluates each path separately; leave the weights out");
  }
  for (Split split : kSplits) {
    const std::optional<int64_t>& size = sizes[index_of(split)];
    if (size.value_or(0) < 0) mistakes.push_back(fmt::format("{} {} samples are requested", *size, name_of(split)));
    const std::optional<Blend>& own = sources.blend_per_split[index_of(split)];
    if (own.has_value()) check_blend(*own, fmt::format("{} blend", name_of(split)), mistakes);
    const std::optional<Blend>& blend = own.has_value() ? own : sources.blend;
    if (!size.has_value() && blend.has_value() && blend->weights.has_value()) {
      mistakes.push_back(
          fmt::format("the {} blend has weights, so its number of samples must be set, which --full-validation does "
                      "not do; leave out the weights or that flag",
                      name_of(split)));
    }
  }
  return mistakes;
}

GptDatasets build_gpt_datasets(const GptDatasetConfig& config, const GptDataSources& sources, const SampleCounts& sizes,
                               const MessageLog& log) {
  Mistakes mistakes = mistakes_of(sources, sizes);
  if (!(config.mid_level_dataset_surplus >= 0))
    mistakes.push_back(fmt::format("--mid-level-dataset-surplus {} is negative", config.mid_level_dataset_surplus));
  require<ConfigError>(mistakes.empty(), "The data flags do not fit together:\n  - {}", joined(mistakes, "\n  - "));
  return Builder(config, log).build(sources, sizes);
}

}  // namespace megatron
