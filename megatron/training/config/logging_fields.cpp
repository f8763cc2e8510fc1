// Log lines, TensorBoard, timers.
#include "megatron/training/config/fields.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace megatron {

int64_t read_logging_level(std::string_view word) {
  constexpr auto kNames = std::to_array<std::pair<std::string_view, int64_t>>(
      {{"notset", 0}, {"debug", 10}, {"info", 20}, {"warning", 30}, {"error", 40}, {"critical", 50}});
  std::string name(word);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const auto& [known, level] : kNames)
    if (name == known) return level;
  int64_t level = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), level);
  require<ConfigError>(error == std::errc{} && end == word.data() + word.size() && level >= 0 && level <= 50,
                       "must be from 0 to 50, or one of: debug, info, warning, error, critical");
  return level;
}

namespace {

void describe_wandb(FieldTable& table, LoggingConfig& logging) {
  const auto logs_to_wandb = [&logging] { return logging.wandb_project.has_value(); };
  table
      .add(
          "wandb_project", logging.wandb_project,
          "write an offline run of Weights & Biases for this project, with the values of TensorBoard; nothing is sent: "
          "'wandb sync FOLDER' uploads it")
      .differs({.megatron = "needs the client of Weights & Biases, which sends what it gets, and the network",
                .ours = "writes the client's offline form; 'wandb sync FOLDER' uploads it",
                .in_force = logs_to_wandb})
      .known_as("wandb use-wandb log-wandb")
      .such_as("--wandb-project gpt --wandb-exp-name first --wandb-save-dir logs");
  table.add("wandb_exp_name", logging.wandb_exp_name, "its name, which --wandb-project needs")
      .needs("--wandb-project", logs_to_wandb)
      .such_as("--wandb-project gpt --wandb-exp-name first --wandb-save-dir logs");
  table.add("wandb_save_dir", logging.wandb_save_dir, "folder of its folder")
      .by_default("wandb in the folder of --save")
      .needs("--wandb-project", logs_to_wandb)
      .such_as("--wandb-project gpt --wandb-exp-name first --wandb-save-dir logs");
  table.add("wandb_entity", logging.wandb_entity, "user or team that it belongs to")
      .needs("--wandb-project", logs_to_wandb)
      .such_as("--wandb-project gpt --wandb-exp-name first --wandb-save-dir logs --wandb-entity team");
}

}  // namespace

