#include <fmt/core.h>

#include <ostream>

#include "commands/checkpoint/checkpoint_actions.h"
#include "commands/terminal.h"
#include "megatron/training/checkpoint/convert_checkpoint.h"
#include "megatron/training/checkpoint/legacy_writer.h"

namespace megatron {

void convert_checkpoint(FileSystem& files, const CheckpointFlags& flags, std::ostream& out, std::ostream& err) {
  constexpr int64_t kMegabyte = 1'000'000;
  const CheckpointReader reader = open_checkpoint(files, flags.load[0], flags.ckpt_step, err);
  LayoutRequest layout = layout_request_of(flags);  // one rank has all, unless the flags say otherwise
  for (auto* size : {&layout.tensor_parallel_size, &layout.pipeline_parallel_size}) *size = size->value_or(1);
  layout.expert_parallel_size = 1;
  layout.expert_tensor_parallel_size = layout.tensor_parallel_size;
  ProgressBar progress(bar_options(err, false), [&](std::string_view text) { err << text << std::flush; });
  if (flags.ckpt_format == "safetensors")
    convert_to_safetensors(files, reader, *flags.save, flags.max_shard_size_mb * kMegabyte, progress);
  else if (flags.ckpt_format == "torch")
    convert_to_torch(files, reader, *flags.save, layout, progress);
  else
    convert_to_torch_dist(files, reader, *flags.save, progress);
  out << fmt::format("converted {} to {} as {}\n", reader.directory(), *flags.save, flags.ckpt_format);
}

}  // namespace megatron
