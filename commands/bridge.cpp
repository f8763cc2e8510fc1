#include "commands/bridge.h"

#include <fmt/core.h>

#include <ostream>

#include "commands/bridge_verification.h"
#include "commands/exit_code.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/mistakes.h"
#include "megatron/base/word_list.h"
#include "megatron/models/hugging_face/families.h"
#include "megatron/training/config/flag_synonyms.h"
#include "megatron/training/hugging_face/export_model.h"
#include "megatron/training/hugging_face/import_model.h"

namespace megatron {
namespace {

constexpr std::string_view kIntroduction = R"(usage: megatron bridge import --hf-path DIR --save DIR [--verify]
       megatron bridge export --load DIR --hf-path DIR
       megatron bridge roundtrip --hf-path DIR

import turns a model in Hugging Face's format (config.json and safetensors files) into a checkpoint
that generate, eval and pretrain_gpt --use-checkpoint-args load, on any layout of ranks. export turns
a checkpoint into such a folder, with the same bits. roundtrip takes every tensor to Megatron's form
and back in memory and compares the bits. All work tensor by tensor: a model need not fit in memory, except
with --verify, which runs the model and exits with 1 if its logits are not the stored ones.

)";

struct BridgeConfig {
  std::optional<std::string> hf_path, save;
  ExportOptions exported;
  int64_t max_shard_size_mb = 5000;
  bool verify = false;
  std::optional<std::string> verify_logits;
  double verify_tolerance = 1e-4;
  EvaluationDevice device;
};

FieldTable describe(BridgeConfig& config) {
  FieldTable table;
  table.begin_group("Folders", "");
  table.add("hf_path", config.hf_path, "folder of the model in Hugging Face's format")
      .known_as("hf-model hf-model-id hf-dir model");
  table.add("save", config.save, "import: folder of checkpoints to write to").known_as("megatron-path save-dir out");
  table.add("load", config.exported.checkpoint.load, "export: folder of checkpoints to read from")
      .known_as("megatron-path load-dir checkpoint");
  table.add("ckpt_step", config.exported.checkpoint.ckpt_step, "export: iteration to read")
      .by_default("the newest")
      .at_least(0);
  table.begin_group("Exported files", "");
  table
      .add("hf_config", config.exported.config_from,
           "export: folder whose config.json, tokenizer and generation files to take")
      .by_default("those that the checkpoint keeps; without any, config.json is made from its arguments");
  table
      .add("hf_model_type", config.exported.model_type,
           "export: make config.json from the arguments of the checkpoint, for this model_type, such as llama")
      .by_default("the one that fits, where the checkpoint keeps no config.json");
  table.add("max_shard_size_mb", config.max_shard_size_mb, "export: most megabytes of a safetensors file").at_least(1);
  table.begin_group("Verification", "");
  table.add("verify", config.verify,
            "run the written model (roundtrip: that of --hf-path) in fp32 and compare its logits with stored ones");
  table
      .add("verify_logits", config.verify_logits,
           "safetensors file with input_ids [sequences, tokens] and fp32 logits [sequences, tokens, vocabulary]")
      .by_default("expected.safetensors in --hf-path, for an export in --hf-config");
  table.add("verify_tolerance", config.verify_tolerance, "largest difference of a logit").above(0);
  add_fields(table, config.device);
  return table;
}

std::string bridge_help(const std::vector<std::string>& args) {
  BridgeConfig defaults;
  const FieldTable table = describe(defaults);
  std::vector<std::string> names;
  for (const hugging_face::Family& family : hugging_face::families()) names.push_back(family.model_type);
  return help_text({.command = "megatron bridge",
                    .introduction = fmt::format("{}Values of model_type that are supported: {}.\n\n", kIntroduction,
                                                joined(names, ", ")),
                    .table = table},
                   args);
}

/// Each action takes --hf-path, and one of them --save or --load.
void check(const std::string& action, const BridgeConfig& config, Mistakes& mistakes) {
  if (!config.hf_path)
    mistakes.add({"--hf-path"}, "--hf-path is missing: the folder of the model in Hugging Face's format");
  const auto takes = [&](std::string_view owner, std::string_view flag, bool is_given) {
    if (action != owner && is_given) mistakes.add({flag}, "{} goes with {} alone, this is {}", flag, owner, action);
  };
  const auto needs = [&](std::string_view owner, std::string_view flag, bool is_given, std::string_view what) {
    if (action == owner && !is_given) mistakes.add({flag}, "{} is missing: {}", flag, what);
    takes(owner, flag, is_given);
  };
  needs("import", "--save", config.save.has_value(), "the folder for the checkpoint");
  needs("export", "--load", config.exported.checkpoint.load.has_value(), "the folder of checkpoints");
  takes("export", "--ckpt-step", config.exported.checkpoint.ckpt_step.has_value());
  takes("export", "--hf-config", config.exported.config_from.has_value());
  takes("export", "--hf-model-type", config.exported.model_type.has_value());
  if (!config.verify)
    for (const auto& [flag, is_given] : {std::pair{"--verify-logits", config.verify_logits.has_value()},
                                         {"--device", config.device.device.has_value()},
                                         {"--num-threads", config.device.num_threads.has_value()}})
      if (is_given) mistakes.add({flag}, "{} goes with --verify alone", flag);
  if (action == "export" && config.verify && !config.verify_logits && !config.exported.config_from)
    mistakes.add({"--verify", "--verify-logits"},
                 "--verify has nothing to compare an export with: give --verify-logits");
  if (config.exported.config_from && config.exported.model_type)
    mistakes.add({"--hf-config", "--hf-model-type"}, "--hf-config and --hf-model-type exclude each other");
}

/// Before the conversion, so that nothing is written in vain.
std::optional<StoredLogits> logits_to_verify(const FileSystem& files, const BridgeConfig& config) {
  if (!config.verify) return std::nullopt;
  const std::string& folder = config.exported.config_from ? *config.exported.config_from : *config.hf_path;
  return read_stored_logits(files, config.verify_logits.value_or(join_path(folder, "expected.safetensors")));
}

void verify(FileSystem& files, const std::string& action, const BridgeConfig& config, const StoredLogits& stored,
            const ModelFamily& family, std::ostream& out) {
  CheckpointConfig written;
  (action == "import" ? written.load : written.load_hf) = action == "import" ? config.save : config.hf_path;
  const LogitDifference worst = compare_logits(files, written, stored, config.device, family);
  const bool agrees = worst.largest <= config.verify_tolerance;
  out << fmt::format("{}: the logits differ from those of {} by at most {:.3g}, tolerance {:g}\n",
                     agrees ? "verified" : "NOT verified", stored.path, worst.largest, config.verify_tolerance);
  if (agrees) return;
  throw Error(
      fmt::format("[bridge] --verify: the logit of entry {} for token {} of sequence {} is {} instead of {}. The model "
                  "computes something else than the stored logits say: do not train it. If another precision than fp32 "
                  "made them, give a larger --verify-tolerance.",
                  worst.entry, worst.position, worst.sequence, worst.computed, worst.stored));
}

void run(const std::string& action, BridgeConfig& config, const ModelFamily& family, std::ostream& out) {
  PosixFileSystem files;
  const std::optional<StoredLogits> stored = logits_to_verify(files, config);
  ProgressBarOptions shown = bar_options(out, false);
  shown.line_interval = std::chrono::seconds(10);  // the lines of a large model are few
  ProgressBar progress(shown, [&](std::string_view text) { out << text << std::flush; });
  if (action == "import") {
    import_hugging_face(files, *config.hf_path, *config.save, progress);
    out << fmt::format("imported {} to {} as iteration 0\n", *config.hf_path, *config.save);
  } else if (action == "export") {
    config.exported.directory = *config.hf_path;
    config.exported.max_shard_bytes = config.max_shard_size_mb * 1'000'000;
    export_hugging_face(files, config.exported, progress);
    out << fmt::format("exported {} to {}\n", *config.exported.checkpoint.load, *config.hf_path);
  } else {
    const RoundTrip trip = round_trip_hugging_face(files, *config.hf_path, progress);
    out << fmt::format("{} tensors, {} bytes: all come back bit for bit\n", trip.num_tensors, trip.bytes);
  }
  if (stored) verify(files, action, config, *stored, family, out);
}

}  // namespace

int bridge_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
                   const ModelFamily& family) {
  return run_command("bridge", err, [&] {
    if (asks_for_help(args)) return show_text(bridge_help(args), out);
    require<ConfigError>(!args.empty() && (args[0] == "import" || args[0] == "export" || args[0] == "roundtrip"),
                         "{}Usage: megatron bridge import|export|roundtrip --hf-path DIR. --help describes the flags.",
                         args.empty() ? "" : fmt::format("there is no \"bridge {}\". ", args[0]));
    BridgeConfig config;
    FieldTable table = describe(config);
    Mistakes mistakes;
    parse_flags(table, {args.begin() + 1, args.end()}, {.synonyms = flag_synonyms()}, mistakes);
    check(args[0], config, mistakes);
    mistakes.throw_if_any("the flags are wrong");
    run(args[0], config, family, out);
  });
}

}  // namespace megatron
