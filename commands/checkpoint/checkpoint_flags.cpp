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
    {"ckpt_step", "inspect verify diff convert-format"},
    {"json", "inspect verify diff"},
    {"keys", "inspect diff"},
    {"args", "inspect"},
    {"chunks", "inspect"},
    {"check_values", "verify"},
    {"atol", "diff"},
    {"rtol", "diff"},
    {"keep_last", "prune"},
    {"keep_every", "prune"},
    {"save", "convert-format"},
    {"ckpt_format", "convert-format"},
    {"max_shard_size_mb", "convert-format"},
    {"target_tensor_parallel_size", "convert-format"},
    {"target_pipeline_parallel_size", "convert-format"},
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

}  // namespace

bool CheckpointFlags::takes(const std::string& key) const {
  return keys.empty() ||
         std::ranges::any_of(keys, [&](const std::string& part) { return key.find(part) != std::string::npos; });
}

FieldTable describe(CheckpointFlags& flags) {
  FieldTable table;
  table.begin_group("Checkpoints", "");
  table.add("load", flags.load, "folder of --save, or one iter_ folder in it; may be given without the flag");
  table.add("ckpt_step", flags.ckpt_step, "inspect, verify, diff, convert-format: iteration to read")
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
  table.add("save", flags.save, "convert-format: new folder to write to");
  table
      .add("ckpt_format", flags.ckpt_format,
           "convert-format: torch_dist, or for the weights alone torch or safetensors")
      .one_of({"torch_dist", "torch", "safetensors"});
  table
      .add("target_tensor_parallel_size", flags.target_tensor_parallel_size,
           "convert-format to torch: ranks that share each layer")
      .by_default("1")
      .at_least(1);
  table
      .add("target_pipeline_parallel_size", flags.target_pipeline_parallel_size,
           "convert-format to torch: stages that share the layers evenly")
      .by_default("1")
      .at_least(1);
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
  if (action == "convert-format" && !flags.save)
    mistakes.add({"--save"}, "--save is missing: the new folder to write to");
  for (const char* name : {"target_tensor_parallel_size", "target_pipeline_parallel_size"})
    if (given.contains(name) && flags.ckpt_format != "torch")
      mistakes.add({"--ckpt-format"}, "{} needs --ckpt-format torch: the other forms load on any layout",
                   given.find(name)->second);
  mistakes.throw_if_any("the flags are wrong");
  return flags;
}

}  // namespace megatron
