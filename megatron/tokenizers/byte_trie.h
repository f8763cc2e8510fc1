// Which of many keys a text starts with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// A tree of bytes as a double array: the child of a node by a byte is found with one access to memory. Immutable.
/// Source: Aoe 1989, An Efficient Digital Search Algorithm by Using a Double-Array Structure.
class ByteTrie {
 public:
  using Entry = std::pair<std::string_view, TokenId>;
  /// @param entries  keys, which are not empty and differ, and their ids, which are not negative.
  explicit ByteTrie(std::vector<Entry> entries);

  /// Calls `visit(length, id)` for the keys that `text` starts with, the shortest first.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit&& visit) const {
    int32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const int32_t child = units_[static_cast<size_t>(node)].base + static_cast<unsigned char>(text[i]);
      const Unit& unit = units_[static_cast<size_t>(child)];
      if (unit.parent != node) return;
      node = child;
      if (unit.id >= 0) visit(i + 1, unit.id);
    }
  }

 private:
  static constexpr int32_t kNone = -1;
  struct Unit {
    int32_t base = 0;        ///< the child by byte c is unit base + c
    int32_t parent = kNone;  ///< kNone: the unit is free, or the root
    TokenId id = kNone;
  };
  void place_children(int32_t node, std::span<const Entry> entries, size_t depth);
  int32_t find_base(std::span<const unsigned char> bytes);

  std::vector<Unit> units_;
  int32_t search_from_ = 1;  // units below are nearly all taken
};

}  // namespace megatron
