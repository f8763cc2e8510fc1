// Which file is mapped at an address, for a handler of SIGBUS.
#pragma once

#include <cstddef>
#include <filesystem>

namespace megatron {

/// Enters a mapped range and its file into a table of the process, which a signal handler may read at any time. When a
/// file becomes shorter or its disk fails, the kernel reports a read of the map by SIGBUS, and the address alone says
/// which file it was. The table has a fixed size: a range that finds it full is not entered.
class MappedRange {
 public:
  MappedRange() = default;
  MappedRange(const std::byte* begin, size_t num_bytes, const std::filesystem::path& path) noexcept;
  ~MappedRange() { leave(); }
  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&& other) noexcept;
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

 private:
  void leave() noexcept;

  int entry_ = -1;
};

/// Path of the file that is mapped at `address`, the end of it if it is very long; null if there is none.
/// Async-signal-safe. The text is valid while the map is.
const char* file_mapped_at(const void* address) noexcept;

}  // namespace megatron
