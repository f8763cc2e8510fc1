// A micro-batch in host memory, whatever model it is for: what data sets hand to training.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace megatron {

/// [num_samples, length], row-major.
struct HostTensor {
  std::string_view name;
  std::variant<std::span<const int64_t>, std::span<const int32_t>, std::span<const float>> values;
};

/// The sequences that the rows of a tensor form: whole samples, or the documents in them.
struct HostSequences {
  std::string_view name;  // of the layout that they become
  int64_t length = 0;     // of a sample
  /// Documents begin at `cuts`, all samples one after the other, ascending and without 0; at `cut_ends` those of each
  /// sample end in `cuts` [num_samples].
  std::span<const int32_t> cuts;
  std::span<const int64_t> cut_ends;
  std::span<const int64_t> position_ids;  // [num_samples, length]

  /// The cuts of one sample.
  std::span<const int32_t> cuts_of(int64_t sample) const {
    const int64_t begin = sample == 0 ? 0 : cut_ends[static_cast<size_t>(sample - 1)];
    return cuts.subspan(static_cast<size_t>(begin), static_cast<size_t>(cut_ends[static_cast<size_t>(sample)] - begin));
  }
};

/// The tensor of weights of tokens in the loss, whose elements other than 0 are the valid tokens.
inline constexpr std::string_view kLossMask = "loss_mask";

/// A view: the values belong to the data set's batch.
struct HostBatch {
  int64_t num_samples = 0;
  int64_t sequence_length = 0;   // tokens of a sample, for counts of operations
  int64_t num_valid_tokens = 0;  // what the loss is divided by
  std::vector<HostTensor> tensors;
  std::vector<HostSequences> sequences;
};

/// A micro-batch that owns its values, of any tensors.
struct OwnedBatch {
  struct Values {
    std::string name;
    std::variant<std::vector<int64_t>, std::vector<int32_t>, std::vector<float>> values;
  };
  /// See HostSequences.
  struct Sequences {
    std::string name;
    int64_t length = 0;
    std::vector<int32_t> cuts;
    std::vector<int64_t> cut_ends, position_ids;
  };
  int64_t num_samples = 0, sequence_length = 0, num_valid_tokens = 0;
  std::vector<Values> tensors;
  std::vector<Sequences> sequences;
};
HostBatch host_batch_of(const OwnedBatch& batch);

}  // namespace megatron
