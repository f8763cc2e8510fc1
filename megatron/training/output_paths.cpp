#include "megatron/training/output_paths.h"

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
  std::vector<Output> outputs = {{"--save", config.checkpoint.save, false}};
  if (!writes_logs) return outputs;
  outputs.push_back({"--tensorboard-dir", config.logging.tensorboard_dir, false});
  if (config.logging.wandb_project) outputs.push_back({"--wandb-save-dir", config.logging.wandb_save_dir, false});
  outputs.push_back({"--log-jsonl", config.logging.log_jsonl, true});
  outputs.push_back({"--result-rejected-tracker-filename", config.faults.result_rejected_tracker_filename, true});
  outputs.push_back({"--log-loss-curve", config.logging.log_loss_curve, true});
  if (config.profiling.profile) outputs.push_back({"--profile-trace", config.profiling.profile_trace, true});
  return outputs;
}

void require_folder(const Output& output, const FileSystem& files) {
  if (!output.path) return;
  const std::string folder = parent_path(*output.path);
  require<IoError>(folder == "." || files.exists(folder),
                   "{} {} cannot be written: the folder {} does not exist. Create it, or give a path that can be.",
                   output.flag, *output.path, folder);
}

/// Directly in the folder of --save, which is made before.
bool is_in_save_folder(const Output& output, const PretrainConfig& config) {
  const std::optional<std::string>& save = config.checkpoint.save;
  return save && output.path && parent_path(*output.path) == parent_path(join_path(*save, "file"));
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
    if (!output.is_file) create_durable_directories(files, path);
    files.list(output.is_file ? parent_path(path) : path);  // a file of that name is no directory
    if (output.is_file) require_no_directory(files, path);
  } catch (const IoError& error) {
    throw IoError(
        fmt::format("{} {} cannot be written: {}. Give a path that can be.", output.flag, path, error.what()));
  }
}

}  // namespace

void check_output_folders(const PretrainConfig& config, const FileSystem& files, bool writes_logs, Mistakes& mistakes) {
  for (const Output& output : outputs_of(config, writes_logs))
    if (!is_in_save_folder(output, config)) mistakes.attempt({output.flag}, [&] { require_folder(output, files); });
  mistakes.attempt({"--data-cache-path"}, [&] {
    require_folder({"--data-cache-path", config.data.data_cache_path, false}, files);
  });
}

void prepare_save_folder(const PretrainConfig& config, FileSystem& files) {
  prepare(outputs_of(config, false).front(), files);
}

void prepare_outputs(const PretrainConfig& config, FileSystem& files, bool writes_logs) {
  for (const Output& output : outputs_of(config, writes_logs)) prepare(output, files);
}

}  // namespace megatron
