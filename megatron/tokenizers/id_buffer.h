// Token ids as an encoder gathers them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Ids in memory that is kept from text to text. Appending the few ids of a word is a comparison and a copy of fixed
/// size, where a vector would compute sizes and call memmove.
class IdBuffer {
 public:
  static constexpr size_t kFew = 4;

  void clear() { size_ = 0; }
  std::span<const TokenId> ids() const { return {ids_.get(), size_}; }

  void push_back(TokenId id) {
    reserve(1);
    ids_[size_++] = id;
  }
  void append(std::span<const TokenId> ids) {
    reserve(ids.size());
    std::ranges::copy(ids, ids_.get() + size_);
    size_ += ids.size();
  }
  /// Appends the first `count` of the ids.
  void append_few(const std::array<TokenId, kFew>& ids, size_t count) {
    reserve(kFew);
    std::copy_n(ids.data(), kFew, ids_.get() + size_);
    size_ += count;
  }

 private:
  void reserve(size_t more) {
    if (size_ + more <= capacity_) [[likely]]
      return;
    capacity_ = std::max<size_t>(2 * capacity_, size_ + more + 1024);
    std::unique_ptr<TokenId[]> larger(new TokenId[capacity_]);
    std::copy_n(ids_.get(), size_, larger.get());
    ids_ = std::move(larger);
  }

  std::unique_ptr<TokenId[]> ids_;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace megatron
