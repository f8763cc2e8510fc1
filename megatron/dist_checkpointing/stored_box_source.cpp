#include "megatron/dist_checkpointing/stored_box_source.h"

#include <algorithm>

namespace megatron {

StoredBoxSource::StoredBoxSource(const CheckpointReader& reader, std::string key, std::vector<Box> boxes,
                                 std::function<void(int64_t bytes)> on_bytes)
    : reader_(reader),
      key_(std::move(key)),
      boxes_(std::move(boxes)),
      on_bytes_(std::move(on_bytes)),
      element_bytes_(size_of(reader_.type_of(key_).value())) {}

int64_t StoredBoxSource::bytes() const {
  int64_t elements = 0;
  for (const Box& box : boxes_) elements += box.sizes.num_elements();
  return elements * element_bytes_;
}

std::span<const std::byte> StoredBoxSource::read(int64_t begin, int64_t count) {
  piece_.resize(static_cast<size_t>(count));
  const int64_t first = begin / element_bytes_, last = (begin + count) / element_bytes_;
  int64_t box_begin = 0, filled = 0;
  for (const Box& box : boxes_) {
    const int64_t box_end = box_begin + box.sizes.num_elements();
    const int64_t from = std::max(first, box_begin), to = std::min(last, box_end);
    if (from < to)
      for (Box part : boxes_of_flat_range(Box::whole(box.sizes), from - box_begin, to - box_begin)) {
        for (int dim = 0; dim < part.offsets.rank(); ++dim) part.offsets[dim] += box.offsets[dim];
        reader_.read_box(key_, part, piece_.data() + filled);
        filled += part.sizes.num_elements() * element_bytes_;
      }
    box_begin = box_end;
  }
  if (on_bytes_) on_bytes_(count);
  return piece_;
}

}  // namespace megatron
