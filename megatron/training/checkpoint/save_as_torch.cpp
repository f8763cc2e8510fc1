#include "megatron/training/checkpoint/save_as_torch.h"

#include "megatron/training/checkpoint/bucketed_share.h"
#include "megatron/training/checkpoint/legacy_writer.h"

namespace megatron {

void write_folder_of_rank(FileSystem& files, const std::string& directory, Trainer& trainer) {
  const ProcessGroupCollection& groups = trainer.groups();
  const bool has_experts = trainer.config().transformer.moe.has_value();
  const bool is_first = has_experts ? groups.expt_dp.rank() == 0 : groups.dp_cp.rank() == 0;
  if (!is_first) return;
  const CheckpointReader reader(files, directory, Verify::kNothing);
  TargetLayout layout{.division = division_of(trainer),
                      .data_parallel_size = groups.dp.size(),
                      .context_parallel_size = groups.dp_cp.size() / groups.dp.size(),
                      .num_layers = trainer.model().config().num_layers,
                      .has_experts = has_experts,
                      .is_of_run = true};
  layout.parts.resize(static_cast<size_t>(layout.division.pipeline * layout.division.chunks));  // of other stages empty
  const std::vector<std::vector<Parameter*>> chunks = trainer.model().stage_parameters();
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
    layout.parts[chunk * static_cast<size_t>(layout.division.pipeline) + static_cast<size_t>(groups.pp.rank())] =
        stage_part_of(chunks[chunk]);
  LegacyWriter(reader, layout, {})
      .write(files, directory,
             {.tensor = groups.tp.rank(), .stage = groups.pp.rank(), .expert = has_experts ? groups.ep.rank() : 0});
}

}  // namespace megatron
