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
  ProgressBar progress(bar_options(err, false), [&](std::string_view text) { err << text << std::flush; });
  if (flags.ckpt_format == "safetensors")
    convert_to_safetensors(files, reader, *flags.save, flags.max_shard_size_mb * kMegabyte, progress);
  else if (flags.ckpt_format == "torch")
    write_legacy_weights(files, reader, *flags.save,
                         {.tensor_parallel_size = flags.target_tensor_parallel_size.value_or(1),
                          .pipeline_parallel_size = flags.target_pipeline_parallel_size.value_or(1)},
                         progress);
  else
    convert_to_torch_dist(files, reader, *flags.save, progress);
  out << fmt::format("converted {} to {} as {}\n", reader.directory(), *flags.save, flags.ckpt_format);
}

}  // namespace megatron
