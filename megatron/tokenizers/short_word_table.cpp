#include "megatron/tokenizers/short_word_table.h"

#include <algorithm>

namespace megatron {

void ShortWordTable::insert(std::string_view word, std::span<const TokenId> ids) {
  if (2 * (num_words_ + 1) > slots_.size()) grow();
  Slot slot{.key = key_of(word, word.size())};
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
  size_t i = first_slot(slot.key);
  while (slots_[i].key.high != 0) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = slot;
}

void ShortWordTable::grow() {
  if (slots_.size() == kMaxSlots) {
    std::ranges::fill(slots_, Slot{});
    num_words_ = 0;
    more_ids_.clear();
    return;
  }
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.key.high != 0) place(slot);
}

}  // namespace megatron
