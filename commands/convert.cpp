#include "commands/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <string_view>

#include "commands/checkpoint/checkpoint_actions.h"
#include "commands/exit_code.h"
#include "commands/terminal.h"
#include "commands/tokenizer_flags.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/mistakes.h"
#include "megatron/training/checkpoint/reshard_checkpoint.h"
#include "megatron/training/config/flag_synonyms.h"
#include "megatron/training/hugging_face/export_model.h"
#include "megatron/training/hugging_face/import_model.h"

namespace megatron {
namespace {

constexpr std::string_view kConvertIntroduction =
    R"(usage: megatron convert --loader core --saver core --load-dir DIR --save-dir DIR [--target-tensor-parallel-size N]
       megatron convert --loader llama_mistral --saver core --load-dir DIR --save-dir DIR
       megatron convert --loader core --saver hf --load-dir DIR --save-dir DIR

Takes the flags of Megatron-LM's tools/checkpoint/convert.py. A loader or saver core (mcore, megatron)
is a folder of checkpoints; llama_mistral, mixtral_hf and hf are a folder of a Hugging Face model of any
family that megatron bridge knows. From Hugging Face to core is megatron bridge import, the other way
megatron bridge export, from core to core megatron checkpoint reshard. Unlike the script it keeps the
optimizer's state and writes torch_dist, which loads on any layout, also in Megatron-LM; for the weights
alone in the script's form there is megatron checkpoint convert-format --ckpt-format torch. None of them
needs a GPU or memory for the model.

)";

constexpr auto kCore = std::to_array<std::string_view>({"core", "mcore", "megatron"});

bool is_core(std::string_view plugin) { return std::ranges::find(kCore, plugin) != kCore.end(); }

struct ConvertConfig {
  std::string model_type = "GPT", loader, saver;
  std::optional<std::string> load_dir, save_dir;
  LayoutRequest target;
  std::optional<int64_t> ckpt_step, max_queue_size, true_vocab_size;
  std::optional<std::string> hf_model_type;
  std::optional<std::string> tokenizer_model, vocab_file, megatron_path, loader_transformer_impl,
      saver_transformer_impl, position_embedding_type, model_size, checkpoint_type;
  bool no_checking = false, bf16 = false, fp16 = false;
};

void describe_idle(FieldTable& table, ConvertConfig& config) {
  constexpr const char* kNoQueue = "one process reads and writes, a piece of a tensor at a time";
  constexpr const char* kDtype = "tensors keep their dtype; a run converts them to its own when it loads";
  table.begin_group("Flags of the script without effect here", "");
  table.add("max_queue_size", config.max_queue_size, "").without_effect(kNoQueue);
  table.add("no_checking", config.no_checking, "").without_effect("every tensor that is there must have a place");
  table.add("true_vocab_size", config.true_vocab_size, "")
      .without_effect("a run cuts or extends the padding of the vocabulary when it loads");
  table.add("tokenizer_model", config.tokenizer_model, "")
      .without_effect("the tokenizer's files in the folder of --load-dir are copied; others are given to the run");
  table.add("vocab_file", config.vocab_file, "").without_effect("the vocabulary is given to the run");
  table.add("megatron_path", config.megatron_path, "").without_effect("nothing of Megatron-LM is run");
  table.add("loader_transformer_impl", config.loader_transformer_impl, "")
      .without_effect("the stored flags say which modules wrote the checkpoint");
  table.add("saver_transformer_impl", config.saver_transformer_impl, "")
      .one_of({"local", "transformer_engine"})
      .without_effect("torch_dist has one name for the modules of both, that of Transformer Engine");
  table.add("position_embedding_type", config.position_embedding_type, "")
      .one_of({"learned_absolute", "rope"})
      .without_effect("the stored flags, or config.json, have it");
  table.add("model_size", config.model_size, "").without_effect("config.json has the sizes");
  table.add("checkpoint_type", config.checkpoint_type, "").without_effect("the files say what they are");
  table.add("bf16", config.bf16, "").without_effect(kDtype);
  table.add("fp16", config.fp16, "").without_effect(kDtype);
}

FieldTable describe(ConvertConfig& config) {
  FieldTable table;
  table.begin_group("Conversion", "");
  table.add("model_type", config.model_type, "kind of the model").one_of({"GPT"}).later({"BERT"});
  table.add("loader", config.loader, "what --load-dir is: core, or a Hugging Face model")
      .one_of({"core", "mcore", "megatron", "llama_mistral", "mixtral_hf", "hf"})
      .later({"llava", "bert"});
  table.add("saver", config.saver, "what to write to --save-dir")
      .one_of({"core", "mcore", "megatron", "llama_mistral", "mixtral_hf", "hf"})
      .later({"llava", "hf_llava"});
  table.add("load_dir", config.load_dir, "folder to read");
  table.add("save_dir", config.save_dir, "new folder to write to");
  table
      .add("hf_model_type", config.hf_model_type,
           "saver of a Hugging Face model: make config.json from the stored arguments, for this model_type")
      .by_default("that of the kept config.json, or the one that fits: for llama_mistral llama, if it does");
  table.add("ckpt_step", config.ckpt_step, "iteration to read of a loader core").by_default("the newest").at_least(0);
  const auto add_size = [&](const char* name, std::optional<int64_t>& size, const char* help) {
    table.add(name, size, help).by_default("as stored, for a Hugging Face model 1").at_least(1);
  };
  add_size("target_tensor_parallel_size", config.target.tensor_parallel_size, "ranks that share each layer");
  add_size("target_pipeline_parallel_size", config.target.pipeline_parallel_size,
           "stages that share the layers evenly");
  add_size("target_expert_parallel_size", config.target.expert_parallel_size, "ranks that share the experts");
  describe_idle(table, config);
  return table;
}

void check(const ConvertConfig& config, const GivenFields& given, Mistakes& mistakes) {
  for (const auto& [name, flag] : {std::pair{"loader", "--loader"}, {"saver", "--saver"}})
    if (!given.contains(name)) mistakes.add({flag}, "{} is missing: core, or hf for a Hugging Face model", flag);
  if (!config.load_dir) mistakes.add({"--load-dir"}, "--load-dir is missing: the folder to read");
  if (!config.save_dir) mistakes.add({"--save-dir"}, "--save-dir is missing: the new folder to write to");
  if (!given.contains("loader") || !given.contains("saver")) return;
  if (!is_core(config.loader) && !is_core(config.saver))
    mistakes.add(
        {"--loader", "--saver"},
        "--loader {} and --saver {} are both Hugging Face's format: nothing is to be converted. megatron bridge "
        "roundtrip checks a model",
        config.loader, config.saver);
  if (!is_core(config.loader) && config.ckpt_step)
    mistakes.add({"--ckpt-step"}, "--ckpt-step goes with --loader core: a Hugging Face model has no iterations");
  if (is_core(config.saver)) {
    if (config.hf_model_type)
      mistakes.add({"--hf-model-type"}, "--hf-model-type goes with --saver hf: a checkpoint has no model_type");
    return;
  }
  for (const auto& [name, flag] : {std::pair{"target_tensor_parallel_size", "--target-tensor-parallel-size"},
                                   {"target_pipeline_parallel_size", "--target-pipeline-parallel-size"},
                                   {"target_expert_parallel_size", "--target-expert-parallel-size"}})
    if (given.contains(name))
      mistakes.add({flag}, "{} goes with --saver core: a Hugging Face model is not divided into ranks", flag);
}

void write_core(FileSystem& files, const CheckpointReader& reader, const ConvertConfig& config, Progress& progress) {
  reshard_checkpoint(files, reader, *config.save_dir, {.layout = config.target, .optimizer_form = {}}, progress);
}

/// An import is for one rank; another layout is made of it.
void import_to_core(FileSystem& files, const ConvertConfig& config, Progress& progress, std::ostream& err) {
  const LayoutRequest& target = config.target;
  const auto is_one = [](const std::optional<int64_t>& size) { return size.value_or(1) == 1; };
  if (is_one(target.tensor_parallel_size) && is_one(target.pipeline_parallel_size) &&
      is_one(target.expert_parallel_size))
    return import_hugging_face(files, *config.load_dir, *config.save_dir, progress);
  require_new_folder(files, *config.save_dir);
  const std::string imported = *config.save_dir + ".import";
  require_new_folder(files, imported);
  import_hugging_face(files, *config.load_dir, imported, progress);
  write_core(files, open_checkpoint(files, imported, {}, err), config, progress);
  files.remove(imported);
}

void run(const ConvertConfig& config, std::ostream& out, std::ostream& err) {
  PosixFileSystem files;
  ProgressBar progress(bar_options(err, false), [&](std::string_view text) { err << text << std::flush; });
  if (!is_core(config.loader)) {
    import_to_core(files, config, progress, err);
  } else if (is_core(config.saver)) {
    write_core(files, open_checkpoint(files, *config.load_dir, config.ckpt_step, err), config, progress);
  } else {
    ExportOptions options;
    options.checkpoint.load = config.load_dir;
    options.checkpoint.ckpt_step = config.ckpt_step;
    options.directory = *config.save_dir;
    options.model_type = config.hf_model_type;
    if (config.saver == "llama_mistral") options.preferred_type = "llama";
    if (config.saver == "mixtral_hf") options.preferred_type = "mixtral";
    export_hugging_face(files, options, progress);
  }
  out << fmt::format("converted {} to {}\n", *config.load_dir, *config.save_dir);
}

}  // namespace

int convert_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  return run_command("convert", err, [&] {
    ConvertConfig config;
    FieldTable table = describe(config);
    if (asks_for_help(args))
      return show_text(
          help_text({.command = "megatron convert", .introduction = std::string(kConvertIntroduction), .table = table},
                    args),
          out);
    Mistakes mistakes;
    const GivenFields given = parse_flags(table, args, {.synonyms = flag_synonyms()}, mistakes);
    check(config, given, mistakes);
    mistakes.throw_if_any("the flags are wrong");
    for (const std::string& note : notes_without_effect(table, given)) err << note << '\n';
    run(config, out, err);
  });
}

}  // namespace megatron
