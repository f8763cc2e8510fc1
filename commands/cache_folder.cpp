#include "commands/cache_folder.h"

#include "commands/build_commit.h"

namespace megatron {

std::string cache_folder(const Variable& variable) {
  const auto is_absolute = [](const std::optional<std::string>& path) { return path && path->starts_with('/'); };
  if (const auto cache = variable("XDG_CACHE_HOME"); is_absolute(cache)) return *cache + "/megatron";
  if (const auto home = variable("HOME"); is_absolute(home)) return *home + "/.cache/megatron";
  return "";
}

std::string build_of_kernels(const Variable& variable) {
  std::string build(build_commit());
  if (const auto limit = variable("ONEDNN_MAX_CPU_ISA")) build += ", ONEDNN_MAX_CPU_ISA " + *limit;
  return build;
}

}  // namespace megatron
