#include "commands/checkpoint/checkpoint_flags.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "megatron/base/flag_parser.h"
#include "megatron/base/mistakes.h"
#include "megatron/training/config/flag_synonyms.h"

namespace megatron {
namespace {

/// The actions that a flag belongs to; the others belong to all.
constexpr auto kActionsOfFlags = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"ckpt_step", "inspect verify diff convert-format reshard"},
    {"json", "inspect verify diff"},
    {"keys", "inspect diff"},
    {"args", "inspect"},
    {"chunks", "inspect"},
    {"check_values", "verify"},
    {"atol", "diff"},
    {"rtol", "diff"},
    {"keep_last", "prune"},
    {"keep_every", "prune"},
    {"save", "convert-format reshard"},
    {"ckpt_format", "convert-format reshard"},
    {"max_shard_size_mb", "convert-format"},
    {"target_tensor_parallel_size", "convert-format reshard"},
    {"target_pipeline_parallel_size", "convert-format reshard"},
    {"target_virtual_pipeline_parallel_size", "reshard"},
    {"target_expert_parallel_size", "reshard"},
    {"target_expert_tensor_parallel_size", "reshard"},
    {"target_data_parallel_size", "reshard"},
    {"dist_ckpt_optim_form", "reshard"},
    {"yes", "prune"},
    {"take_over_save_lock", "prune"},
});

void check_folders(const std::string& action, const CheckpointFlags& flags, Mistakes& mistakes) {
  const size_t wanted = action == "diff" ? 2 : 1;
  if (flags.load.size() == wanted) return;
  if (wanted == 2)
    mistakes.add({"--load"}, "diff compares two checkpoints, given are {}: megatron checkpoint diff DIR DIR",
                 flags.load.size());
  else
    mistakes.add({"--load"}, "{} takes one folder, given are {}: megatron checkpoint {} DIR", action, flags.load.size(),
                 action);
}

void describe_resharding(CheckpointFlags& flags, FieldTable& table) {
  table
      .add("target_virtual_pipeline_parallel_size", flags.target_virtual_pipeline_parallel_size,
           "reshard: parts of the layers that each stage has")
      .by_default("1")
      .at_least(1);
  table.add("target_expert_parallel_size", flags.target_expert_parallel_size, "reshard: ranks that share the experts")
      .by_default("as stored")
      .at_least(1);
  table
      .add("target_expert_tensor_parallel_size", flags.target_expert_tensor_parallel_size,
           "reshard: ranks that share each expert")
      .by_default("the tensor-parallel size, or as stored where both differ")
      .at_least(1);
  table
      .add("target_data_parallel_size", flags.target_data_parallel_size,
           "reshard: ranks that hold the same part of the model and share its files")
      .by_default("as few as the experts allow")
      .at_least(1);
  table
      .add("dist_ckpt_optim_form", flags.dist_ckpt_optim_form,
           "reshard: form of a distributed optimizer's state, whole tensors or the flat buckets of the layout")
      .by_default("as stored")
      .one_of({"fully_reshardable", "dp_reshardable"});
}

}  // namespace

bool CheckpointFlags::takes(const std::string& key) const {
  return keys.empty() ||
         std::ranges::any_of(keys, [&](const std::string& part) { return key.find(part) != std::string::npos; });
}

