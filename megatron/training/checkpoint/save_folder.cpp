#include "megatron/training/checkpoint/save_folder.h"

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "megatron/dist_checkpointing/checkpoint_directory.h"

namespace megatron {
namespace {

bool is_same_path(const std::string& a, const std::string& b) {
  const auto normal = [](const std::string& path) { return (std::filesystem::path(path) / "").lexically_normal(); };
  return normal(a) == normal(b);
}

}  // namespace

std::optional<std::string> warning_of_another_run(FileSystem& files, const CheckpointConfig& config) {
  if (!config.save || (config.load && is_same_path(*config.load, *config.save))) return std::nullopt;
  const std::vector<int64_t> iterations = CheckpointDirectory(files, *config.save).complete();
  if (iterations.empty()) return std::nullopt;
  return fmt::format(
      "--save {0} holds checkpoints of another run up to iteration {1}, and this run will "
      "replace those of the iterations that it saves. Go on with that run by --load {0}, or give "
      "another folder.",
      *config.save, iterations.back());
}

}  // namespace megatron
