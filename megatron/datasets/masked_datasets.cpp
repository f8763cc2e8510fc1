#include "megatron/datasets/masked_datasets.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr int64_t kNoLabel = -1;

NumpyRandomState random_of(const MaskedDatasetConfig& config, int64_t index) {
  return NumpyRandomState((config.random_seed + index) % (int64_t{1} << 32));
}

std::vector<int64_t> tokens_of(const IndexedDataset& sentences, int64_t first, int64_t end,
                               const WordPieceVocabulary& vocabulary) {
  std::vector<int64_t> tokens;
  for (int64_t s = first; s < end; ++s) {
    const std::vector<int64_t> sentence = sentences.sequence(s);
    tokens.insert(tokens.end(), sentence.begin(), sentence.end());
  }
  for (const int64_t token : tokens)
    require<DataError>(token >= 0 && token < vocabulary.size(),
                       "{}: token {} of sequences {} to {} is not in the vocabulary of {} tokens. Train with the "
                       "tokenizer that the data was made with",
                       sentences.name(), token, first, end, vocabulary.size());
  return tokens;
}

/// Removes tokens from the ends of the longer part until both have `target` tokens. @return whether any was removed
bool truncate(std::vector<int64_t>& a, std::vector<int64_t>& b, size_t target, NumpyRandomState& random) {
  const bool truncated = a.size() + b.size() > target;
  while (a.size() + b.size() > target) {
    std::vector<int64_t>& longer = a.size() > b.size() ? a : b;
    if (random.next_double() < 0.5)
      longer.erase(longer.begin());
    else
      longer.pop_back();
  }
  return truncated;
}

const SampleMappingRow& row_of(const std::vector<SampleMappingRow>& mapping, int64_t index) {
  require<DataError>(index >= 0 && index < std::ssize(mapping), "sample {} was requested; there are {}", index,
                     mapping.size());
  return mapping[static_cast<size_t>(index)];
}

SampleMappingRequest request_of(IndexRange documents, int64_t num_samples, const MaskedDatasetConfig& config,
                                int64_t num_added_tokens, int64_t min_sentences) {
  return {.documents = documents,
          .num_samples = num_samples,
          .max_length = config.sequence_length - num_added_tokens,
          .short_sequence_probability = config.short_sequence_probability,
          .random_seed = config.random_seed,
          .min_sentences = min_sentences};
}

/// Ones for `count` positions of `length`.
std::vector<int64_t> ones(size_t count, int64_t length) {
  std::vector<int64_t> mask(static_cast<size_t>(length));
  std::fill_n(mask.begin(), count, int64_t{1});
  return mask;
}

}  // namespace

BertDataset::BertDataset(const IndexedDataset& sentences, IndexRange documents, int64_t num_samples,
                         const MaskedDatasetConfig& config, WordPieceVocabulary vocabulary)
    : sentences_(sentences),
      config_(config),
      vocabulary_(std::move(vocabulary)),
      mapping_(build_sample_mapping(
          sentences, request_of(documents, num_samples, config, 3, config.classification_head ? 2 : 1))) {}

MaskedTokens BertDataset::mask(std::span<const int64_t> tokens, int64_t target_length, NumpyRandomState& random) const {
  // In 8 of 10 cases the mask, in 1 the token itself, in 1 any token.
  const auto replacement = [&](int64_t token, NumpyRandomState& draws) {
    if (draws.next_double() < 0.8) return vocabulary_.mask;
    if (draws.next_double() < 0.5) return token;
    return static_cast<int64_t>(draws.interval(static_cast<uint64_t>(vocabulary_.size() - 1)));
  };
  return mask_word_pieces(tokens, target_length, config_.masking, vocabulary_, replacement, random);
}

