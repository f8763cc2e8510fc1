// Samples of BERT and T5: sentences with masked tokens. Programs make them by masked_dataset_builder.h; no command
// trains these models yet.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/sample_mapping.h"
#include "megatron/datasets/word_piece_masking.h"

namespace megatron {

struct MaskedDatasetConfig {
  int64_t sequence_length = 0;
  int64_t sequence_length_decoder = 0;  ///< T5
  bool classification_head = true;      ///< BERT: samples have two parts, whose order is to be told
  int64_t random_seed = 1234;
  double short_sequence_probability = 0.1;
  WordPieceMaskingConfig masking = {};
};

/// All of [sequence_length], with 0 in the padding unless another value is named.
struct BertSample {
  std::vector<int64_t> text, types;
  std::vector<int64_t> labels;  ///< the masked tokens, -1 elsewhere
  std::vector<int64_t> padding_mask, loss_mask;
  bool is_random = false;  ///< the second part stands first
  bool truncated = false;
};

/// Source: Megatron Core, BERTMaskedWordPieceDataset. Thread-safe once made; a sample depends on its number.
class BertDataset {
 public:
  /// @param documents  of `sentences`, which must outlive the data set. @throw ConfigError, DataError
  BertDataset(const IndexedDataset& sentences, IndexRange documents, int64_t num_samples,
              const MaskedDatasetConfig& config, WordPieceVocabulary vocabulary);

  int64_t size() const { return std::ssize(mapping_); }
  const std::vector<SampleMappingRow>& mapping() const { return mapping_; }
  void read(int64_t index, BertSample& sample) const;

 private:
  MaskedTokens mask(std::span<const int64_t> tokens, int64_t target_length, NumpyRandomState& random) const;

  const IndexedDataset& sentences_;
  MaskedDatasetConfig config_;
  WordPieceVocabulary vocabulary_;
  std::vector<SampleMappingRow> mapping_;
};

struct T5Sample {
  std::vector<int64_t> text_enc, enc_mask;             ///< [sequence_length]
  std::vector<int64_t> text_dec, loss_mask, dec_mask;  ///< [sequence_length_decoder], and:
  std::vector<int64_t> labels;                         ///< with -1 in the padding
  bool truncated = false;
};

/// Source: Megatron Core, T5MaskedWordPieceDataset. Thread-safe once made; a sample depends on its number.
class T5Dataset {
 public:
  /// @param documents  of `sentences`, which must outlive the data set. @throw ConfigError, DataError
  T5Dataset(const IndexedDataset& sentences, IndexRange documents, int64_t num_samples,
            const MaskedDatasetConfig& config, WordPieceVocabulary vocabulary);

  int64_t size() const { return std::ssize(mapping_); }
  const std::vector<SampleMappingRow>& mapping() const { return mapping_; }
  /// @throw DataError if a sample does not fit the decoder, or has more spans than there are sentinels.
  void read(int64_t index, T5Sample& sample) const;

 private:
  const IndexedDataset& sentences_;
  MaskedDatasetConfig config_;
  WordPieceVocabulary vocabulary_;
  std::vector<SampleMappingRow> mapping_;
};

}  // namespace megatron
