#include "megatron/training/checkpoint/save_folder.h"

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"

namespace megatron {
namespace {

bool is_same_path(const std::string& a, const std::string& b) { return resolved_path(a) == resolved_path(b); }

}  // namespace

std::string resolved_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  return ((error ? std::filesystem::path(path) : resolved) / "").lexically_normal();
}

std::vector<CheckpointFolder> checkpoint_folders_of(const CheckpointConfig& config) {
  std::vector<CheckpointFolder> folders;
  if (!config.save) return folders;
  folders.push_back({"--save", *config.save});
  const std::optional<std::string>& others = config.non_persistent_global_ckpt_dir;
  if (!config.non_persistent_save_interval || !others) return folders;
  require<ConfigError>(
      !is_same_path(*others, *config.save),
      "--non-persistent-global-ckpt-dir {} is the folder of --save {}. Only the newest checkpoint that "
      "is not persistent stays in its folder, so the others of --save would be removed. Give another "
      "folder, or leave --non-persistent-global-ckpt-dir out.",
      *others, *config.save);
  folders.push_back({"--non-persistent-global-ckpt-dir", *others});
  return folders;
}

std::string local_rank_folder(const CheckpointConfig& config, int rank) {
  return join_path(config.non_persistent_local_ckpt_dir.value(), fmt::format("rank_{}", rank));
}

std::optional<CheckpointFolder> local_folder_of(const CheckpointConfig& config, int rank) {
  if (!config.is_local() || !config.save || !config.non_persistent_save_interval) return std::nullopt;
  return CheckpointFolder{"--non-persistent-local-ckpt-dir", local_rank_folder(config, rank)};
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
