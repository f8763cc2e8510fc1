#include "megatron/training/config/pretrain_config.h"

#include "megatron/base/flag_parser.h"
#include "megatron/training/config/arguments_json.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/config/rules.h"
#include "megatron/training/config/unsupported_flags.h"

namespace megatron {
namespace {

/// A checkpoint that cannot be read is one mistake among others; settings that it would have given are none.
void take_arguments_of_checkpoint(FieldTable& table, PretrainConfig& config, const StoredArguments& stored_arguments,
                                  Mistakes& mistakes) {
  bool is_read = false;
  mistakes.attempt({config.checkpoint.load_hf ? "--load-hf" : "--load"}, [&] {
    const std::string text = stored_arguments(config.checkpoint);
    if (config.checkpoint.load_hf)
      take_hugging_face_arguments(table, config, text);
    else
      take_stored_arguments(table, text);
    is_read = true;
  });
  if (is_read) return;
  table.for_each([&](const Field& field) {
    if (field.stored != StoredValue::kIgnored && field.given_by_flag()) mistakes.doubt(field.spelling());
  });
}

/// Unsupported settings are reported together with mistakes, so that one attempt shows all; alone they are no mistake.
void check_runnable(const PretrainConfig& config, Mistakes& mistakes) {
  check_pipeline_schedule(config, mistakes);
  mistakes.attempt({}, [&] { require_runnable(config); });
}

}  // namespace

PretrainConfig default_config(const ModelFamily& family) {
  PretrainConfig config;
  config.family = family;
  config.family.options = family.options.with_defaults();
  return config;
}

PretrainConfig parse_pretrain_gpt(const std::vector<std::string>& args, int world_size,
                                  const StoredArguments& stored_arguments, RuleSet rules,
                                  const FurtherMistakes& further, const ModelFamily& family) {
  PretrainConfig config = default_config(family);
  Mistakes mistakes;
  FieldTable table = describe(config);
  config.given = parse_flags(table, args, {.refused = refused_flags()}, mistakes);
  if (config.given.contains("num_query_groups")) config.model.group_query_attention = true;
  const CheckpointConfig& checkpoint = config.checkpoint;
  const bool names_checkpoint = checkpoint.load || checkpoint.pretrained_checkpoint;
  if ((checkpoint.use_checkpoint_args && names_checkpoint) || checkpoint.load_hf) {
    require(stored_arguments != nullptr,
            "--use-checkpoint-args: nothing was passed that reads a checkpoint's arguments");
    take_arguments_of_checkpoint(table, config, stored_arguments, mistakes);
  }
  const int64_t own_ranks = config.launch.nproc_per_node.value_or(world_size);
  if (world_size > 1 && own_ranks != world_size)
    mistakes.add({"--nproc-per-node"},
                 "--nproc-per-node {} starts ranks in this process, but a launcher has started {} ranks: leave it out",
                 own_ranks, world_size);
  if (world_size == 1 && config.launch.nnodes.value_or(1) > 1)
    mistakes.add({"--nnodes"},
                 "--nnodes {}: one process starts the ranks of its own host alone. Start the same command on all hosts "
                 "with mpirun, srun or (GPUs) torchrun, which say how many ranks there are, and leave --nnodes and "
                 "--nproc-per-node out: docs/launching.md has the command lines",
                 *config.launch.nnodes);
  resolve(config, own_ranks, mistakes);
  if (rules == RuleSet::kRunnable) check_runnable(config, mistakes);
  if (further) further(config, mistakes);
  mistakes.throw_if_any("the flags are wrong");
  return config;
}

}  // namespace megatron
