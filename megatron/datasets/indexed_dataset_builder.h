// Writer of Megatron's `<prefix>.idx` and `<prefix>.bin`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/indexed_format.h"
#include "megatron/datasets/temporary_file.h"

namespace megatron {

/// Writes a dataset, document by document. Both files are written under temporary names beside their final ones;
/// `finalize` gives them their names, `.idx` last, so that a killed writer never leaves a pair that looks complete.
/// Without `finalize` the destructor removes the files; leftovers of a killed process are removed by the next builder
/// of that prefix.
///
///   IndexedDatasetBuilder builder("data/my_text_document", {.token_type = optimal_token_type(50257)});
///   builder.add_document(tokens, lengths);
///   builder.finalize();
class IndexedDatasetBuilder {
 public:
  /// The part of a dataset that is on the disk: the names and sizes of its temporary files.
  struct SavedState {
    std::string bin, log;
    int64_t bin_bytes = 0, log_bytes = 0;
  };
  struct Options {
    TokenType token_type = TokenType::kInt32;
    /// One mode per sequence is stored.
    bool multimodal = false;
    /// Continues a dataset of this prefix and token type where a process that has ended saved it.
    std::optional<SavedState> saved = std::nullopt;
  };

  /// @throw IoError if `<prefix>.bin` cannot be written there, or a file that was saved is missing or in use; DataError
  ///        if a file that was saved is damaged.
  IndexedDatasetBuilder(const std::string& prefix, const Options& options);
  ~IndexedDatasetBuilder();
  IndexedDatasetBuilder(const IndexedDatasetBuilder&) = delete;
  IndexedDatasetBuilder& operator=(const IndexedDatasetBuilder&) = delete;

  /// Adds one sequence to the open document; `end_document` closes it.
  /// @throw DataError if a token does not fit the token type.
  void add_item(std::span<const int64_t> tokens, int8_t mode = 0);
  void add_item(std::span<const double> tokens, int8_t mode = 0);
  void end_document();

  /// Adds one document made of sequences of the given lengths, which add up to tokens.size(). `modes` is empty (all 0)
  /// or has one mode per sequence. A document without sequences is an empty document.
  void add_document(std::span<const int64_t> tokens, std::span<const int32_t> lengths,
                    std::span<const int8_t> modes = {});
  void add_document(std::span<const int32_t> tokens, std::span<const int32_t> lengths,
                    std::span<const int8_t> modes = {});
  void add_document(std::span<const double> tokens, std::span<const int32_t> lengths,
                    std::span<const int8_t> modes = {});

  /// Adds all documents of another dataset. @throw DataError if its token type differs.
  void add_index(const std::string& prefix);

  int64_t num_sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t num_documents() const { return static_cast<int64_t>(document_indices_.size()) - 1; }

  /// Writes all that has been added through to the disk. From then on the destructor leaves the files for a builder
  /// that continues from this state. Not for multimodal datasets. @throw IoError
  SavedState save();

  /// Completes both files. Nothing can be added afterwards. @throw IoError
  void finalize();
  /// Finalizes several builders: no index gets its name before all files are complete and all `.bin` files have theirs.
  /// @throw IoError; then none has an index.
  static void finalize_together(std::span<const std::unique_ptr<IndexedDatasetBuilder>> builders);

 private:
  template <class In>
  void append_tokens(std::span<const In> tokens);
  template <class In>
  void append_document(std::span<const In> tokens, std::span<const int32_t> lengths, std::span<const int8_t> modes);
  void push_sequence(size_t length, int8_t mode);
  void write_bytes(std::span<const std::byte> bytes);
  void restore(const SavedState& saved);
  void complete_files();
  void remove_index() const;
  void write_index();

  std::string prefix_;
  Options options_;
  TemporaryFile temporary_bin_;
  std::optional<TemporaryFile> temporary_log_;  // lengths and document indices that have been saved
  std::optional<TemporaryFile> temporary_idx_;  // set when it is complete
  std::ofstream bin_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> document_indices_ = {0};
  std::vector<int8_t> modes_;
  std::vector<std::byte> buffer_;
  SavedState saved_;
  size_t num_saved_lengths_ = 0, num_saved_documents_ = 1;  // of the vectors above
  bool finalized_ = false;
};

}  // namespace megatron
