#include <fmt/core.h>

#include <ostream>

#include "commands/checkpoint/checkpoint_actions.h"
#include "commands/terminal.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/training/checkpoint/legacy_writer.h"
#include "megatron/training/checkpoint/reshard_checkpoint.h"

namespace megatron {

LayoutRequest layout_request_of(const CheckpointFlags& flags) {
  return {.tensor_parallel_size = flags.target_tensor_parallel_size,
          .pipeline_parallel_size = flags.target_pipeline_parallel_size,
          .virtual_pipeline_parallel_size = flags.target_virtual_pipeline_parallel_size,
          .expert_parallel_size = flags.target_expert_parallel_size,
          .expert_tensor_parallel_size = flags.target_expert_tensor_parallel_size,
          .data_parallel_size = flags.target_data_parallel_size};
}

void reshard_checkpoint_command(FileSystem& files, const CheckpointFlags& flags, std::ostream& out, std::ostream& err) {
  const CheckpointReader reader = open_checkpoint(files, flags.load[0], flags.ckpt_step, err);
  ReshardOptions options{.layout = layout_request_of(flags), .optimizer_form = {}};
  if (flags.dist_ckpt_optim_form)
    options.optimizer_form = *flags.dist_ckpt_optim_form == common_state::kDpReshardable
                                 ? OptimizerForm::kDpReshardable
                                 : OptimizerForm::kFullyReshardable;
  ProgressBar progress(bar_options(err, false), [&](std::string_view text) { err << text << std::flush; });
  const TargetLayout layout = flags.ckpt_format == "torch"
                                  ? convert_to_torch(files, reader, *flags.save, options.layout, progress)
                                  : reshard_checkpoint(files, reader, *flags.save, options, progress);
  const std::string experts = layout.has_experts ? fmt::format(", expert {}, expert tensor {}", layout.division.expert,
                                                               layout.division.expert_tensor)
                                                 : "";
  out << fmt::format("resharded {} to {} for {} ranks: tensor {}, pipeline {}{}, data {}\n", reader.directory(),
                     *flags.save, layout.world_size(), layout.division.tensor, layout.division.pipeline, experts,
                     layout.data_parallel_size);
}

}  // namespace megatron
