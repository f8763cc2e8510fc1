#include "megatron/transformer/cached_sequences.h"

#include <algorithm>
#include <utility>

#include "megatron/kernels/elementwise.h"

namespace megatron {

void CachedSequences::continue_sequences(int64_t first, std::vector<int64_t> num_rows) {
  first_ = first;
  num_rows_ = std::move(num_rows);
}

int64_t CachedSequences::num_rows() const { return num_rows_.empty() ? 0 : *std::ranges::max_element(num_rows_); }

void CachedSequences::write_rows(const Context& ctx, const Tensor& rows, const Tensor& cache) const {
  const int64_t s = rows.size(0), b = rows.size(1);
  require<ShapeError>(
      b == std::ssize(num_rows_) && first_ + b <= cache.size(1) && num_rows() + s <= cache.size(0),
      "[CachedSequences] {} further rows of {} sequences from number {} on, with up to {} cached rows, exceed the "
      "capacity of {} rows of {} sequences. Generate fewer tokens.",
      s, b, first_, num_rows(), cache.size(0), cache.size(1));
  const bool have_equal_lengths = std::ranges::adjacent_find(num_rows_, std::ranges::not_equal_to{}) == num_rows_.end();
  const int64_t width = have_equal_lengths ? b : 1;  // columns of one copy
  launch(ctx, {.name = "copy"}, [&](auto& stream) {
    for (int64_t column = 0; column < b; column += width) {
      const int64_t begin = num_rows_[static_cast<size_t>(column)];
      Tensor target = cache.slice(0, begin, s).slice(1, first_ + column, width);
      kernels::copy(stream, {.x = rows.slice(1, column, width).view(), .y = target.view()});
    }
  });
}

void CachedSequences::add_rows(int64_t s) {
  for (int64_t& count : num_rows_) count += s;
}

Tensor CachedSequences::rows_so_far(const Tensor& cache) const {
  return cache.slice(0, 0, num_rows()).slice(1, first_, std::ssize(num_rows_));
}

void continue_sequences(const LayerStates& states, int64_t first, const std::vector<int64_t>& num_rows) {
  for (const std::unique_ptr<LayerState>& state : states) {
    if (!state) continue;
    auto* sequences = dynamic_cast<CachedSequences*>(state.get());
    require<NotSupported>(
        sequences != nullptr,
        "[generate] a layer has a state of its own kind, which holds one sequence. Continue one prompt at a time, "
        "or derive it from CachedSequences.");
    sequences->continue_sequences(first, num_rows);
  }
}

}  // namespace megatron