FieldTable describe(CheckpointFlags& flags) {
  FieldTable table;
  table.begin_group("Checkpoints", "");
  table.add("load", flags.load, "folder of --save, or one iter_ folder in it; may be given without the flag");
  table.add("ckpt_step", flags.ckpt_step, "inspect, verify, diff, convert-format, reshard: iteration to read")
      .by_default("the newest")
      .at_least(0);
  table.begin_group("Reports", "");
  table.add("json", flags.json, "inspect, verify, diff: print one JSON object");
  table.add("keys", flags.keys, "inspect, diff: only tensors whose names contain one of these");
  table.add("args", flags.args, "inspect: also the stored flags of the run");
  table.add("chunks", flags.chunks, "inspect: also where each stored part of a tensor lies");
  table.add("check_values", flags.check_values, "verify: also report NaN and infinity in tensors");
  table.add("atol", flags.atol, "diff: a and b are equal if |a - b| is not above this").at_least(0);
  table.add("rtol", flags.rtol, "diff: times |b|, added to --atol").at_least(0);
  table.begin_group("Conversion", "");
  table.add("save", flags.save, "convert-format, reshard: new folder to write to");
  table
      .add("ckpt_format", flags.ckpt_format,
           "convert-format: torch_dist, torch, or for the weights alone safetensors; reshard: torch_dist or torch")
      .one_of({"torch_dist", "torch", "safetensors"});
  table
      .add("target_tensor_parallel_size", flags.target_tensor_parallel_size,
           "reshard, convert-format to torch: ranks that share each layer")
      .by_default("reshard: as stored, otherwise 1")
      .at_least(1);
  table
      .add("target_pipeline_parallel_size", flags.target_pipeline_parallel_size,
           "reshard, convert-format to torch: stages that share the layers evenly")
      .by_default("reshard: as stored, otherwise 1")
      .at_least(1);
  describe_resharding(flags, table);
  table.add("max_shard_size_mb", flags.max_shard_size_mb, "convert-format: most megabytes of a safetensors file")
      .at_least(1);
  table.begin_group("Pruning", "Without --yes prune only lists what it would delete.");
  table.add("keep_last", flags.keep_last, "prune: the newest complete checkpoints that stay")
      .by_default("1 with --keep-every")
      .at_least(1);
  table.add("keep_every", flags.keep_every, "prune: multiples of this many iterations stay").at_least(1);
  table.add("yes", flags.yes, "prune: delete");
  table.add("take_over_save_lock", flags.take_over_save_lock,
            "prune: the run that has locked the folder on another host has ended");
  return table;
}

CheckpointFlags parse_checkpoint_flags(const std::vector<std::string>& args) {
  const std::string& action = args.front();
  CheckpointFlags flags;
  FieldTable table = describe(flags);
  Mistakes mistakes;
  std::vector<std::string> words(args.begin() + 1, args.end());
  if (!words.empty() && !words[0].starts_with("-")) words.insert(words.begin(), "--load");
  const GivenFields given = parse_flags(table, words, {.synonyms = flag_synonyms()}, mistakes);
  for (const auto& [name, actions] : kActionsOfFlags)
    if (given.contains(name) && actions.find(action) == std::string_view::npos)
      mistakes.add({given.find(name)->second}, "{} goes with {}, this is {}", given.find(name)->second, actions,
                   action);
  check_folders(action, flags, mistakes);
  if (action == "prune" && !flags.keep_last && !flags.keep_every)
    mistakes.add({"--keep-last"}, "--keep-last or --keep-every is missing: which checkpoints stay");
  if ((action == "convert-format" || action == "reshard") && !flags.save)
    mistakes.add({"--save"}, "--save is missing: the new folder to write to");
  if (action == "reshard" && flags.ckpt_format == "safetensors")
    mistakes.add({"--ckpt-format"}, "--ckpt-format safetensors has no ranks: convert-format writes it");
  if (action == "reshard" && flags.ckpt_format == "torch" && flags.dist_ckpt_optim_form)
    mistakes.add({"--dist-ckpt-optim-form"}, "--dist-ckpt-optim-form goes with --ckpt-format torch_dist");
  for (const char* name : {"target_tensor_parallel_size", "target_pipeline_parallel_size"})
    if (given.contains(name) && action == "convert-format" && flags.ckpt_format != "torch")
      mistakes.add(
          {"--ckpt-format"},
          "{} needs --ckpt-format torch: the other forms load on any layout, and reshard writes torch_dist for one",
          given.find(name)->second);
  mistakes.throw_if_any("the flags are wrong");
  return flags;
}

}  // namespace megatron
