// Runs of one rank that save and load.
#pragma once

#include <string>
#include <vector>

#include "megatron/training/checkpoint/checkpointer.h"
#include "tests/testing/scratch_directory.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {

/// A trainer with its checkpointer, as a run of its own.
struct Session {
  explicit Session(const std::string& words) : Session(small_config(words)) {}
  explicit Session(const PretrainConfig& config)
      : trainer(config, {}),
        checkpointer(files, config,
                     {.on_info = [this](const std::string& line) { messages.push_back(line); },
                      .on_warning = [this](const std::string& text) { warnings.push_back(text); }}) {}

  /// Trains to this iteration on from where it stands.
  std::vector<double> train_to(int64_t iteration) { return train(trainer, trainer.progress().iteration, iteration); }
  void save_at(int64_t iteration) {
    train_to(iteration);
    checkpointer.save(trainer);
  }

  PosixFileSystem files;
  std::vector<std::string> messages, warnings;
  Trainer trainer;
  Checkpointer checkpointer;
};

/// The flags --save and --load of a directory.
inline std::string saving(const ScratchDirectory& directory, const std::string& more = {}) {
  return " --save " + directory.path() + " --save-interval 1 " + more;
}
inline std::string loading(const ScratchDirectory& directory, const std::string& more = {}) {
  return " --load " + directory.path() + " " + more;
}

inline std::string refusal_of(Session& run) {
  try {
    run.checkpointer.load(run.trainer);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

}  // namespace megatron::testing
