// The files of --per-dataset-sequences-path.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace megatron {

/// The facts of a dataset that Megatron keeps in such a file, so that it need not read the header of its .idx.
struct SequenceCounts {
  int64_t num_sequences = 0;
  int64_t num_document_indices = 0;  ///< documents and one
  friend bool operator==(const SequenceCounts&, const SequenceCounts&) = default;
};

/// By prefix, in the order of the file.
using SequenceCountsByPrefix = std::vector<std::pair<std::string, SequenceCounts>>;

/// The counts of datasets, each prefix once, in the order in which they are first named. Reads the headers alone.
/// @throw as IndexedDataset for a dataset that is missing or whose header is damaged
SequenceCountsByPrefix count_sequences(std::span<const std::string> prefixes);

/// Reads or writes {"prefix": [N, D], ...} as Megatron's build_sequences_per_dataset.py writes it.
/// @throw IoError, or DataError if the file has another form
SequenceCountsByPrefix read_sequence_counts(const std::string& path);
void write_sequence_counts(const std::string& path, const SequenceCountsByPrefix& counts);

}  // namespace megatron
