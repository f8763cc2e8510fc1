#include <fmt/core.h>

#include <optional>
#include <ostream>

#include "commands/checkpoint/checkpoint_actions.h"
#include "commands/terminal.h"
#include "megatron/base/error.h"
#include "megatron/base/size_text.h"
#include "megatron/base/word_list.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/save_lock.h"

namespace megatron {
namespace {

int64_t bytes_in(const FileSystem& files, const std::string& directory) {
  int64_t bytes = 0;
  for (const DirectoryEntry& entry : files.list(directory)) {
    const std::string path = join_path(directory, entry.name);
    if (entry.type == EntryType::kDirectory) bytes += bytes_in(files, path);
    if (entry.type == EntryType::kFile) bytes += files.open_for_reading(path)->size();
  }
  return bytes;
}

}  // namespace

void prune_checkpoints(FileSystem& files, const CheckpointFlags& flags, std::ostream& out) {
  const std::string& folder = flags.load[0];
  CheckpointDirectory checkpoints(files, folder);
  require<CheckpointError>(files.exists(folder), "[checkpoint] {} does not exist. Correct the path.", folder);
  require<CheckpointError>(!checkpoints.is_checkpoint(),
                           "[checkpoint] {} is one checkpoint. Give the folder that it is in.", folder);
  std::optional<SaveLock> lock;  // a run that saves here now prunes too
  if (flags.yes)
    lock.emplace(files, folder, SaveLock::Options{.flag = "prune", .takes_over = flags.take_over_save_lock});
  const std::vector<int64_t> doomed =
      checkpoints.superfluous({.last = flags.keep_last.value_or(1), .every = flags.keep_every.value_or(0)});
  int64_t bytes = 0;
  for (const int64_t iteration : doomed) {
    const int64_t size = bytes_in(files, checkpoints.path(iteration));
    bytes += size;
    if (flags.yes) checkpoints.remove(iteration);
    out << fmt::format("{} {} ({})\n", flags.yes ? "deleted" : "would delete", checkpoints.path(iteration),
                       size_text(size))
        << std::flush;
  }
  out << fmt::format("{} checkpoints of {}{}; these stay: {}\n", doomed.size(), size_text(bytes),
                     flags.yes || doomed.empty() ? "" : ", which --yes deletes", [&] {
                       std::vector<int64_t> kept = checkpoints.complete();
                       std::erase_if(kept, [&](int64_t one) { return std::ranges::find(doomed, one) != doomed.end(); });
                       return kept.empty() ? "none" : joined(kept, ", ");
                     }());
}

}  // namespace megatron
