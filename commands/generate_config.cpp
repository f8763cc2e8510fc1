#include "commands/generate_config.h"

#include "megatron/base/command_help.h"
#include "megatron/base/flag_parser.h"
#include "megatron/training/config/flag_synonyms.h"

namespace megatron {
namespace {

constexpr std::string_view kGenerateIntroduction =
    R"(usage: megatron generate --load DIR | --load-hf DIR  --prompt TEXT | --prompts-file FILE [flags]

Continues texts with the newest checkpoint in DIR, or with a model in Hugging Face's format. The tokenizer is
that of the training run that saved the checkpoint, or lies beside the model.

  megatron generate --load checkpoints --prompt "To be, or" --num-tokens 200 --temperature 0.8 --top-k 40
  megatron generate --load-hf Llama-3.2-1B --prompts-file prompts.jsonl --batch-size 8 --greedy --stop "\n\n"

)";

FieldTable describe(GenerateConfig& config) {
  FieldTable table;
  table.begin_group("Model", "");
  table.add("load", config.checkpoint.load, "directory of checkpoints");
  table.add("ckpt_step", config.checkpoint.ckpt_step, "iteration to load").by_default("the newest").at_least(0);
  table.add("load_hf", config.checkpoint.load_hf, "folder of a model in Hugging Face's format").known_as("hf-path");
  table.add("vocab_file", config.vocab_file, "vocabulary of the training").by_default("the checkpoint's");
  table.add("merge_file", config.merge_file, "merge rules of the training").by_default("the checkpoint's");
  table.add("tokenizer_model", config.tokenizer_model, "tokenizer's file or folder of the training")
      .by_default("as the checkpoint has it");
  add_fields(table, config.device);
  add_fields(table, config.layout);
  table.begin_group("Text", "");
  table.add("prompt", config.prompt, "text to continue").known_as("text");
  table.add("prompts_file", config.prompts_file,
            R"(texts to continue: one a line, or in a file named *.jsonl objects {"prompt": "..."})");
  table.add("num_tokens", config.num_tokens, "maximum number of tokens to add")
      .at_least(1)
      .known_as(
          "tokens train-tokens num-train-tokens total-tokens max-tokens max-new-tokens n-tokens out-seq-length "
          "tokens-to-generate");
  table.add("ignore_eod", config.ignore_eod, "continue after an end-of-document token");
  table.add("stop", config.stop, "texts that each end a continuation, which leaves them out");
  table.add("batch_size", config.batch_size, "prompts that are continued at the same time").at_least(1).at_most(4096);
  table.begin_group("Output", "");
  table.add("json", config.json,
            R"(print {"prompt": ..., "text": ..., "ids": [...], "finish_reason": "length", "eod" or "stop"} for each )"
            "prompt, as --prompts-file always does");
  table.add("logprobs", config.logprobs, "the object also has logprobs: the log-probability of each of the ids");
  table.add("top_logprobs", config.top_logprobs, "and for each of them the N most likely ids with theirs")
      .at_least(0)
      .at_most(1000);
  table.add("prompt_logprobs", config.prompt_logprobs,
            "and prompt_ids with prompt_logprobs: those of the prompt's tokens, null for the first");
  table.begin_group("Sampling", "The same seed gives the same text.");
  table.add("temperature", config.temperature, "divides the logits; 0 is --greedy").at_least(0).known_as("temp");
  table.add("top_k", config.top_k, "draw from the K most likely tokens; 0: from all").at_least(0);
  table.add("top_p", config.top_p, "draw from the smallest set of tokens with this probability").above(0).at_most(1);
  table.add("greedy", config.greedy, "always take the most likely token");
  table.add("seed", config.seed, "seed of the draws").at_least(0);
  return table;
}

void check_sources(const GenerateConfig& config, Mistakes& mistakes) {
  if (config.checkpoint.load && config.checkpoint.load_hf)
    mistakes.add({"--load", "--load-hf"}, "give one of --load and --load-hf: the model");
  if (!config.checkpoint.load && !config.checkpoint.load_hf)
    mistakes.add({"--load"}, "--load is missing: the directory of the checkpoints; or --load-hf: that of a model");
  if (config.prompt && config.prompts_file)
    mistakes.add({"--prompt", "--prompts-file"}, "give one of --prompt and --prompts-file: what is continued");
  if (!config.prompt && !config.prompts_file)
    mistakes.add({"--prompt"}, "--prompt is missing: the text to continue; or --prompts-file: a file of texts");
  for (const std::string& word : config.stop)
    if (word.empty()) mistakes.add({"--stop"}, "--stop '': the empty text would end every continuation at once");
}

void check_output(const GenerateConfig& config, Mistakes& mistakes) {
  const bool has_objects = config.json || config.prompts_file;
  if (config.logprobs && !has_objects)
    mistakes.add({"--logprobs", "--json"}, "--logprobs needs --json, whose objects have them");
  if (config.prompt_logprobs && !has_objects)
    mistakes.add({"--prompt-logprobs", "--json"}, "--prompt-logprobs needs --json, whose objects have them");
  if (config.top_logprobs > 0 && !config.logprobs && !config.prompt_logprobs)
    mistakes.add({"--top-logprobs", "--logprobs"}, "--top-logprobs {} needs --logprobs or --prompt-logprobs",
                 config.top_logprobs);
}

}  // namespace

GenerateConfig parse_generate(const std::vector<std::string>& args) {
  GenerateConfig config;
  FieldTable table = describe(config);
  Mistakes mistakes;
  const GivenFields given = parse_flags(table, args, {.synonyms = flag_synonyms()}, mistakes);
  check_sources(config, mistakes);
  check_output(config, mistakes);
  check(config.layout, mistakes);
  if (config.greedy && given.contains("temperature") && config.temperature != 0)
    mistakes.add({"--greedy", "--temperature"},
                 "--greedy takes the most likely token, --temperature {} draws: give one", config.temperature);
  const bool draws = !config.greedy && config.temperature > 0;
  const std::string_view alone = config.greedy ? "--greedy" : "--temperature 0";
  if (!draws && config.top_k > 1)
    mistakes.add({"--greedy", "--temperature", "--top-k"}, "{} takes the most likely token, --top-k {} draws: give one",
                 alone, config.top_k);
  if (!draws && given.contains("top_p"))
    mistakes.add({"--greedy", "--temperature", "--top-p"}, "{} takes the most likely token, --top-p {} draws: give one",
                 alone, config.top_p);
  mistakes.throw_if_any("the flags are wrong");
  return config;
}

std::string generate_help(const std::vector<std::string>& args) {
  GenerateConfig defaults;
  const FieldTable table = describe(defaults);
  return help_text({.command = "megatron generate", .introduction = std::string(kGenerateIntroduction), .table = table},
                   args);
}

}  // namespace megatron
