#include "megatron/training/training_data.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/sample_counts.h"
#include "megatron/tokenizers/chat_template_source.h"
#include "megatron/tokenizers/tokenizer_file.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

constexpr const char* kNoExternalData =
    "--dataloader-type external: batches come from a program that uses the library "
    "(PretrainEnvironment::external_data), "
    "and this one gives none. Give data flags and --dataloader-type single or cyclic";

SampleCounts sample_counts_of(const PretrainConfig& config, const std::optional<TrainingPhase>& phase = {}) {
  const int64_t train_iters = config.training.train_iters.value_or(0);
  return count_samples({.train_samples = phase ? phase->end - phase->begin : config.training.train_samples,
                        .train_iters = train_iters,
                        .global_batch_size = config.training.global_batch_size.value(),
                        .eval_iters = config.validation.eval_iters,
                        // Without an interval there is one validation, at the end.
                        .eval_interval = config.validation.eval_interval.value_or(train_iters + 1),
                        .eval_global_batch_size = config.validation.eval_global_batch_size,
                        .start_eval_at_iter = config.validation.start_eval_at_iter,
                        .skip_train = config.validation.skip_train,
                        .full_validation = config.validation.full_validation});
}

GptDatasetConfig dataset_config_of(const PretrainConfig& config, const Tokenizer& tokenizer,
                                   const ConversationEncoder* conversations, const FillInTheMiddle* fill_in_the_middle,
                                   bool check_cache) {
  const DataConfig& data = config.data;
  return {.sequence_length = config.model.seq_length.value(),
          .random_seed = config.training.seed,
          .tokenizer = facts_of(tokenizer),
          .reset_position_ids = data.reset_position_ids,
          .reset_attention_mask = data.reset_attention_mask,
          .eod_mask_loss = data.eod_mask_loss,
          .inter_document_masking = data.dataloader_inter_document_masking,
          .allow_ambiguous_pad_tokens = data.allow_ambiguous_pad_tokens,
          .conversations = conversations,
          .fill_in_the_middle = fill_in_the_middle,
          .context_parallel_size = config.parallel.context_parallel_size,
          .path_to_cache = data.data_cache_path.value_or(""),
          .check_cache = check_cache,
          .bin_access = data.mmap_bin_files ? FileAccess::kMap : FileAccess::kPread,
          .mid_level_dataset_surplus = data.mid_level_dataset_surplus,
          .num_dataset_builder_threads = static_cast<int>(data.num_dataset_builder_threads)};
}

std::optional<Blend> blend_of(const std::vector<std::string>& items) {
  if (items.empty()) return std::nullopt;
  return parse_blend(items);
}

GptDataSources sources_of(const PretrainConfig& config) {
  const DataConfig& data = config.data;
  GptDataSources sources{
      .mock_data = data.mock_data,
      .blend = data.data_args_path ? blend_of(read_data_args_file(*data.data_args_path)) : blend_of(data.data_path),
      .split = data.split,
      .blend_per_split = {blend_of(data.train_data_path), blend_of(data.valid_data_path),
                          blend_of(data.test_data_path)},
      .multiple_validation_sets = config.validation.multiple_validation_sets};
  if (data.per_split_data_args_path)
    sources.blend_per_split = read_per_split_data_args_file(*data.per_split_data_args_path);
  return sources;
}

