#include "megatron/training/pretrain.h"

#include "megatron/telemetry/run_messages.h"
#include "megatron/training/training_loop.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

void milestone(const PretrainEnvironment& environment, std::string_view what) {
  environment.progress.message(milestone_line(what, std::chrono::system_clock::now()));
}

/// Makes the directories of all outputs, so that what cannot be written fails before the first step.
void prepare_outputs(const PretrainConfig& config, FileSystem& files) {
  const auto prepare = [&](std::string_view flag, const std::optional<std::string>& path, bool is_file) {
    if (!path) return;
    try {
      const std::string directory = is_file ? parent_path(*path) : *path;
      create_durable_directories(files, directory);
      files.list(directory);  // a file of that name is no directory
    } catch (const IoError& error) {
      throw IoError(fmt::format("{} {} cannot be written: {}. Give a path that can be.", flag, *path, error.what()));
    }
  };
  prepare("--save", config.checkpoint.save, false);
  prepare("--tensorboard-dir", config.logging.tensorboard_dir, false);
  prepare("--log-jsonl", config.logging.log_jsonl, true);
  prepare("--log-loss-curve", config.logging.log_loss_curve, true);
}

}  // namespace

void pretrain(PretrainConfig config, const PretrainEnvironment& environment) {
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(config.tokenizer);
  set_vocab_size(config, tokenizer->vocab_size());
  require_runnable(config);
  environment.progress.message(arguments_block(config));
  if (const std::string notes = notes_block(config); !notes.empty()) environment.progress.message(notes);

  Trainer trainer(config, {.device = DeviceKind::kCpu, .num_threads = environment.num_threads});
  Checkpointer checkpointer(environment.files, config,
                            [&](const std::string& line) { environment.progress.message(line); });
  checkpointer.load(trainer);
  milestone(environment, "after model, optimizer, and learning rate scheduler are built");
  const DatasetLog log{.on_info = {},
                       .on_warning = [&](const std::string& text) { environment.progress.message(text); }};
  const TrainingData data(config, *tokenizer, log);
  milestone(environment, "after dataloaders are built");

  prepare_outputs(config, environment.files);
  TrainingLoop loop(trainer, data, checkpointer, environment);
  milestone(environment, "before the start of training step");
  const bool is_complete = config.validation.skip_train || loop.train();
  milestone(environment, "after training is done");
  if (!is_complete || config.validation.eval_iters == 0) return;
  const std::string prefix = fmt::format("iteration {}", trainer.progress().iteration);
  if (!data.datasets().valid.empty()) loop.validate(prefix + " on validation set");
  if (data.datasets().test) loop.test(prefix + " on test set");
}

}  // namespace megatron
