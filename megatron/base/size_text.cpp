#include "megatron/base/size_text.h"

#include <fmt/core.h>

namespace megatron {

std::string size_text(int64_t bytes) {
  constexpr double kUnitBase = 1024;
  auto size = static_cast<double>(bytes);
  for (const char* unit : {"bytes", "KiB", "MiB"}) {
    if (size < kUnitBase) return fmt::format("{:.{}f} {}", size, unit[0] == 'b' ? 0 : 2, unit);
    size /= kUnitBase;
  }
  return fmt::format("{:.2f} GiB", size);
}

}  // namespace megatron
