// Reads every token of a dataset to find those that no vocabulary has.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "megatron/datasets/indexed_dataset.h"

namespace megatron {

/// The place of a token that is not in the vocabulary.
struct TokenFault {
  int64_t token;
  int64_t document, sequence;
  int64_t position;      ///< in the sequence
  uint64_t byte_offset;  ///< in the .bin file
};

struct TokenCheck {
  int64_t largest_token = -1;  ///< before the first fault; -1 without tokens
  std::optional<TokenFault> first_fault;
};

/// Reads the .bin file once, in order, up to the first token that is negative or not below `vocab_size`.
/// @param vocab_size  0: any token that is not negative is right.
/// @param on_progress  receives the number of tokens read so far, every 256 KiB.
/// @throw DataError for a dataset of floating-point numbers, IoError if the file cannot be read.
TokenCheck check_tokens(const IndexedDataset& dataset, int64_t vocab_size,
                        const std::function<void(int64_t)>& on_progress);

}  // namespace megatron
