// Counted handle on one block of an arena.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/core/arena.h"

namespace megatron {

/// The block goes back to its arena with the last handle. The one shared thing of the library.
class Storage {
 public:
  Storage() = default;
  Storage(Arena& arena, std::string_view name, int64_t bytes, MemoryUse use)
      : block_(std::make_shared<Owner>(arena, name, bytes, use)) {}
  bool defined() const { return block_ != nullptr; }
  bool is_shared() const { return block_.use_count() > 1; }
  bool operator==(const Storage&) const = default;
  /// Null where there is no memory (meta).
  std::byte* data() const { return block_ ? block_->block.data : nullptr; }
  /// @throw InternalError if undefined
  MemoryUse use() const {
    require(defined(), "[Storage] an undefined block has no use.");
    return block_->block.use;
  }
  int64_t bytes() const { return block_ ? block_->block.bytes : 0; }

 private:
  struct Owner {
    Owner(Arena& a, std::string_view n, int64_t bytes, MemoryUse use)
        : arena(a), name(n), block(arena.allocate(name, bytes, use)) {}
    ~Owner() { arena.release(name, block); }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    Arena& arena;
    std::string name;
    Arena::Block block;
  };
  std::shared_ptr<Owner> block_;
};

}  // namespace megatron