void describe_logging(FieldTable& table, PretrainConfig& config) {
  LoggingConfig& logging = config.logging;
  const auto has_tensorboard = [&logging] { return logging.tensorboard_dir.has_value(); };
  table.begin_group("Logging", "The console line is Megatron's. --log-jsonl FILE writes the same numbers for programs.")
      .for_whole_runs();
  table.add("print_config", logging.print_config,
            "print all arguments at the start, not only those that differ from their defaults (megatron.cpp only)");
  table.add("log_interval", logging.log_interval, "steps between lines")
      .at_least(1)
      .known_as("log-every log-steps log-freq logging-steps print-every");
  table
      .add("log_throughput", logging.log_throughput,
           "add TFLOP/s of a rank to the line, and at its end tokens/s of all ranks, MFU and percent of the kernel "
           "ceiling, which the progress bar, TensorBoard and --log-jsonl show anyway")
      .differs({.megatron = "adds TFLOP/s of a GPU to the log line",
                .ours = "also tokens/s, MFU and percent of the kernel ceiling, behind Megatron's last piece"});
  table
      .add("kernel_ceiling", logging.kernel_ceiling,
           "kernel ceiling of a rank by --log-throughput's count, instead of the measured one (megatron.cpp only)")
      .above(0)
      .in("TFLOP/s");
  table.add_on("measure_speed", logging.measure_speed,
               "do not measure how fast the kernels of a step are alone, for MFU and percent of the kernel ceiling; "
               "that takes up to a few seconds of the first start of a model on a machine, which keeps the result in "
               "$XDG_CACHE_HOME/megatron or $HOME/.cache/megatron; to measure again, remove the file that the banner "
               "names (megatron.cpp only)");
  table.add("log_progress", logging.log_progress, "append to progress.txt in the folder of --save")
      .such_as("--save run --save-interval 500 --log-progress");
  table.add("log_params_norm", logging.log_params_norm, "add the L2 norm of all weights to the line");
  table.add("log_max_attention_logit", config.transformer.log_max_attention_logit,
            "add the largest logit of attention in the step to the line");
  table.add("log_jsonl", logging.log_jsonl, "file for one JSON object per line (megatron.cpp only)")
      .differs_between_hosts()
      .known_as("jsonl log-file log-json log-path");
  table
      .add("log_loss_curve", logging.log_loss_curve,
           "SVG file of the training and validation loss, drawn anew with each line; after a restart it begins with "
           "what the file of --log-jsonl holds (megatron.cpp only)")
      .differs_between_hosts();
  table
      .add(
          "timing_log_level", logging.timing_log_level,
          "0: set-up, evaluations and checkpoints; 1: also forward and backward, reduction of gradients, optimizer and "
          "its parts; 2: also batches, each forward, backward, send and receive")
      .at_least(0)
      .at_most(2)
      .differs({.megatron = "clipping, unscaling with the search for infinities and the count of zeros are timed "
                            "apart, as are copies from and to the master weights; sum of gradients outside of tensor "
                            "parallelism under a name that is not printed",
                .ours = "one pass is optimizer-clip-main-grad, another optimizer-inner-step, and there are no copies; "
                        "non-tensor-parallel-grads-all-reduce is printed"})
      .differs({.megatron = "a send and a receive that are done together have one name",
                .ours = "always two: forward-send, forward-recv, backward-send, backward-recv, each the time that the "
                        "rank waits",
                .topic = "--timing-log-level 2"})
      .differs({.megatron = "ranks wait for each other before each, unless --no-barrier-with-level-1-timing",
                .ours = "ranks never wait for a timer",
                .topic = "times of level 1"});
  table.add("timing_log_option", logging.timing_log_option, "what of the ranks' times")
      .one_of({"minmax", "max", "all"});
  table.add("tensorboard_dir", logging.tensorboard_dir, "folder of TensorBoard's event files")
      .differs_between_hosts()
      .known_as("tensorboard tb-dir log-dir logdir");
  table.add("tensorboard_log_interval", logging.tensorboard_log_interval, "steps between events")
      .at_least(1)
      .needs("--tensorboard-dir or --wandb-project",
             [&logging] { return logging.tensorboard_dir || logging.wandb_project; })
      .such_as("--tensorboard-dir logs --tensorboard-log-interval 10");
  table.add("log_timers_to_tensorboard", logging.log_timers_to_tensorboard, "write times as events")
      .needs("--tensorboard-dir", has_tensorboard)
      .such_as("--tensorboard-dir logs --timing-log-level 1 --log-timers-to-tensorboard");
  table.add_on("log_loss_scale_to_tensorboard", logging.log_loss_scale_to_tensorboard, "write no loss scale")
      .needs("--tensorboard-dir", has_tensorboard)
      .such_as("--tensorboard-dir logs --no-log-loss-scale-to-tensorboard");
  table
      .add("log_validation_ppl_to_tensorboard", logging.log_validation_ppl_to_tensorboard,
           "write perplexities of evaluations")
      .needs("--tensorboard-dir", has_tensorboard)
      .such_as("--tensorboard-dir logs --log-validation-ppl-to-tensorboard");
  table
      .add("log_memory_to_tensorboard", logging.log_memory_to_tensorboard,
           "write memory in use and the number of live blocks")
      .needs("--tensorboard-dir", has_tensorboard)
      .such_as("--tensorboard-dir logs --log-memory-to-tensorboard");
  table.add("log_world_size_to_tensorboard", logging.log_world_size_to_tensorboard, "write the number of ranks")
      .needs("--tensorboard-dir", has_tensorboard)
      .such_as("--tensorboard-dir logs --log-world-size-to-tensorboard");
  table
      .add("log_memory_interval", logging.log_memory_interval,
           "steps between memory lines; a multiple of --log-interval")
      .at_least(1)
      .such_as("--log-memory-interval 100");
  table.add("log_device_memory_used", logging.log_device_memory_used,
            "add the memory that all processes use of the device, or of the host of a CPU, to the memory lines");
  table
      .add("logging_level", logging.logging_level,
           "least level of messages that are printed: above 20 (info) no notes, times and checkpoints, above 30 "
           "(warning) no warnings either; iterations, evaluations and what ends the run are always printed. None: the "
           "environment variable MEGATRON_LOGGING_LEVEL, or 20")
      .read_by([](std::string_view word) -> FieldValue { return read_logging_level(word); })
      .such_as("--logging-level 30");
  describe_wandb(table, logging);
}

}  // namespace megatron