TokenizerOptions tokenizer_options_of(const TokenizerConfig& config) {
  TokenizerOptions options{.type = config.tokenizer_type,
                           .vocab_file = config.vocab_file.value_or(""),
                           .merge_file = config.merge_file.value_or(""),
                           .model = config.tokenizer_model.value_or(""),
                           .vocab_size = config.vocab_size,
                           .special_tokens = config.tokenizer_special_tokens.value_or(std::vector<std::string>{}),
                           .null_eod = config.null_tokenizer_eod_id,
                           .null_pad = config.null_tokenizer_pad_id};
  // Scripts for Megatron give these with every tokenizer; the banner names those without effect.
  if (tokenizer_reads(config.tokenizer_type, "--tokenizer-hf-no-include-special-tokens"))
    options.hf_no_include_special_tokens = config.tokenizer_hf_no_include_special_tokens;
  if (tokenizer_reads(config.tokenizer_type, "--tiktoken-pattern")) {
    options.tiktoken_pattern = config.tiktoken_pattern;
    options.tiktoken_num_special_tokens = config.tiktoken_num_special_tokens;
  }
  if (tokenizer_reads(config.tokenizer_type, "--tokenizer-sentencepiece-legacy")) {
    options.sentencepiece_legacy = config.tokenizer_sentencepiece_legacy;
    options.sentencepiece_ignore_extra_whitespaces = config.tokenizer_sentencepiece_ignore_extra_whitespaces;
  }
  return options;
}

std::vector<std::string> prefixes_of(const GptDataSources& sources) {
  std::vector<std::string> prefixes;
  const auto add = [&](const std::optional<Blend>& blend) {
    if (blend) prefixes.insert(prefixes.end(), blend->prefixes.begin(), blend->prefixes.end());
  };
  add(sources.blend);
  std::ranges::for_each(sources.blend_per_split, add);
  return prefixes;
}

void require_data_of(const PretrainConfig& config, const std::string& path) {
  if (!config.data.sft) return require_dataset_files(path);
  require<DataError>(std::filesystem::exists(path),
                     "{}: there is no such file. With --sft data paths name JSON Lines files of conversations", path);
}

void check_data(const PretrainConfig& config, Mistakes& mistakes) {
  if (config.data.dataloader_type == "external") return mistakes.add({"--dataloader-type"}, "{}", kNoExternalData);
  if (config.data.split) mistakes.attempt({"--split"}, [&] { parse_split(*config.data.split); });
  mistakes.attempt({"--data-path"}, [&] {
    if (config.data.per_dataset_sequences_path) read_sequence_counts(*config.data.per_dataset_sequences_path);
    const GptDataSources sources = sources_of(config);
    const SampleCounts sizes = config.training.global_batch_size ? sample_counts_of(config) : SampleCounts{0, 0, 0};
    for (const std::string& text : mistakes_of(sources, sizes)) mistakes.add({"--data-path"}, "{}", text);
    const std::vector<std::string> prefixes = prefixes_of(sources);
    for (const std::string& prefix : std::set(prefixes.begin(), prefixes.end()))
      mistakes.attempt({}, [&] { require_data_of(config, prefix); });
  });
}

void check_tokenizer_files(const TokenizerConfig& tokenizer, Mistakes& mistakes) {
  const auto check = [&](std::string_view flag, const std::optional<std::string>& path, std::string_view advice) {
    if (!path) return;
    const size_t num_before = mistakes.texts().size();
    mistakes.attempt({flag}, [&] { read_tokenizer_file(flag, *path, advice); });
    if (mistakes.texts().size() > num_before) mistakes.doubt("--tokenizer-type");
  };
  constexpr std::string_view kFile = "Give the file that belongs to the tokenizer.";
  check("--vocab-file", tokenizer.vocab_file, kFile);
  check("--merge-file", tokenizer.merge_file, kFile);
  if (tokenizer.tokenizer_model)
    for (const std::string& path : tokenizer_model_files(*tokenizer.tokenizer_model))
      check("--tokenizer-model", path,
            "Give the file that belongs to the tokenizer, or the folder that holds its tokenizer.json; models are not "
            "fetched by their name on a hub.");
}

/// Making it stops at the first file that cannot be read; then all such files are reported.
std::unique_ptr<Tokenizer> make_or_check(const TokenizerConfig& config, Mistakes& mistakes) {
  try {
    return tokenizer_of(config);
  } catch (const Error&) {
    check_tokenizer_files(config, mistakes);
    mistakes.attempt({"--tokenizer-type"}, [] { throw; });
    return nullptr;
  }
}

