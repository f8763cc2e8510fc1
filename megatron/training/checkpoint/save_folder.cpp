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

std::vector<CheckpointFolder> checkpoint_folders_of(const CheckpointConfig& config) {
  std::vector<CheckpointFolder> folders;
  if (!config.save) return folders;
  folders.push_back({"--save", *config.save});
  if (config.non_persistent_save_interval && config.non_persistent_global_ckpt_dir &&
      !is_same_path(*config.non_persistent_global_ckpt_dir, *config.save))
    folders.push_back({"--non-persistent-global-ckpt-dir", *config.non_persistent_global_ckpt_dir});
  return folders;
}

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
