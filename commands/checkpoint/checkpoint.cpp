#include "commands/checkpoint/checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <string_view>

#include "commands/checkpoint/checkpoint_actions.h"
#include "commands/checkpoint/checkpoint_flags.h"
#include "commands/exit_code.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"

namespace megatron {
namespace {

constexpr auto kActions =
    std::to_array<std::string_view>({"inspect", "verify", "diff", "prune", "convert-format", "reshard"});

constexpr std::string_view kCheckpointIntroduction =
    R"(usage: megatron checkpoint inspect DIR [--args] [--chunks] [--json]
       megatron checkpoint verify DIR [--check-values] [--json]
       megatron checkpoint diff DIR DIR [--atol A] [--rtol R] [--json]
       megatron checkpoint prune DIR --keep-last N [--keep-every K] [--yes]
       megatron checkpoint convert-format DIR --save DIR [--ckpt-format torch_dist|torch|safetensors]
       megatron checkpoint reshard DIR --save DIR [--target-tensor-parallel-size N] [--target-pipeline-parallel-size N]

DIR is a folder of --save or one iter_ folder in it. inspect prints the iteration, the layout of
ranks, the form of the optimizer's state and all tensors. verify reads every byte and names files
and tensors that are damaged. diff compares two checkpoints tensor by tensor, whatever layouts wrote
them. prune lists the checkpoints that the flags do not keep, and with --yes deletes them.
convert-format writes a checkpoint of Megatron's --ckpt-format torch as torch_dist or the other way, with
its optimizer, or the weights of any checkpoint as safetensors. reshard writes a checkpoint of any form as
the ranks of another layout would have saved it with torch_dist (or --ckpt-format torch): their files,
the buckets of the optimizer for their sizes, these sizes among the stored flags. None of them needs a
GPU or memory for the model.

Exit codes: 0 all is well, for diff: no difference; 1 diff found differences; 2 wrong flags; 4 a
checkpoint is missing or damaged, or a run uses the folder to prune; 6 a file operation failed.

)";

std::string checkpoint_help(const std::vector<std::string>& args) {
  CheckpointFlags defaults;
  const FieldTable table = describe(defaults);
  return help_text(
      {.command = "megatron checkpoint", .introduction = std::string(kCheckpointIntroduction), .table = table}, args);
}

}  // namespace

CheckpointReader open_checkpoint(FileSystem& files, const std::string& folder, const std::optional<int64_t>& step,
                                 std::ostream& err) {
  require<CheckpointError>(files.exists(folder), "[checkpoint] {} does not exist. Correct the path.", folder);
  const CheckpointDirectory checkpoints(files, folder);
  if (checkpoints.is_checkpoint()) {
    require<ConfigError>(!step, "--ckpt-step {}: {} is one checkpoint. Give the folder that it is in.",
                         step.value_or(0), folder);
    return {files, folder, Verify::kNothing};
  }
  require<CheckpointError>(!checkpoints.is_empty(), "[checkpoint] {}: no checkpoint is there. Correct the path.",
                           folder);
  if (step) return {files, checkpoints.find(*step).path, Verify::kNothing};
  const CheckpointDirectory::Latest latest = checkpoints.latest();
  for (const std::string& warning : latest.warnings) err << "WARNING: " << warning << '\n';
  return {files, latest.found.value().path, Verify::kNothing};
}

int checkpoint_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  bool differs = false;
  const int status = run_command("checkpoint", err, [&] {
    if (asks_for_help(args)) return show_text(checkpoint_help(args), out);
    const bool is_known = !args.empty() && std::ranges::find(kActions, args[0]) != kActions.end();
    require<ConfigError>(is_known, "{}Usage: megatron checkpoint {} DIR. --help describes the flags.",
                         args.empty() ? "" : fmt::format("there is no \"checkpoint {}\". ", args[0]),
                         joined(kActions, "|"));
    const CheckpointFlags flags = parse_checkpoint_flags(args);
    PosixFileSystem files;
    if (args[0] == "inspect")
      inspect_checkpoint(files, flags, out, err);
    else if (args[0] == "verify")
      verify_checkpoint(files, flags, out, err);
    else if (args[0] == "diff")
      differs = diff_checkpoints(files, flags, out, err);
    else if (args[0] == "convert-format")
      convert_checkpoint(files, flags, out, err);
    else if (args[0] == "reshard")
      reshard_checkpoint_command(files, flags, out, err);
    else
      prune_checkpoints(files, flags, out);
  });
  return status == 0 && differs ? 1 : status;
}

}  // namespace megatron
