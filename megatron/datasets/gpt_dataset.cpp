#include "megatron/datasets/gpt_dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>

#include "megatron/base/error.h"
#include "megatron/datasets/fill_in_the_middle.h"
#include "megatron/datasets/index_cache.h"

namespace megatron {
namespace {

// No token of the data has this id.
constexpr int64_t kNoPad = -1;

int64_t choose_pad(const GptDatasetConfig& config, const MessageLog& log) {
  const TokenizerFacts& tokenizer = config.tokenizer;
  const int64_t pad = tokenizer.pad.value_or(kNoPad);
  const bool ambiguous =
      tokenizer.pad.has_value() && std::find(tokenizer.special_tokens.begin(), tokenizer.special_tokens.end(), pad) !=
                                       tokenizer.special_tokens.end();
  if (!ambiguous) return pad;
  if (config.allow_ambiguous_pad_tokens) {
    log.warning(
        fmt::format("the padding token {} is also another special token, which is not trained because "
                    "--allow-ambiguous-pad-tokens is set.",
                    pad));
    return pad;
  }
  log.warning(
      fmt::format("the padding token {} is also another special token; no token of the data counts as padding.", pad));
  return kNoPad;
}

GptDatasetIdentity make_identity(const TokenSource& source, const GptDatasetPart& part,
                                 const GptDatasetConfig& config) {
  GptDatasetIdentity identity;
  if (part.mock) {
    identity.class_name = "MockGPTDataset";
  } else {
    identity.dataset_path = source.name();
    if (config.fill_in_the_middle) identity.class_name = "GPTFIMDataset";
  }
  identity.num_samples = part.num_samples;
  identity.index_split = part.split;
  identity.random_seed = config.random_seed;
  identity.sequence_length = config.sequence_length;
  identity.split = part.split_text;
  identity.split_matrix = part.split_matrix;
  identity.tokenizer = config.tokenizer.identity;
  return identity;
}

GptIndexRequest make_request(const TokenSource& source, const GptDatasetPart& part, const GptDatasetConfig& config) {
  require<ConfigError>(config.sequence_length > 0, "--seq-length {} is not positive", config.sequence_length);
  require<ConfigError>(
      !(config.inter_document_masking && (config.reset_position_ids || config.reset_attention_mask)),
      "--dataloader-inter-document-masking separates documents already; leave out --reset-position-ids "
      "and --reset-attention-mask.");
  require(part.sequences.begin >= 0 && part.sequences.begin <= part.sequences.end &&
              part.sequences.end <= source.num_sequences(),
          "sequences {} to {} of {}", part.sequences.begin, part.sequences.end, source.num_sequences());
  GptIndexRequest request;
  request.sequences = part.sequences;
  for (int64_t i = part.sequences.begin; i < part.sequences.end; ++i) {
    request.tokens_per_epoch += source.sequence_length(i);
  }
  request.sequence_length = config.sequence_length;
  request.extra_tokens = config.add_extra_token_to_sequence ? 1 : 0;
  request.num_samples = part.num_samples;
  request.drop_last = part.split != Split::kValid || config.drop_last_partial_validation_sequence;
  require<DataError>(request.tokens_per_epoch > 0 || part.num_samples.value_or(0) == 0,
                     "{}: the {} split has {} of {} sequences and no tokens, but {} samples of it are needed. Give the "
                     "split a larger share with --split, add data, or request no samples (--eval-iters 0).",
                     source.name(), name_of(part.split), part.sequences.size(), source.num_sequences(),
                     part.num_samples.value_or(0));
  return request;
}

std::filesystem::path cache_directory(const GptDatasetIdentity& identity, const GptDatasetConfig& config) {
  if (!config.path_to_cache.empty() || !identity.dataset_path) return config.path_to_cache;
  return std::filesystem::path(*identity.dataset_path) / "cache" / (identity.class_name + "_indices");
}

}  // namespace

GptDataset::GptDataset(const TokenSource& source, const GptDatasetPart& part, const GptDatasetConfig& config,
                       const MessageLog& log)
    : source_(source),
      config_(config),
      pad_(choose_pad(config, log)),
      identity_(make_identity(source, part, config)),
      request_(make_request(source, part, config)),
      plan_(plan_epochs(request_)),
      document_index_(NpyDtype::kInt32, {0}),
      sample_index_(NpyDtype::kInt32, {1, 2}),
      shuffle_index_(NpyDtype::kUInt32, {0}) {
  load_or_build_indices(part, log);
}

void GptDataset::load_or_build_indices(const GptDatasetPart& part, const MessageLog& log) {
  CacheEntry entry;
  entry.directory = cache_directory(identity_, config_);
  entry.description = identity_.description();
  entry.stem = cache_stem(entry.description, identity_.class_name, part.split);
  // Megatron's description lacks these two, so that its indices of both kinds would replace each other.
  if (request_.extra_tokens == 0) entry.stem += "-no_extra_token";
  if (!request_.drop_last) entry.stem += "-keep_last";
  entry.arrays = {{"document_index", {plan_.num_epochs * request_.sequences.size()}},
                  {"sample_index", {plan_.num_samples + 1, 2}},
                  {"shuffle_index", {plan_.num_samples}}};
  entry.write = config_.write_cache;
  cache_files_ = entry.directory.empty() ? "" : entry.path_of("*").string();

  const auto sequence_lengths = [&] {
    std::vector<int32_t> lengths(static_cast<size_t>(request_.sequences.size()));
    for (size_t i = 0; i < lengths.size(); ++i) {
      lengths[i] = source_.sequence_length(request_.sequences.begin + static_cast<int64_t>(i));
    }
    return lengths;
  };
  const auto check = [&](std::span<const NpyArray> cached) {
    check_gpt_indices(request_, plan_, sequence_lengths(), cached[0], cached[1], cached[2]);
  };
  if (config_.check_cache) entry.check = check;
  const auto build = [&] {
    const std::vector<int32_t> lengths = sequence_lengths();
    NumpyRandomState random(config_.random_seed);
    std::vector<NpyArray> arrays;
    arrays.push_back(build_document_index(request_, plan_, random));
    arrays.push_back(build_sample_index(request_, plan_, lengths, arrays[0]));
    arrays.push_back(build_shuffle_index(plan_, random));
    return arrays;
  };
  std::vector<NpyArray> arrays =
      load_or_build(entry, fmt::format("{} {} indices", identity_.class_name, name_of(part.split)), build, log);
  document_index_ = std::move(arrays[0]);
  sample_index_ = std::move(arrays[1]);
  shuffle_index_ = std::move(arrays[2]);
  log.info(fmt::format("> total number of samples: {}", plan_.num_samples));
  log.info(fmt::format("> total number of epochs: {}", plan_.num_epochs));
}

void GptDataset::reject_index(const std::string& why) const {
  throw DataError(fmt::format(
      "{}: {}: the cached indices {} are damaged or belong to other data. Delete them; they are built again.",
      source_.name(), why, cache_files_));
}

void GptDataset::check_tokens(int64_t sequence, int64_t offset, std::span<const int64_t> tokens) const {
  const int64_t vocab_size = config_.tokenizer.vocab_size;
  const int64_t limit = vocab_size > 0 ? vocab_size : std::numeric_limits<int64_t>::max();
  const auto wrong =
      std::find_if(tokens.begin(), tokens.end(), [&](int64_t token) { return token < 0 || token >= limit; });
  if (wrong == tokens.end()) return;
  throw DataError(
      fmt::format("{}: token {} is not in the vocabulary{}. Train with the tokenizer that the data was made with, or "
                  "preprocess the data again; `megatron data check` reads a whole file.",
                  source_.place_of(sequence, offset + (wrong - tokens.begin())), *wrong,
                  vocab_size > 0 ? fmt::format(" of {} tokens", vocab_size) : ""));
}

/// Appends `count` tokens, or the rest, of the sequence at `position` of the document index.
void GptDataset::append_part(int64_t position, int64_t offset, std::optional<int64_t> count,
                             std::vector<int64_t>& tokens) const {
  const int64_t sequence = document_index_[position];
  if (sequence < request_.sequences.begin || sequence >= request_.sequences.end) {
    reject_index(fmt::format("the index names sequence {}, outside of {} to {}", sequence, request_.sequences.begin,
                             request_.sequences.end));
  }
  const int64_t length = source_.sequence_length(sequence);
  const int64_t num_tokens = count.value_or(length - offset);
  if (offset < 0 || num_tokens < 0 || num_tokens > length - offset) {
    reject_index(fmt::format("the index takes {} tokens at {} of sequence {}, which has {}", num_tokens, offset,
                             sequence, length));
  }
  const size_t before = tokens.size();
  tokens.resize(before + static_cast<size_t>(num_tokens));
  const std::span<int64_t> part = std::span(tokens).subspan(before);
  source_.read(sequence, offset, part);
  check_tokens(sequence, offset, part);
}

void GptDataset::read_tokens(int64_t index, std::vector<int64_t>& tokens, std::vector<int32_t>& part_ends) const {
  require<DataError>(index >= 0 && index < size(), "{}: sample {} was requested; there are {}", source_.name(), index,
                     size());
  const int64_t row = shuffle_index_[index];
  if (row < 0 || row >= plan_.num_samples) reject_index(fmt::format("the shuffle index names sample {}", row));
  const int64_t first = sample_index_[2 * row], first_offset = sample_index_[2 * row + 1];
  const int64_t last = sample_index_[2 * row + 2], last_offset = sample_index_[2 * row + 3];
  if (first < 0 || last < first || last >= document_index_.num_elements()) {
    reject_index(fmt::format("sample {} runs from document {} to {}", row, first, last));
  }

  const int64_t longest = config_.sequence_length + request_.extra_tokens;
  tokens.clear();
  part_ends.clear();
  for (int64_t position = first; position <= last; ++position) {
    const int64_t offset = position == first ? first_offset : 0;
    std::optional<int64_t> count;
    if (position == last) count = last_offset + request_.extra_tokens - offset;
    append_part(position, offset, count, tokens);
    if (static_cast<int64_t>(tokens.size()) > longest) {
      reject_index(fmt::format("sample {} has more than {} tokens", row, longest));
    }
    part_ends.push_back(static_cast<int32_t>(tokens.size()));
  }
  const bool may_be_short = !request_.drop_last && row + 1 == plan_.num_samples;
  if (std::ssize(tokens) < longest && !may_be_short)
    reject_index(fmt::format("sample {} has {} tokens of {}", row, tokens.size(), longest));
  if (config_.fill_in_the_middle) {
    NumpyRandomState random((config_.random_seed + index) & 0xFFFFFFFF);
    config_.fill_in_the_middle->apply(tokens, random);
  }
  tokens.resize(static_cast<size_t>(longest), pad_);
}

void GptDataset::cut_documents(const std::vector<int32_t>& part_ends, GptSample& sample) const {
  // Tokens that are inputs: the extra token is only a label. Padding belongs to the last document.
  const int32_t num_inputs = part_ends.back() - static_cast<int32_t>(request_.extra_tokens);
  int32_t start = 0;
  for (int32_t end : part_ends) {
    if (end == start || end >= num_inputs) continue;
    sample.document_cuts.push_back(end);
    start = end;
    std::iota(sample.position_ids.begin() + start, sample.position_ids.end(), int64_t{0});
  }
}

void GptDataset::apply_end_of_document(GptSample& sample) const {
  int64_t start = 0;
  const auto s = static_cast<int64_t>(sample.tokens.size());
  for (int64_t i = 0; i < s; ++i) {
    if (config_.reset_position_ids) sample.position_ids[static_cast<size_t>(i)] = i - start;
    if (sample.tokens[static_cast<size_t>(i)] != config_.tokenizer.eod) continue;
    start = i + 1;
    if (config_.eod_mask_loss) sample.loss_mask[static_cast<size_t>(i)] = 0;
    if (config_.reset_attention_mask && start < s) sample.document_cuts.push_back(static_cast<int32_t>(start));
  }
}

void GptDataset::read(int64_t index, GptSample& sample) const {
  std::vector<int32_t> part_ends;
  read_tokens(index, sample.tokens, part_ends);
  const auto s = static_cast<size_t>(config_.sequence_length);
  sample.labels.assign(sample.tokens.begin() + 1, sample.tokens.end());
  sample.labels.resize(s, pad_);
  sample.tokens.resize(s);
  sample.loss_mask.assign(s, 1.0f);
  sample.position_ids.resize(s);
  std::iota(sample.position_ids.begin(), sample.position_ids.end(), int64_t{0});
  sample.document_cuts.clear();
  sample.dataset_id = 0;

  if (config_.inter_document_masking) cut_documents(part_ends, sample);
  apply_end_of_document(sample);

  for (size_t i = 0; i < s; ++i) {
    if (sample.labels[i] == pad_) sample.labels[i] = 0, sample.loss_mask[i] = 0;
    if (sample.tokens[i] == pad_) sample.tokens[i] = 0;
  }
}

void GptDataset::read_padding(GptSample& sample) const {
  read(0, sample);
  std::fill(sample.loss_mask.begin(), sample.loss_mask.end(), 0.0f);
}

}  // namespace megatron
