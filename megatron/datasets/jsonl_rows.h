// The lines of a JSON Lines file by number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/mapped_file.h"

namespace megatron {

/// A row is a line that is not blank. Holds 8 bytes a row in memory. Thread-safe once made.
class JsonlRows {
 public:
  /// @throw IoError if the file cannot be opened or mapped.
  explicit JsonlRows(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return static_cast<int64_t>(begins_.size()); }
  /// The text of row `index`, 0 <= index < size(), without its newline.
  std::string_view row(int64_t index) const;
  /// The line of the file on which a row stands, counted from 1. Reads the file up to there.
  int64_t line_number(int64_t index) const;

 private:
  std::string_view text() const;

  std::string path_;
  MappedFile file_;
  std::vector<uint64_t> begins_;  // offsets of rows
};

}  // namespace megatron
