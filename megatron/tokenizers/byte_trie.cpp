#include "megatron/tokenizers/byte_trie.h"

#include <algorithm>

namespace megatron {
namespace {
constexpr size_t kNumBytes = 256;
constexpr int32_t kSkippedUnits = 1024;  // so many units without room for a node are not searched again
}  // namespace

ByteTrie::ByteTrie(std::vector<Entry> entries) : units_(1 + kNumBytes) {
  std::ranges::sort(entries);
  place_children(0, entries, 0);
}

/// @param entries  sorted; their keys begin with the `depth` bytes that lead to `node`.
void ByteTrie::place_children(int32_t node, std::span<const Entry> entries, size_t depth) {
  if (!entries.empty() && entries[0].first.size() == depth) {
    units_[static_cast<size_t>(node)].id = entries[0].second;
    entries = entries.subspan(1);
  }
  if (entries.empty()) return;
  const auto byte_of = [&](const Entry& entry) { return static_cast<unsigned char>(entry.first[depth]); };
  std::vector<unsigned char> bytes;
  for (const Entry& entry : entries)
    if (bytes.empty() || bytes.back() != byte_of(entry)) bytes.push_back(byte_of(entry));
  const int32_t base = find_base(bytes);
  units_[static_cast<size_t>(node)].base = base;
  for (const unsigned char byte : bytes) units_[static_cast<size_t>(base) + byte].parent = node;
  for (const unsigned char byte : bytes) {
    const auto end = std::ranges::find_if(entries, [&](const Entry& entry) { return byte_of(entry) != byte; });
    const auto count = static_cast<size_t>(end - entries.begin());
    place_children(base + byte, entries.first(count), depth + 1);
    entries = entries.subspan(count);
  }
}

int32_t ByteTrie::find_base(std::span<const unsigned char> bytes) {
  int32_t base = search_from_;
  const auto is_free = [&](unsigned char byte) { return units_[static_cast<size_t>(base) + byte].parent == kNone; };
  for (;; ++base) {
    if (static_cast<size_t>(base) + kNumBytes > units_.size()) units_.resize(2 * units_.size());
    if (std::ranges::all_of(bytes, is_free)) break;
  }
  if (base - search_from_ > kSkippedUnits) search_from_ = base;
  return base;
}

}  // namespace megatron
