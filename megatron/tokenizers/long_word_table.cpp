#include "megatron/tokenizers/long_word_table.h"

#include <algorithm>
#include <functional>

namespace megatron {

std::optional<std::span<const TokenId>> LongWordTable::find(std::string_view word) const {
  if (slots_.empty() || word.size() > kMaxWordBytes) return std::nullopt;
  const size_t hash = std::hash<std::string_view>()(word), mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i].word_bytes != 0; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.hash == hash && word == std::string_view(bytes_.data() + slot.word, slot.word_bytes))
      return std::span(ids_).subspan(slot.first_id, slot.num_ids);
  }
  return std::nullopt;
}

void LongWordTable::insert(std::string_view word, std::span<const TokenId> ids) {
  if (word.empty() || word.size() > kMaxWordBytes) return;
  if (2 * (num_words_ + 1) > slots_.size()) grow();
  place({std::hash<std::string_view>()(word), static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(ids_.size()),
         static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size())});
  bytes_.insert(bytes_.end(), word.begin(), word.end());
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++num_words_;
}

void LongWordTable::grow() {
  if (slots_.size() == kMaxSlots) {
    std::ranges::fill(slots_, Slot{});
    num_words_ = 0;
    bytes_.clear();
    ids_.clear();
    return;
  }
  std::vector<Slot> old(slots_.empty() ? kMinSlots : 2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.word_bytes != 0) place(slot);
}

void LongWordTable::place(const Slot& slot) {
  const size_t mask = slots_.size() - 1;
  size_t i = slot.hash & mask;
  while (slots_[i].word_bytes != 0) i = (i + 1) & mask;
  slots_[i] = slot;
}

}  // namespace megatron