const ExternalData* external_of(const PretrainConfig& config, const ExternalData* given) {
  if (config.data.dataloader_type != "external") return nullptr;
  require<ConfigError>(given != nullptr, "{}.", kNoExternalData);
  return given;
}

/// Reads samples of a data set ahead, in a thread of its own.
class LoaderSource final : public BatchSource {
 public:
  LoaderSource(const Dataset& dataset, std::unique_ptr<Sampler> sampler) : loader_(dataset, std::move(sampler), 2) {}
  bool next(MicroBatch<int64_t>& batch) override { return loader_.next(batch); }

 private:
  DataLoader<int64_t> loader_;
};

GptDatasets build_datasets(GptDatasetConfig datasets, const PretrainConfig& config,
                           const std::optional<TrainingPhase>& phase, const MessageLog& log) {
  if (config.data.dataloader_type == "external") return {};
  std::optional<SequenceCountsByPrefix> counts;
  if (config.data.per_dataset_sequences_path) counts = read_sequence_counts(*config.data.per_dataset_sequences_path);
  if (counts) datasets.sequence_counts = &*counts;
  return build_gpt_datasets(datasets, sources_of(config), sample_counts_of(config, phase), log);
}

const Dataset& present(const Dataset* dataset, std::string_view split) {
  require<DataError>(dataset != nullptr,
                     "[data] the {} split has no data. Give it a share in --split, or a path in --{}-data-path.", split,
                     split);
  return *dataset;
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of(const TokenizerConfig& config) {
  return make_tokenizer(tokenizer_options_of(config));
}

std::unique_ptr<ConversationEncoder> conversation_encoder_of(const PretrainConfig& config, const Tokenizer& tokenizer) {
  if (!config.data.sft) return nullptr;
  ConversationEncoder::Options options{.format = config.tokenizer.sft_tokenizer_prompt_format};
  if (has_chat_template(options.format)) {
    ChatTemplateSource source =
        find_chat_template(tokenizer_options_of(config.tokenizer), config.tokenizer.chat_template);
    options.chat_template = std::move(source.text);
    options.variables = std::move(source.variables);
  }
  return std::make_unique<ConversationEncoder>(tokenizer, options);
}

std::unique_ptr<FillInTheMiddle> fill_in_the_middle_of(const PretrainConfig& config, const Tokenizer& tokenizer) {
  const FillInTheMiddleConfig& fill = config.data.fill_in_the_middle;
  if (!fill.fim_data) return nullptr;
  Mistakes mistakes;
  const auto id_of = [&](std::string_view flag, const std::string& token) {
    const std::optional<TokenId> id = tokenizer.id_of(token);
    if (!id)
      mistakes.add({flag},
                   "{} {}: the tokenizer has no such token. Name one of its tokens, or add this one with "
                   "--tokenizer-special-tokens",
                   flag, token);
    return id.value_or(0);
  };
  FillInTheMiddle::Options options{.rate = fill.fim_rate,
                                   .spm_rate = fill.fim_spm_rate,
                                   .no_prefix = fill.fim_no_prefix,
                                   .prefix = id_of("--fim-prefix-token", fill.fim_prefix_token),
                                   .middle = id_of("--fim-middle-token", fill.fim_middle_token),
                                   .suffix = id_of("--fim-suffix-token", fill.fim_suffix_token),
                                   .pad = id_of("--fim-pad-token", fill.fim_pad_token),
                                   .eod = id_of("--fim-eod-token", fill.fim_eod_token),
                                   .special_tokens = tokenizer.special_ids()};
  if (fill.fim_split_sample) options.split_sample = id_of("--fim-split-sample", *fill.fim_split_sample);
  if (fill.fim_fragment_rate) options.fragment_rate = *fill.fim_fragment_rate;
  mistakes.throw_if_any("--fim-data");
  return std::make_unique<FillInTheMiddle>(tokenizer, options);
}

std::unique_ptr<Tokenizer> check_data_and_tokenizer(PretrainConfig config, Mistakes& mistakes) {
  check_data(config, mistakes);
  std::unique_ptr<Tokenizer> tokenizer = make_or_check(config.tokenizer, mistakes);
  if (!tokenizer) return nullptr;
  mistakes.attempt({"--vocab-size", "--padded-vocab-size"}, [&] { set_vocab_size(config, tokenizer->vocab_size()); });
  mistakes.attempt({"--sft-tokenizer-prompt-format", "--chat-template"},
                   [&] { conversation_encoder_of(config, *tokenizer); });
  mistakes.attempt({"--fim-data"}, [&] { fill_in_the_middle_of(config, *tokenizer); });
  return tokenizer;
}

std::vector<std::string> input_files_of(const PretrainConfig& config) {
  std::vector<std::string> paths;
  if (config.tokenizer.tokenizer_model) paths = tokenizer_model_files(*config.tokenizer.tokenizer_model);
  for (const std::optional<std::string>* file : {&config.tokenizer.vocab_file, &config.tokenizer.merge_file})
    if (*file) paths.push_back(**file);
  for (const std::string& prefix : prefixes_of(sources_of(config))) {
    if (config.data.sft)
      paths.push_back(prefix);
    else
      for (const char* extension : {".idx", ".bin"}) paths.push_back(prefix + extension);
  }
  return paths;
}

std::span<const MicroBatch<int64_t>> BatchReader::read(int64_t num_micro_batches) {
  const auto batches = read_at_most(num_micro_batches);
  require<DataError>(std::ssize(batches) == num_micro_batches, "[data] the data ended after {} samples.",
                     consumed_samples_);
  return batches;
}

std::span<const MicroBatch<int64_t>> BatchReader::read_at_most(int64_t num_micro_batches) {
  batches_.resize(static_cast<size_t>(num_micro_batches));
  size_t num_read = 0;
  while (num_read < batches_.size() && source_->next(batches_[num_read])) {
    consumed_samples_ = batches_[num_read].consumed_samples;
    num_read += batches_[num_read].num_samples > 0;  // the last samples may not be enough for all ranks
  }
  return std::span<const MicroBatch<int64_t>>(batches_).first(num_read);
}

TrainingData::TrainingData(const PretrainConfig& config, const Tokenizer& tokenizer, const MessageLog& log,
                           const Options& options)
    : config_(config),
      external_(external_of(config, options.external)),
      phase_(phase_after(config.training, options.iteration)),
      tokenizer_(tokenizer_record(config.tokenizer.tokenizer_type, tokenizer)),
      conversations_(conversation_encoder_of(config, tokenizer)),
      fill_in_the_middle_(fill_in_the_middle_of(config, tokenizer)),
      datasets_(build_datasets(
          dataset_config_of(config, tokenizer, conversations_.get(), fill_in_the_middle_.get(), options.check_cache),
          config, phase_, log)) {
  const ValidationConfig& validation = config.validation;
  const size_t num_names = validation.validation_set_names.size(), num_sets = datasets_.valid.size();
  require<ConfigError>(!validation.multiple_validation_sets || num_names == 0 || num_names == num_sets,
                       "--validation-set-names: {} names for {} validation sets. Give each a name, or leave it out.",
                       num_names, num_sets);
}

DataParallelSlice TrainingData::train_slice(int64_t dp_rank) const {
  return {.micro_batch_size = config_.training.micro_batch_size.value(),
          .rank = dp_rank,
          .size = config_.parallel.data_parallel_size};
}

DataParallelSlice TrainingData::eval_slice(int64_t dp_rank) const {
  return {.micro_batch_size = config_.validation.eval_micro_batch_size.value(),
          .rank = dp_rank,
          .size = config_.parallel.data_parallel_size};
}

std::unique_ptr<Sampler> TrainingData::sampler(int64_t num_samples, int64_t consumed,
                                               const DataParallelSlice& slice) const {
  if (config_.data.dataloader_type == "cyclic")
    return std::make_unique<CyclicSampler>(num_samples, consumed, slice, config_.data.data_sharding);
  return std::make_unique<SingleSampler>(num_samples, consumed, slice, true);
}

size_t TrainingData::num_validation_sets() const {
  return external_ ? static_cast<size_t>(external_->has_validation()) : datasets_.valid.size();
}

bool TrainingData::has_test() const { return external_ ? external_->has_test() : datasets_.test != nullptr; }

std::unique_ptr<BatchReader> TrainingData::reader(const Dataset& dataset, std::unique_ptr<Sampler> sampler) const {
  const int64_t consumed = sampler->consumed_samples();
  return std::make_unique<BatchReader>(std::make_unique<LoaderSource>(dataset, std::move(sampler)), consumed);
}

std::unique_ptr<BatchReader> TrainingData::external_reader(std::unique_ptr<BatchSource> source,
                                                           int64_t consumed_samples, int64_t micro_batch_size) const {
  require<ConfigError>(source != nullptr, "[data] --dataloader-type external: the program gives no source of batches.");
  return std::make_unique<BatchReader>(
      checked_source(std::move(source), micro_batch_size, config_.model.seq_length.value()), consumed_samples);
}

std::unique_ptr<BatchReader> TrainingData::train_reader(int64_t dp_rank, int64_t consumed_samples) const {
  if (external_)
    return external_reader(external_->train(dp_rank, consumed_samples), consumed_samples,
                           config_.training.micro_batch_size.value());
  const Dataset& dataset = present(datasets_.train.get(), "train");
  if (phase_) {
    require<DataError>(consumed_samples >= phase_->begin && consumed_samples <= phase_->end,
                       "[data] {} samples are consumed, but the phase of --phase-transition-iterations {} has samples "
                       "{} to {}. Go on with the --global-batch-size of the run before.",
                       consumed_samples, *config_.training.phase_transition_iterations, phase_->begin, phase_->end);
    consumed_samples -= phase_->begin;
  }
  return reader(dataset, sampler(dataset.size(), consumed_samples, train_slice(dp_rank)));
}

std::unique_ptr<BatchReader> TrainingData::validation_reader(size_t set, int64_t dp_rank,
                                                             int64_t consumed_samples) const {
  if (external_)
    return external_reader(external_->validation(dp_rank, consumed_samples), consumed_samples,
                           config_.validation.eval_micro_batch_size.value());
  const Dataset& dataset = present(set < datasets_.valid.size() ? datasets_.valid[set].get() : nullptr, "valid");
  return reader(dataset, sampler(dataset.size(), consumed_samples, eval_slice(dp_rank)));
}

std::unique_ptr<BatchReader> TrainingData::full_validation_reader(size_t set, int64_t dp_rank) const {
  return full_reader(present(set < datasets_.valid.size() ? datasets_.valid[set].get() : nullptr, "valid"), dp_rank);
}

std::unique_ptr<BatchReader> TrainingData::test_reader(int64_t dp_rank) const {
  if (external_) return external_reader(external_->test(dp_rank), 0, config_.validation.eval_micro_batch_size.value());
  const Dataset& dataset = present(datasets_.test.get(), "test");
  if (config_.validation.full_validation) return full_reader(dataset, dp_rank);
  return reader(dataset, sampler(dataset.size(), 0, eval_slice(dp_rank)));
}

std::unique_ptr<BatchReader> TrainingData::full_reader(const Dataset& dataset, int64_t dp_rank) const {
  return reader(dataset, std::make_unique<SingleSampler>(dataset.size(), 0, eval_slice(dp_rank), false));
}

}  // namespace megatron
