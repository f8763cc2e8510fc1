// Zip archives as torch.save writes them: nothing compressed, each payload aligned to 64 bytes.
// Source: PKWARE APPNOTE 6.3.10 for the records, files of torch 2.11 for alignment and flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/file_system.h"

namespace megatron {

/// CRC-32 of zip (polynomial 0xEDB88320). `previous` is the value of the bytes before these, 0 at the start.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous);

struct ZipEntry {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc = 0;
  int64_t header_offset = 0;  // of the entry's local header in the archive
};

/// Finds the entries of an archive that ends exactly where the file ends. Only stored entries are accepted.
class ZipReader {
 public:
  /// @param file    must outlive the reader.
  /// @param source  names the file in errors.
  /// @throw CheckpointError if the directory of the archive is missing or damaged, or an entry is compressed.
  ZipReader(const ReadableFile& file, std::string source);

  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// Null if there is none.
  const ZipEntry* find(std::string_view name) const;
  /// Returns the begin of the entry's bytes. @throw CheckpointError if its local header is damaged.
  int64_t payload_offset(const ZipEntry& entry) const;
  /// The whole entry. @throw CheckpointError if its checksum does not match.
  std::string read(const ZipEntry& entry) const;
  /// @throw CheckpointError, naming the entry, unless `crc` is what the archive recorded.
  void require_checksum(const ZipEntry& entry, uint32_t crc) const;

 private:
  struct Directory {
    int64_t offset = 0, bytes = 0, num_entries = 0;
  };
  Directory find_directory() const;
  void parse_directory(const Directory& directory);
  std::string read_at(int64_t offset, int64_t bytes) const;
  [[noreturn]] void fail(std::string_view problem) const;

  const ReadableFile& file_;
  std::string source_;
  std::vector<ZipEntry> entries_;
};

/// Writes an archive from front to back in one pass; the file may already hold something else before it.
/// Payloads go to the file as they come, without a copy.
class ZipWriter {
 public:
  static constexpr int64_t kAlignmentBytes = 64;

  /// @param file  must outlive the writer.
  explicit ZipWriter(WritableFile& file) : file_(file) {}
  /// Starts an entry of exactly `bytes` bytes.
  void begin(std::string name, int64_t bytes);
  void append(std::span<const std::byte> bytes);
  /// @throw InternalError unless exactly the announced bytes were appended.
  void end();
  void add(std::string name, std::string_view content);
  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// Writes the directory. @return bytes of the whole archive.
  int64_t finish();

 private:
  void put(std::string_view bytes);
  void flush();

  WritableFile& file_;
  std::vector<ZipEntry> entries_;
  std::string pending_;    // headers and small payloads, written together
  int64_t position_ = 0;   // bytes of the archive so far, pending ones included
  int64_t remaining_ = 0;  // of the open entry
};

}  // namespace megatron
