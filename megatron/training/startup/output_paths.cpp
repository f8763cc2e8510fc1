#include "megatron/training/startup/output_paths.h"

#include <optional>
#include <string>
#include <vector>

namespace megatron {
namespace {

struct Output {
  std::string_view flag;
  std::optional<std::string> path;
  bool is_file;
};

std::vector<Output> outputs_of(const PretrainConfig& config, bool writes_logs) {
  std::vector<Output> outputs;
  for (const CheckpointFolder& folder : checkpoint_folders_of(config.checkpoint))
    outputs.push_back({folder.flag, folder.path, false});
  if (!writes_logs) return outputs;
  outputs.push_back({"--tensorboard-dir", config.logging.tensorboard_dir, false});
  if (config.logging.wandb_project) outputs.push_back({"--wandb-save-dir", config.logging.wandb_save_dir, false});
  outputs.push_back({"--log-jsonl", config.logging.log_jsonl, true});
  outputs.push_back({"--result-rejected-tracker-filename", config.faults.result_rejected_tracker_filename, true});
  outputs.push_back({"--log-loss-curve", config.logging.log_loss_curve, true});
  if (config.profiling.profile) outputs.push_back({"--profile-trace", config.profiling.profile_trace, true});
  return outputs;
}

/// The first folder that is missing above `path`.
std::optional<std::string> topmost_missing_folder(const FileSystem& files, const std::string& path) {
  std::optional<std::string> missing;
  for (std::string folder = parent_path(path); folder != "." && !files.exists(folder); folder = parent_path(folder))
    missing = folder;
  return missing;
}

void require_folder(const Output& output, const FileSystem& files) {
  if (!output.path) return;
  const std::optional<std::string> missing = topmost_missing_folder(files, *output.path);
  require<IoError>(!missing || parent_path(*missing) != "/",
                   "{} {} cannot be written: {} does not exist, and no folder is made directly below /, for such a "
                   "path is mistyped or its disk is not mounted. Create it, or give another path.",
                   output.flag, *output.path, *missing);
}

void require_no_directory(const FileSystem& files, const std::string& path) {
  try {
    files.list(path);
  } catch (const IoError&) {
    return;
  }
  throw IoError("it is a directory");
}

void prepare(const Output& output, FileSystem& files) {
  if (!output.path) return;
  require_folder(output, files);
  const std::string& path = *output.path;
  try {
    create_durable_directories(files, output.is_file ? parent_path(path) : path);
    files.list(output.is_file ? parent_path(path) : path);  // a file of that name is no directory
    if (output.is_file) require_no_directory(files, path);
  } catch (const IoError& error) {
    throw IoError(
        fmt::format("{} {} cannot be written: {}. Give a path that can be.", output.flag, path, error.what()));
  }
}

}  // namespace

void check_output_folders(const PretrainConfig& config, const FileSystem& files, bool writes_logs, Mistakes& mistakes) {
  std::vector<Output> outputs;
  mistakes.attempt({"--non-persistent-global-ckpt-dir"}, [&] { outputs = outputs_of(config, writes_logs); });
  for (const Output& output : outputs) mistakes.attempt({output.flag}, [&] { require_folder(output, files); });
  if (config.checkpoint.is_local())
    mistakes.attempt({"--non-persistent-local-ckpt-dir"}, [&] {
      require_folder({"--non-persistent-local-ckpt-dir", config.checkpoint.non_persistent_local_ckpt_dir, false},
                     files);
    });
  mistakes.attempt({"--data-cache-path"}, [&] {
    require_folder({"--data-cache-path", config.data.data_cache_path, false}, files);
  });
}

void prepare_checkpoint_folders(const PretrainConfig& config, FileSystem& files) {
  for (const Output& output : outputs_of(config, false)) prepare(output, files);
}

void prepare_checkpoint_folder(const CheckpointFolder& folder, FileSystem& files) {
  prepare({folder.flag, folder.path, false}, files);
}

void prepare_outputs(const PretrainConfig& config, FileSystem& files, bool writes_logs) {
  for (const Output& output : outputs_of(config, writes_logs)) prepare(output, files);
}

}  // namespace megatron
