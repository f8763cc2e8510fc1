#include "megatron/base/mapped_ranges.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace megatron {
namespace {

/// `begin` is written last and says whether the rest is valid; `is_taken` keeps the entry for one owner.
struct Entry {
  std::atomic<bool> is_taken;
  std::atomic<uintptr_t> begin;  // 0: no range
  std::atomic<size_t> num_bytes;
  std::array<char, 256> path;
};

// A signal handler is passed nothing but the signal, so that the table has to belong to the process.
constinit std::array<Entry, 4096> table{};
constinit std::atomic<size_t> num_taken{0};     // entries that are taken or promised to an owner
constinit std::atomic<size_t> first_looked{0};  // where the next owner looks first, so that it seldom meets taken ones

}  // namespace

MappedRange::MappedRange(const std::byte* begin, size_t num_bytes, const std::filesystem::path& path) noexcept {
  if (num_taken.fetch_add(1) >= table.size()) {
    --num_taken;
    return;
  }
  for (size_t i = first_looked++;; ++i) {  // one is free
    const size_t at = i % table.size();
    Entry& entry = table[at];
    if (entry.is_taken || entry.is_taken.exchange(true)) continue;
    entry_ = static_cast<int>(at);
    const std::string& text = path.native();
    const size_t room = entry.path.size() - 1;
    const size_t length = text.copy(entry.path.data(), room, text.size() > room ? text.size() - room : 0);
    entry.path[length] = '\0';
    entry.num_bytes = num_bytes;
    entry.begin = reinterpret_cast<uintptr_t>(begin);
    return;
  }
}

MappedRange::MappedRange(MappedRange&& other) noexcept : entry_(std::exchange(other.entry_, -1)) {}

MappedRange& MappedRange::operator=(MappedRange&& other) noexcept {
  if (this == &other) return *this;
  leave();
  entry_ = std::exchange(other.entry_, -1);
  return *this;
}

void MappedRange::leave() noexcept {
  if (entry_ < 0) return;
  Entry& entry = table[static_cast<size_t>(std::exchange(entry_, -1))];
  entry.begin = 0;
  entry.is_taken = false;
  --num_taken;
}

const char* file_mapped_at(const void* address) noexcept {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Entry& entry : table) {
    const uintptr_t begin = entry.begin;
    if (begin != 0 && at >= begin && at - begin < entry.num_bytes) return entry.path.data();
  }
  return nullptr;
}

}  // namespace megatron
