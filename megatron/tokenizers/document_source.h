// Text files, cut into documents and read in batches.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/unpacked_file.h"

namespace megatron {

/// The part of a file that is one document.
enum class DocumentFormat {
  kLines,       ///< each line, without its newline (JSON Lines)
  kParagraphs,  ///< each run of lines that are not empty, with their newlines
  kWholeFile    ///< the file
};

/// A part of each file, in fractions of its characters: code points [floor(begin * n), floor(end * n)).
struct TextRange {
  double begin = 0, end = 1;
};

/// A place between two documents of the files.
struct DocumentPosition {
  size_t file = 0;       ///< number of the file
  int64_t offset = 0;    ///< in its unpacked bytes
  int64_t line = 0;      ///< lines of the file before it
  int64_t document = 0;  ///< documents of all files before it
};

/// Documents that follow each other in one file, as they stand there.
struct RawBatch {
  struct Document {
    size_t offset, size;  ///< in `bytes`
    int64_t line;         ///< of the file, counted from 1, where it starts
    int64_t input_bytes;  ///< of the file that it takes up, separators included
  };
  std::string file;
  std::string bytes;  ///< followed by kPaddingBytes bytes that may be read, as simdjson does
  std::vector<Document> documents;
  DocumentPosition end = {};  ///< where the next batch begins

  static constexpr size_t kPaddingBytes = 64;
  std::string_view text_of(const Document& document) const {
    return std::string_view(bytes).substr(document.offset, document.size);
  }
};

/// Reads files one after the other, unpacking those that are compressed by gzip or zstd; with kLines and kParagraphs it
/// holds about a batch in memory, whatever their size.
class DocumentSource {
 public:
  struct Options {
    std::vector<std::string> files;
    DocumentFormat format = DocumentFormat::kLines;
    /// Only documents whose number, counted over all files, is `remainder` modulo `divisor`.
    int64_t divisor = 1, remainder = 0;
    int64_t max_documents = std::numeric_limits<int64_t>::max();  ///< the rest is not read
    DocumentPosition start = {};      ///< the position behind a batch: what is before is left out
    TextRange range = {};             ///< kWholeFile only
    size_t batch_bytes = 512 * 1024;  ///< read at once; a longer document makes a longer batch
  };
  explicit DocumentSource(Options options);

  /// The next batch, which has at least one document; nullopt at the end.
  /// @throw what UnpackedFile does, and DataError if a range is asked of text that is not UTF-8.
  std::optional<RawBatch> next();

  /// Bytes of the files, packed ones as they are, that have been read.
  int64_t file_bytes() const { return closed_file_bytes_ + (file_ ? file_->position() : 0); }

 private:
  void open_next_file();
  void close_file();
  DocumentPosition position() const;
  std::string read_block();
  size_t end_of_documents(std::string_view bytes, size_t searched) const;
  void add_documents(RawBatch& batch);
  void add(RawBatch& batch, size_t begin, size_t end, size_t next);

  Options options_;
  size_t num_opened_ = 0;
  std::unique_ptr<UnpackedFile> file_;
  std::string rest_;  // of the block before: the start of a document
  int64_t num_lines_ = 0;
  int64_t offset_ = 0;  // of the file: where the documents begin that have not been taken
  int64_t num_documents_ = 0;
  int64_t closed_file_bytes_ = 0;
};

}  // namespace megatron
