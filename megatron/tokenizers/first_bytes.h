// Finds the places in a text where one of several strings may start.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace megatron {

/// The bytes that strings start with.
class FirstBytes {
 public:
  void add(char first) {
    bool& is_one = is_one_[static_cast<unsigned char>(first)];
    num_ += is_one ? 0 : 1;
    is_one = true;
    last_added_ = first;
  }
  /// First place at or after `offset` that has such a byte; the size of the text if there is none.
  size_t find(std::string_view text, size_t offset) const {
    if (num_ == 0) return text.size();
    if (num_ == 1) {
      const void* place = std::memchr(text.data() + offset, last_added_, text.size() - offset);
      return place == nullptr ? text.size() : static_cast<size_t>(static_cast<const char*>(place) - text.data());
    }
    while (offset < text.size() && !is_one_[static_cast<unsigned char>(text[offset])]) ++offset;
    return offset;
  }

 private:
  std::array<bool, 256> is_one_{};
  size_t num_ = 0;
  char last_added_ = 0;
};

}  // namespace megatron
