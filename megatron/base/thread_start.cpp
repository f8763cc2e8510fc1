#include "megatron/base/thread_start.h"

#include <fmt/core.h>

#include <fstream>
#include <optional>
#include <sstream>

namespace megatron {
namespace {

using Path = std::filesystem::path;

std::string limit_of_user(const Path& root) {
  constexpr std::string_view kKey = "Max processes";
  std::ifstream file(root / "proc/self/limits");
  for (std::string line, limit; std::getline(file, line);)
    if (line.starts_with(kKey) && std::istringstream(line.substr(kKey.size())) >> limit) return limit;
  return "unknown";
}

std::optional<int64_t> number_in(const Path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// The least pids.max from the cgroup of this process upwards.
std::string limit_of_cgroup(const Path& root) {
  std::optional<int64_t> least;
  std::ifstream file(root / "proc/self/cgroup");  // HIERARCHY:CONTROLLERS:FOLDER; no controllers: version 2
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "pids") continue;
    const Path mount = root / "sys/fs/cgroup" / controllers;
    for (Path folder = Path(line.substr(second + 1)).relative_path();; folder = folder.parent_path()) {
      const auto limit = number_in(mount / folder / "pids.max");
      if (limit && (!least || *limit < *least)) least = limit;
      if (folder.empty()) break;
    }
  }
  return least ? std::to_string(*least) : "unlimited";
}

}  // namespace

std::string thread_refusal_text(std::string_view work, std::string_view reason, const Path& root) {
  return fmt::format(
      "The system starts no thread {}: {}. It allows this user {} processes and threads (ulimit -u), and the container "
      "or batch job {} (pids.max of its cgroup). Raise the smaller one, or end other programs.",
      work, reason, limit_of_user(root), limit_of_cgroup(root));
}

}  // namespace megatron
