#include "megatron/dist_checkpointing/payload_stream.h"

#include <algorithm>

#include "megatron/dist_checkpointing/zip_archive.h"

namespace megatron {

void PayloadStream::copy(int64_t begin, std::span<std::byte> out) {
  while (!out.empty()) {
    if (begin >= end_) {
      if (!checksum_) end_ = begin;
      if (begin == end_ && static_cast<int64_t>(out.size()) >= kPieceBytes) return read_directly(begin, out);
      load_next_piece();
      continue;
    }
    const auto from = static_cast<size_t>(begin - begin_);
    const size_t count = std::min(out.size(), piece_.size() - from);
    std::copy_n(piece_.begin() + static_cast<ptrdiff_t>(from), count, out.begin());
    out = out.subspan(count);
    begin += static_cast<int64_t>(count);
  }
}

uint32_t PayloadStream::finish() {
  while (end_ < bytes_) load_next_piece();
  return crc_;
}

void PayloadStream::load_next_piece() {
  piece_.resize(static_cast<size_t>(std::min(kPieceBytes, bytes_ - end_)));
  begin_ = end_;
  read_directly(begin_, piece_);
}

void PayloadStream::read_directly(int64_t begin, std::span<std::byte> out) {
  end_ = begin + static_cast<int64_t>(out.size());
  if (!checksum_) return file_.read(offset_ + begin, out);
  // Small enough to be in the cache for the checksum, which the system uses to read ahead.
  constexpr size_t kChecksumBytes = 1 << 20;
  while (!out.empty()) {
    const auto piece = out.first(std::min(out.size(), kChecksumBytes));
    file_.read(offset_ + begin, piece);
    crc_ = crc32(piece, crc_);
    begin += static_cast<int64_t>(piece.size());
    out = out.subspan(piece.size());
  }
}

}  // namespace megatron
