// Reader of Megatron's `<prefix>.idx` and `<prefix>.bin`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/mapped_file.h"
#include "megatron/datasets/indexed_format.h"
#include "megatron/datasets/token_source.h"

namespace megatron {

struct IndexedDatasetOptions {
  /// How `.bin` is read; `.idx` is always mapped.
  FileAccess access = FileAccess::kMap;
  /// The file has one mode per sequence. The file does not record this: the caller must know.
  bool multimodal = false;
};

/// @throw DataError unless `<prefix>.idx` and `<prefix>.bin` exist.
void require_dataset_files(const std::string& prefix);

/// A dataset of sequences grouped into documents, stored as `<prefix>.idx` and `<prefix>.bin`.
///
/// Opening checks in one pass that the sequences follow each other without gaps and fill `.bin`, as every builder
/// writes them, so that a damaged index gives an error instead of wrong tokens. Only a start of a document that moved
/// between its neighbours goes unnoticed; samples of a GPT are made of sequences and do not depend on it. Thread-safe
/// after construction. Empty `.bin` files, empty documents and sequences of length 0 are valid.
class IndexedDataset final : public TokenSource {
 public:
  /// @throw DataError naming file, rule, values and fix if a file is missing, damaged or does not fit the other one.
  IndexedDataset(const std::string& prefix, const IndexedDatasetOptions& options);

  const std::string& name() const override { return prefix_; }
  int64_t num_sequences() const override { return num_sequences_; }
  int64_t num_documents() const { return num_document_indices_ - 1; }
  int64_t num_tokens() const { return num_tokens_; }
  TokenType token_type() const { return token_type_; }
  bool multimodal() const { return multimodal_; }
  uint64_t index_bytes() const { return index_.size_bytes(); }
  uint64_t token_bytes() const { return tokens_.size_bytes(); }

  int32_t sequence_length(int64_t sequence) const override;
  /// Byte offset of the sequence in `.bin`.
  int64_t sequence_pointer(int64_t sequence) const;
  /// The sequence that document `document` starts with; entry num_documents() is num_sequences().
  int64_t document_index(int64_t document) const;
  /// Mode of a sequence; the dataset must be multimodal.
  int8_t sequence_mode(int64_t sequence) const;

  /// The sequence that has the token at this byte of `.bin`, and the document that a sequence belongs to. O(log n).
  int64_t sequence_at(int64_t byte_offset) const;
  int64_t document_of(int64_t sequence) const;
  /// "PREFIX.bin: byte 10, position 3 of document 1 (position 2 of sequence 4)".
  std::string place_of(int64_t sequence, int64_t position) const override;

  void read(int64_t sequence, int64_t offset, std::span<int64_t> out) const override;
  /// The whole sequence. Floating tokens are truncated towards zero; `sequence_values` keeps them.
  std::vector<int64_t> sequence(int64_t sequence) const;
  std::vector<double> sequence_values(int64_t sequence) const;
  /// The stored bytes of a whole sequence; `out` has sequence_length(sequence) * size_of(token_type()) bytes.
  void read_bytes(int64_t sequence, std::span<std::byte> out) const;
  /// The stored bytes of all sequences, one after the other, from byte `offset` on.
  void read_token_bytes(uint64_t offset, std::span<std::byte> out) const { tokens_.read(offset, out); }

 private:
  void parse_header();
  void check_documents() const;
  bool sequences_fill_tokens() const;
  [[noreturn]] void reject_sequences() const;
  void check_sizes() const;
  void check_range(int64_t sequence, int64_t offset, size_t count) const;
  template <class Out>
  void convert(int64_t sequence, int64_t offset, std::span<Out> out) const;

  std::string prefix_;
  MappedFile index_;
  MappedFile tokens_;
  TokenType token_type_{};
  bool multimodal_ = false;
  int64_t num_sequences_ = 0;
  int64_t num_document_indices_ = 0;
  int64_t num_tokens_ = 0;
};

}  // namespace megatron
