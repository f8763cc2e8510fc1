#include "megatron/core/host_memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include "megatron/core/arena.h"

namespace megatron {
namespace {
using Path = std::filesystem::path;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int64_t kGranularity = 1 << 20;
/// Kernels' scratch, readers, checkpoints on their way to the disk.
constexpr int64_t kPartBesideArenas = 16;
/// A device has an arena and one for offloaded values, and each segment takes address space for all of its capacity.
constexpr int64_t kReservations = 2 * kNumMemorySegments;

/// The number at the start of a file; nullopt if there is none: no file, or the word "max".
std::optional<int64_t> number_in(const Path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// The least of the limits in the files `name` from `folder` of `mount` upwards. In a container the kernel may name the
/// folder as the host sees it, while the mount shows the container's alone: then only the top is there.
int64_t least_limit(const Path& mount, Path folder, const std::string& name) {
  int64_t least = kUnlimited;
  for (folder = folder.relative_path();; folder = folder.parent_path()) {
    least = std::min(least, number_in(mount / folder / name).value_or(kUnlimited));
    if (folder.empty()) return least;
  }
}

bool names_memory(const std::string& controllers) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');)
    if (word == "memory") return true;
  return false;
}

int64_t cgroup_limit(const Path& root) {
  const Path mount = root / "sys/fs/cgroup";
  int64_t least = kUnlimited;
  std::ifstream file(root / "proc/self/cgroup");  // HIERARCHY:CONTROLLERS:FOLDER; no controllers: version 2
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), folder = line.substr(second + 1);
    if (controllers.empty()) least = std::min(least, least_limit(mount, folder, "memory.max"));
    if (names_memory(controllers))
      least = std::min(least, least_limit(mount / "memory", folder, "memory.limit_in_bytes"));
  }
  return least;
}

/// Returns the number behind `key` in a file of lines; nullopt if it is none.
std::optional<int64_t> number_behind(const Path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    int64_t number = 0;
    if (rest >> number) return number;
  }
  return std::nullopt;
}

struct OwnMemory {
  int64_t addresses = 0, pages_of_its_own = 0;  // bytes
};

OwnMemory own_memory(const Path& root) {
  std::ifstream file(root / "proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0;
  file >> size >> resident >> shared;
  const int64_t page = sysconf(_SC_PAGE_SIZE);
  return {size * page, (resident - shared) * page};
}

}  // namespace

int64_t host_memory_for_arenas(int64_t num_ranks, const std::filesystem::path& root) {
  const auto physical = number_behind(root / "proc/meminfo", "MemTotal:");
  const int64_t installed = physical ? *physical * 1024 : sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
  const OwnMemory own = own_memory(root);
  const int64_t limit = std::min(installed, cgroup_limit(root));
  int64_t bytes = limit - limit / kPartBesideArenas - own.pages_of_its_own;
  if (const auto addresses = number_behind(root / "proc/self/limits", "Max address space"))
    bytes = std::min(bytes, (*addresses - *addresses / kPartBesideArenas - own.addresses) / kReservations);
  return std::max(kGranularity, bytes / num_ranks / kGranularity * kGranularity);
}

}  // namespace megatron
