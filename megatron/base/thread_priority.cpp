#include "megatron/base/thread_priority.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace megatron {
namespace {

// These are constants of linux/ioprio.h, which glibc has no wrapper for.
constexpr int kWhoProcess = 1;
constexpr int kClassShift = 13;
constexpr int kLevel = 4;  // of 0 to 7, the one that ioprio(1) takes by default

}  // namespace

std::string set_thread_priority(int niceness, std::optional<int> io_class) {
  std::string refused;
  const auto thread = static_cast<id_t>(syscall(SYS_gettid));
  if (setpriority(PRIO_PROCESS, thread, niceness) != 0)
    refused += fmt::format("niceness {} is refused: {}", niceness, std::strerror(errno));
  if (!io_class) return refused;
  const int level = *io_class == 1 || *io_class == 2 ? kLevel : 0;
  if (syscall(SYS_ioprio_set, kWhoProcess, 0, (*io_class << kClassShift) | level) != 0)
    refused +=
        fmt::format("{}I/O class {} is refused: {}", refused.empty() ? "" : "; ", *io_class, std::strerror(errno));
  return refused;
}

}  // namespace megatron
