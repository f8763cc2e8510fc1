#include "megatron/training/checkpoint/checkpoint_source.h"

#include <fmt/core.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/file_fingerprint.h"
#include "megatron/base/word_list.h"
#include "megatron/comm/texts.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/integrity.h"
#include "megatron/dist_checkpointing/legacy_checkpoint.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/training/checkpoint/non_persistent.h"

namespace megatron {
namespace {

/// Identifies the content of a checkpoint by its index and the weights in the first file of data.
std::string describe_content(const FileSystem& files, const CheckpointDirectory::Found& found) {
  if (found.path.empty()) return "none";
  if (LegacyCheckpoint::is_in(files, found.path))
    return fmt::format("{} (first file of {})",
                       found.iteration ? fmt::format("iteration {}", *found.iteration) : "a release",
                       file_fingerprint(files, LegacyCheckpoint::first_file(files, found.path)));
  return fmt::format("{} (index of {}, first weights of {})",
                     found.iteration ? fmt::format("iteration {}", *found.iteration) : "a release",
                     file_fingerprint(files, join_path(found.path, kMetadataFile)),
                     file_fingerprint(files, join_path(found.path, data_file_name(0, 0))));
}

}  // namespace

CheckpointDirectory::Found find_checkpoint(FileSystem& files, std::string_view flag, const std::string& directory,
                                           const std::optional<int64_t>& step, const MessageLog& log) {
  try {
    const CheckpointDirectory checkpoints(files, directory);
    if (checkpoints.is_empty()) return {};
    if (step) return checkpoints.find(*step);
    const CheckpointDirectory::Latest latest = checkpoints.latest();
    for (const std::string& warning : latest.warnings) log.warning(warning);
    return latest.found.value_or(CheckpointDirectory::Found{});
  } catch (const IoError& error) {
    throw CheckpointError(fmt::format("[checkpoint] {} {} cannot be read: {}. Give a folder that --save has written.",
                                      flag, directory, error.what()));
  }
}

void require_same_on_all_ranks(const ProcessGroup& world, const FileSystem& files,
                               const CheckpointDirectory::Found& found) {
  const std::vector<std::string> all = gather_texts(world, describe_content(files, found), "checkpoint found");
  require<CheckpointError>(std::ranges::count(all, all.front()) == std::ssize(all),
                           "[checkpoint] ranks find different checkpoints: {}. Give all of them one --load on a file "
                           "system that every host sees.",
                           describe_values(all));
}

void require_integrity(const FileSystem& files, const std::string& path) {
  const std::vector<std::string> problems = verify_integrity(files, path);
  require<CheckpointError>(problems.empty(),
                           "[checkpoint] --verify-integrity: {}. Restore the files, or load another iteration "
                           "(--ckpt-step).",
                           joined(problems, "; "));
}

void require_own_iteration(const CheckpointDirectory::Found& found, const pickle::Object& state) {
  const pickle::Object* stored = state.find(common_state::kIteration);
  if (!stored || !found.iteration) return;
  require<CheckpointError>(stored->as_int() == *found.iteration,
                           "[checkpoint] {} holds iteration {}. Rename the folder, and choose it with --ckpt-step {}.",
                           found.path, stored->as_int(), stored->as_int());
}

CheckpointDirectory::Found find_in_load(FileSystem& files, const CheckpointConfig& config, const MessageLog& log) {
  if (!config.load) return {};
  CheckpointDirectory::Found found = find_checkpoint(files, "--load", *config.load, config.ckpt_step, log);
  return config.ckpt_step ? found : newer_non_persistent(files, config, std::move(found), log);
}

CheckpointDirectory::Found find_existing(FileSystem& files, const CheckpointConfig& config) {
  const std::optional<std::string>& pretrained = config.pretrained_checkpoint;
  require<CheckpointError>(config.load || pretrained, "[checkpoint] --load is missing: the directory of checkpoints.");
  CheckpointDirectory::Found found;
  if (config.load) found = find_checkpoint(files, "--load", *config.load, config.ckpt_step, {});
  if (found.path.empty() && pretrained)
    found = find_checkpoint(files, "--pretrained-checkpoint", *pretrained, config.ckpt_step, {});
  require<CheckpointError>(!found.path.empty(), "[checkpoint] {} {}: no checkpoint is there. Correct the path.",
                           pretrained ? "--pretrained-checkpoint" : "--load",
                           pretrained ? *pretrained : config.load.value_or(""));
  return found;
}

CheckpointReader open_existing(FileSystem& files, const CheckpointConfig& config) {
  const CheckpointDirectory::Found found = find_existing(files, config);
  CheckpointReader reader(files, found.path, Verify::kChecksums);
  require_own_iteration(found, reader.read_common_state().state());
  return reader;
}

}  // namespace megatron
