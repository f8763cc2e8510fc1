#include "megatron/core/readback.h"

#include <cstring>
#include <utility>

#include "megatron/core/copy.h"

namespace megatron {

void Readback::wait(const Context& ctx) {
  const std::vector<Piece> pieces = std::exchange(pieces_, {});
  size_t num_bytes = 0;
  for (const Piece& piece : pieces) num_bytes += piece.destination.size();
  Tensor gathered = ctx.workspace("readback", static_cast<int64_t>(num_bytes));
  std::vector<std::byte> host(num_bytes);
  if (num_bytes == 0) return;
  auto* begin = gathered.data<uint8_t>();
  size_t offset = 0;
  for (const Piece& piece : pieces) {
    copy_on_device(ctx.device, piece.source, begin ? begin + offset : nullptr,
                   static_cast<int64_t>(piece.destination.size()));
    offset += piece.destination.size();
  }
  copy_to_host(ctx.device, begin, host);
  offset = 0;
  for (const Piece& piece : pieces) {
    std::memcpy(piece.destination.data(), host.data() + offset, piece.destination.size());
    offset += piece.destination.size();
  }
}

}  // namespace megatron
