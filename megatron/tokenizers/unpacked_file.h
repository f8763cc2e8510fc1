// Files that may be compressed, read from their start.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace megatron {

/// A file as it is, or unpacked if it is compressed by gzip or zstd, whatever its name.
class UnpackedFile {
 public:
  virtual ~UnpackedFile() = default;
  /// The next bytes: fewer than asked for at the end of the file only.
  /// @throw IoError if reading fails, DataError if compressed data are damaged or cut off.
  virtual size_t read(std::span<char> out) = 0;
  /// Leaves out `num_bytes` bytes, or what there is up to the end of the file.
  virtual void skip(int64_t num_bytes);
  /// Bytes of the file, packed as they are, that have been read.
  virtual int64_t position() const = 0;

  /// @throw IoError if the file cannot be opened; NotSupported if it is a Parquet file, or it is compressed by zstd and
  /// this build cannot
  ///        unpack that, or the file is a pipe.
  static std::unique_ptr<UnpackedFile> open(const std::string& path);
};

}  // namespace megatron
