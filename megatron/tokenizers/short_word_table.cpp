#include "megatron/tokenizers/short_word_table.h"

#include <algorithm>

namespace megatron {

bool ShortWordTable::append(const Query& query, IdBuffer& ids) const {
  for (size_t i = query.hash;; ++i) {
    for (const Slot& slot : lines_[i & (lines_.size() - 1)]) {
      if (slot.high == 0) return false;
      if (!is_equal(slot, query)) continue;
      const auto count = static_cast<size_t>(slot.ids[kInline]);
      if (count <= kInline)
        ids.append_few(slot.ids, count);
      else
        ids.append(std::span(more_ids_).subspan(static_cast<size_t>(slot.ids[0]), count));
      return true;
    }
  }
}

void ShortWordTable::insert(std::string_view word, std::span<const TokenId> ids) {
  if (num_words_ + 1 > lines_.size()) grow();
  const Query query = query_of(word);
  Slot slot{.low = query.low, .high = query.high};
  slot.ids[kInline] = static_cast<TokenId>(ids.size());
  if (ids.size() <= kInline) {
    std::ranges::copy(ids, slot.ids.begin());
  } else {
    slot.ids[0] = static_cast<TokenId>(more_ids_.size());
    more_ids_.insert(more_ids_.end(), ids.begin(), ids.end());
  }
  place(slot);
  ++num_words_;
}

void ShortWordTable::place(const Slot& slot) {
  for (size_t i = with_hash(slot.low, slot.high).hash;; ++i)
    for (Slot& place : lines_[i & (lines_.size() - 1)]) {
      if (place.high != 0) continue;
      place = slot;
      return;
    }
}

void ShortWordTable::grow() {
  if (lines_.size() == kMaxLines) {
    std::ranges::fill(lines_, Line{});
    num_words_ = 0;
    more_ids_.clear();
    return;
  }
  std::vector<Line> old(2 * lines_.size());
  old.swap(lines_);
  for (const Line& line : old)
    for (const Slot& slot : line)
      if (slot.high != 0) place(slot);
}

}  // namespace megatron
