// The files that preprocess_data writes.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/tokenizers/document_encoder.h"

namespace megatron {

/// One pair of files for each key.
class PreprocessOutput {
 public:
  struct Saved {
    std::vector<IndexedDatasetBuilder::SavedState> builders;
    std::vector<int64_t> num_tokens;
  };
  struct Options {
    std::string prefix;
    std::vector<std::string> keys;
    std::string_view level;  ///< "document" or "sentence"
    TokenType token_type = TokenType::kInt32;
  };
  explicit PreprocessOutput(const Options& options) : PreprocessOutput(options, nullptr) {}
  /// Continues files that another process saved. @throw what IndexedDatasetBuilder throws
  PreprocessOutput(const Options& options, const Saved& saved) : PreprocessOutput(options, &saved) {}

  void add(const EncodedBatch& batch);
  /// Writes everything through to the disk; from then on the files stay unless they are finalized.
  Saved save();
  /// Renames the files to their final names and prints them.
  void finalize(std::ostream& out);

 private:
  PreprocessOutput(const Options& options, const Saved* saved);
  void add(const EncodedDocuments& documents, size_t k);

  TokenType token_type_;
  std::vector<std::string> prefixes_;
  std::vector<std::unique_ptr<IndexedDatasetBuilder>> builders_;
  std::vector<int64_t> num_tokens_;
};

}  // namespace megatron
