// Reads scattered parts of a range of a file from front to back through one small buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "megatron/base/file_system.h"

namespace megatron {

/// With `checksum` everything is read, and finish() gives the CRC-32 of the range; without, only pieces that hold
/// something wanted.
class PayloadStream {
 public:
  static constexpr int64_t kPieceBytes = 4 << 20;  // read at once

  /// @param file  must outlive the stream and hold bytes [offset, offset + bytes).
  PayloadStream(const ReadableFile& file, int64_t offset, int64_t bytes, bool checksum)
      : file_(file), offset_(offset), bytes_(bytes), checksum_(checksum) {}

  /// Fills `out` with the bytes of the range from `begin` on. Calls come in ascending order, without overlap.
  void copy(int64_t begin, std::span<std::byte> out);
  uint32_t finish();

 private:
  void load_next_piece();
  void read_directly(int64_t begin, std::span<std::byte> out);

  const ReadableFile& file_;
  int64_t offset_, bytes_;
  bool checksum_;
  std::vector<std::byte> piece_;  // bytes [begin_, end_), unless the last read went directly to its destination
  int64_t begin_ = 0, end_ = 0;   // end_: everything before it was read or skipped
  uint32_t crc_ = 0;
};

}  // namespace megatron
