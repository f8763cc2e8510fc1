// Megatron's document, sample and shuffle indices, which map samples to tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "megatron/datasets/npy_array.h"
#include "megatron/datasets/numpy_random.h"
#include "megatron/datasets/split.h"

namespace megatron {

/// The input of the indices of one split, except for the random order.
struct GptIndexRequest {
  /// The sequences of the split, and the sum of their lengths.
  IndexRange sequences;
  int64_t tokens_per_epoch = 0;
  /// Tokens that a sample advances by, and tokens that it reads beyond them (0 or 1).
  int64_t sequence_length = 0;
  int64_t extra_tokens = 1;
  /// Samples that are needed; nullopt is one pass over the data.
  std::optional<int64_t> num_samples;
  /// Says whether a short last sample is left out.
  bool drop_last = true;
};

/// The number of epochs, and the samples that they give.
struct EpochPlan {
  int64_t num_epochs = 1;
  /// Few samples come from the last epoch, so it is shuffled separately.
  bool separate_final_epoch = false;
  /// Samples of all epochs, and of all but the last one.
  int64_t num_samples = 0;
  int64_t num_samples_sans_final_epoch = 0;
};

/// Source: Megatron Core, GPTDataset._build_document_sample_shuffle_indices.
/// @throw DataError if samples are needed but there are no tokens.
EpochPlan plan_epochs(const GptIndexRequest& request);

/// The sequences of all epochs in shuffled order: [num_epochs * sequences], int32.
/// @throw NotSupported for more than 2^31 - 1 sequences.
NpyArray build_document_index(const GptIndexRequest& request, const EpochPlan& plan, NumpyRandomState& random);

/// The begin of each sample: row k is (position in the document index, token in that sequence), and row k + 1 its end:
/// [plan.num_samples + 1, 2], int32, or int64 when the document index needs it. O(documents + samples).
/// @param lengths  tokens of each sequence of request.sequences.
/// Source: Megatron Core, helpers.cpp, build_sample_idx.
NpyArray build_sample_index(const GptIndexRequest& request, const EpochPlan& plan, std::span<const int32_t> lengths,
                            const NpyArray& document_index);

/// The shuffled order of samples: [plan.num_samples], uint32 (int64 from 2^32 - 2 samples on).
NpyArray build_shuffle_index(const EpochPlan& plan, NumpyRandomState& random);

/// Checks that indices are of the kind that the functions above build: the document index and the shuffle index are
/// permutations of their epochs, and every sample starts where the one before it ends. So no change of a single value
/// goes unnoticed, and no change of the data's lengths. O(documents + samples), like building.
/// @throw DataError naming the first value that is wrong
void check_gpt_indices(const GptIndexRequest& request, const EpochPlan& plan, std::span<const int32_t> lengths,
                       const NpyArray& document_index, const NpyArray& sample_index, const NpyArray& shuffle_index);

}  // namespace megatron
