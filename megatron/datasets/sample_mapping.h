// Samples of data sets whose documents are lists of sentences (BERT, T5).
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/split.h"

namespace megatron {

struct SampleMappingRequest {
  IndexRange documents;
  int64_t num_samples = 0;  ///< at least this many: whole passes over the documents
  int64_t max_length = 0;   ///< tokens of a sample
  /// The share of samples whose target is a random length from 2 to max_length.
  double short_sequence_probability = 0;
  int64_t random_seed = 1234;
  int64_t min_sentences = 1;
};

/// Sentences [first, end) of one document, about as many as have the target's number of tokens.
struct SampleMappingRow {
  int64_t first, end, target_length;
};

/// Sentences are gathered until they reach a target; documents with a sentence of more than 512 tokens are left out.
/// Source: Megatron Core, datasets/helpers.cpp, build_mapping.
/// @throw DataError if samples are needed and no document has enough sentences.
std::vector<SampleMappingRow> build_sample_mapping(const IndexedDataset& sentences,
                                                   const SampleMappingRequest& request);

}  // namespace megatron
