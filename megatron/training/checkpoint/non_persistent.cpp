#include "megatron/training/checkpoint/non_persistent.h"

namespace megatron {

std::string non_persistent_folder(const CheckpointConfig& config, const std::string& root) {
  return config.non_persistent_global_ckpt_dir.value_or(join_path(root, "non_persistent"));
}

CheckpointDirectory::Found newer_non_persistent(FileSystem& files, const CheckpointConfig& config,
                                                CheckpointDirectory::Found persistent, const MessageLog& log) {
  if (!config.non_persistent_ckpt_type) return persistent;
  const CheckpointDirectory directory(files, non_persistent_folder(config, config.load.value()));
  const CheckpointDirectory::Latest latest = directory.latest();
  for (const std::string& warning : latest.warnings) log.warning(warning);
  if (!latest.found) return persistent;
  const bool is_older = persistent.iteration && latest.found->iteration < persistent.iteration;
  if (is_older || (!persistent.iteration && !persistent.path.empty())) return persistent;
  return *latest.found;
}

}  // namespace megatron
