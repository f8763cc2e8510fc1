#include "commands/interruption.h"

#include <fmt/core.h>

#include <vector>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"

namespace megatron {
namespace {

/// The sentence about the newest checkpoint in the folder of --save.
std::string checkpoint_text(FileSystem& files, const std::string& folder) {
  std::vector<int64_t> iterations;
  try {
    iterations = CheckpointDirectory(files, folder).complete();
  } catch (const Error& error) {
    return fmt::format("Its checkpoints cannot be listed: {}", error.what());
  }
  if (iterations.empty()) return fmt::format("No checkpoint had been saved to {}.", folder);
  return fmt::format("The newest checkpoint in {} is of iteration {}; '--load {}' resumes from it.", folder,
                     iterations.back(), folder);
}

}  // namespace

std::string progress_text(int64_t num_done) {
  return num_done < 0 ? "before the first iteration" : fmt::format("after iteration {}", num_done);
}

std::string interruption_text(FileSystem& files, const CheckpointConfig& checkpoint, int64_t num_done) {
  const std::string ended = fmt::format("ended by Ctrl-C (SIGINT) {}.", progress_text(num_done));
  if (checkpoint.save)
    return fmt::format("{} {} '--exit-signal-handler --exit-signal SIGINT' saves one at Ctrl-C.", ended,
                       checkpoint_text(files, *checkpoint.save));
  return ended + " Nothing was saved: '--save FOLDER --save-interval N' keeps checkpoints.";
}

}  // namespace megatron