void BertDataset::read(int64_t index, BertSample& sample) const {
  const SampleMappingRow& row = row_of(mapping_, index);
  NumpyRandomState random = random_of(config_, index);
  const auto count = static_cast<uint64_t>(row.end - row.first);
  int64_t pivot = row.end;
  if (config_.classification_head)
    pivot = row.first + 1 + (count >= 3 ? static_cast<int64_t>(random.interval(count - 2)) : 0);
  std::vector<int64_t> a = tokens_of(sentences_, row.first, pivot, vocabulary_);
  std::vector<int64_t> b = tokens_of(sentences_, pivot, row.end, vocabulary_);
  sample.is_random = config_.classification_head && random.next_double() < 0.5;
  if (sample.is_random) std::swap(a, b);
  sample.truncated = truncate(a, b, static_cast<size_t>(row.target_length), random);

  std::vector<int64_t> tokens = {vocabulary_.cls};
  tokens.insert(tokens.end(), a.begin(), a.end());
  tokens.push_back(vocabulary_.sep);
  const size_t begin_of_b = tokens.size();
  tokens.insert(tokens.end(), b.begin(), b.end());
  if (!b.empty()) tokens.push_back(vocabulary_.sep);

  const MaskedTokens masked = mask(tokens, row.target_length, random);
  const auto s = static_cast<size_t>(config_.sequence_length);
  sample.text = masked.tokens;
  sample.text.resize(s);
  sample.types.assign(s, 0);
  std::fill(sample.types.begin() + static_cast<std::ptrdiff_t>(begin_of_b),
            sample.types.begin() + static_cast<std::ptrdiff_t>(tokens.size()), 1);
  sample.padding_mask = ones(tokens.size(), config_.sequence_length);
  sample.labels.assign(s, kNoLabel);
  sample.loss_mask.assign(s, 0);
  for (const MaskedSpan& span : masked.spans)
    for (size_t i = 0; i < span.positions.size(); ++i) {
      sample.labels[span.positions[i]] = span.tokens[i];
      sample.loss_mask[span.positions[i]] = 1;
    }
}

T5Dataset::T5Dataset(const IndexedDataset& sentences, IndexRange documents, int64_t num_samples,
                     const MaskedDatasetConfig& config, WordPieceVocabulary vocabulary)
    : sentences_(sentences),
      config_(config),
      vocabulary_(std::move(vocabulary)),
      mapping_(build_sample_mapping(sentences, request_of(documents, num_samples, config, 2, 1))) {}

void T5Dataset::read(int64_t index, T5Sample& sample) const {
  const SampleMappingRow& row = row_of(mapping_, index);
  NumpyRandomState random = random_of(config_, index);
  std::vector<int64_t> tokens = tokens_of(sentences_, row.first, row.end, vocabulary_);
  sample.truncated = std::ssize(tokens) > row.target_length;
  if (sample.truncated) tokens.resize(static_cast<size_t>(row.target_length));
  const MaskedTokens masked = mask_word_pieces(
      tokens, row.target_length, config_.masking, vocabulary_,
      [&](int64_t, NumpyRandomState&) { return vocabulary_.mask; }, random);
  require<DataError>(masked.spans.size() <= vocabulary_.sentinels.size(),
                     "{}: sample {} has {} masked spans, but the vocabulary has {} tokens to stand for them. Add "
                     "special tokens, or mask less",
                     sentences_.name(), index, masked.spans.size(), vocabulary_.sentinels.size());

  sample.text_enc.clear();
  sample.text_dec = {vocabulary_.bos};
  sample.labels.clear();
  auto rest = tokens.begin();
  for (size_t k = 0; k < masked.spans.size(); ++k) {
    const MaskedSpan& span = masked.spans[k];
    sample.text_enc.insert(sample.text_enc.end(), rest,
                           tokens.begin() + static_cast<std::ptrdiff_t>(span.positions.front()));
    rest = tokens.begin() + static_cast<std::ptrdiff_t>(span.positions.back()) + 1;
    sample.text_enc.push_back(vocabulary_.sentinels[k]);
    for (std::vector<int64_t>* decoder : {&sample.text_dec, &sample.labels}) {
      decoder->push_back(vocabulary_.sentinels[k]);
      decoder->insert(decoder->end(), span.tokens.begin(), span.tokens.end());
    }
  }
  sample.text_enc.insert(sample.text_enc.end(), rest, tokens.end());
  sample.labels.push_back(vocabulary_.eos);

  const size_t num_enc = sample.text_enc.size(), num_dec = sample.text_dec.size();
  require<DataError>(std::cmp_less_equal(num_enc, config_.sequence_length) &&
                         std::cmp_less_equal(num_dec, config_.sequence_length_decoder),
                     "{}: sample {} needs {} tokens of the encoder and {} of the decoder, which have {} and {}. Raise "
                     "--encoder-seq-length or --decoder-seq-length, or mask less",
                     sentences_.name(), index, num_enc, num_dec, config_.sequence_length,
                     config_.sequence_length_decoder);
  sample.text_enc.resize(static_cast<size_t>(config_.sequence_length));
  sample.text_dec.resize(static_cast<size_t>(config_.sequence_length_decoder));
  sample.labels.resize(static_cast<size_t>(config_.sequence_length_decoder), kNoLabel);
  sample.enc_mask = ones(num_enc, config_.sequence_length);
  sample.dec_mask = ones(num_dec, config_.sequence_length_decoder);
  sample.loss_mask = sample.dec_mask;
}

}  // namespace megatron
