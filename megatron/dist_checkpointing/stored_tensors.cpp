#include "megatron/dist_checkpointing/stored_tensors.h"

#include <cstring>

#include "megatron/core/box.h"

namespace megatron {

void fill_zero(const View& view) {
  const int64_t bytes = size_of(view.dtype);
  for_each_run(view.shape, view.strides, view.strides, [&](int64_t at, int64_t, int64_t count) {
    std::memset(static_cast<std::byte*>(view.data) + at * bytes, 0, static_cast<size_t>(count * bytes));
  });
}

}  // namespace megatron
