#include "commands/generate.h"

#include <algorithm>
#include <ostream>
#include <thread>

#include "commands/exit_code.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/flag_parser.h"
#include "megatron/core/device_step_state.h"
#include "megatron/inference/generator.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "megatron/training/config/flag_synonyms.h"
#include "megatron/training/startup/device_choice.h"
#include "megatron/training/training_data.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

constexpr std::string_view kGenerateIntroduction = R"(usage: megatron generate --load DIR --prompt TEXT [flags]

Continues a text with the newest checkpoint in DIR. Model and tokenizer are those of the training
run that saved it.

  megatron generate --load checkpoints --prompt "To be, or" --num-tokens 200 --temperature 0.8 --top-k 40

)";

struct GenerateConfig {
  CheckpointConfig checkpoint;
  std::string prompt;
  int64_t num_tokens = 128, top_k = 0, seed = 1234;
  double temperature = 1.0, top_p = 1.0;
  bool greedy = false, ignore_eod = false;
  std::optional<int64_t> num_threads;
  std::optional<std::string> device;
  std::optional<std::string> vocab_file, merge_file, tokenizer_model;  // for a checkpoint without them
};

FieldTable describe(GenerateConfig& config) {
  FieldTable table;
  table.begin_group("Model", "");
  table.add("load", config.checkpoint.load, "directory of checkpoints");
  table.add("ckpt_step", config.checkpoint.ckpt_step, "iteration to load").by_default("the newest").at_least(0);
  table.add("vocab_file", config.vocab_file, "vocabulary of the training").by_default("the checkpoint's");
  table.add("merge_file", config.merge_file, "merge rules of the training").by_default("the checkpoint's");
  table.add("tokenizer_model", config.tokenizer_model, "tokenizer's file or folder of the training")
      .by_default("as the checkpoint has it");
  table.add("num_threads", config.num_threads, "threads").by_default("one per core").at_least(1).at_most(1024);
  table.add("device", config.device, "device to run on")
      .by_default("a GPU if there is one, else the CPU")
      .one_of({"cpu", "cuda"});
  table.begin_group("Text", "");
  table.add("prompt", config.prompt, "text to continue").known_as("text");
  table.add("num_tokens", config.num_tokens, "maximum number of tokens to add")
      .at_least(1)
      .known_as(
          "tokens train-tokens num-train-tokens total-tokens max-tokens max-new-tokens n-tokens out-seq-length "
          "tokens-to-generate");
  table.add("ignore_eod", config.ignore_eod, "continue after an end-of-document token");
  table.begin_group("Sampling", "The same seed gives the same text.");
  table.add("temperature", config.temperature, "divides the logits; 0 is --greedy").at_least(0).known_as("temp");
  table.add("top_k", config.top_k, "draw from the K most likely tokens; 0: from all").at_least(0);
  table.add("top_p", config.top_p, "draw from the smallest set of tokens with this probability").above(0).at_most(1);
  table.add("greedy", config.greedy, "always take the most likely token");
  table.add("seed", config.seed, "seed of the draws").at_least(0);
  return table;
}

/// @throw ConfigError with all mistakes.
GenerateConfig parse_generate(const std::vector<std::string>& args) {
  GenerateConfig config;
  FieldTable table = describe(config);
  Mistakes mistakes;
  const GivenFields given = parse_flags(table, args, {.synonyms = flag_synonyms()}, mistakes);
  if (!config.checkpoint.load) mistakes.add({"--load"}, "--load is missing: the directory of the checkpoints");
  if (config.prompt.empty()) mistakes.add({"--prompt"}, "--prompt is missing: the text to continue");
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

/// The configuration of the run that wrote the checkpoint, for one rank without training state.
PretrainConfig trained_config(FileSystem& files, const GenerateConfig& generate, const std::string& arguments) {
  PretrainConfig config = arguments_from_json(arguments);
  take_stored_files(files, Checkpointer::stored_path(files, generate.checkpoint), config.tokenizer);
  if (generate.vocab_file) config.tokenizer.vocab_file = generate.vocab_file;
  if (generate.merge_file) config.tokenizer.merge_file = generate.merge_file;
  if (generate.tokenizer_model) config.tokenizer.tokenizer_model = generate.tokenizer_model;
  return config;
}

void require_trained_tokenizer(FileSystem& files, const GenerateConfig& generate, const std::string& arguments,
                               const PretrainConfig& config, const Tokenizer& tokenizer) {
  const std::string checkpoint = Checkpointer::stored_path(files, generate.checkpoint);
  const auto other = other_tokenizer(files, checkpoint, arguments,
                                     tokenizer_record(config.tokenizer.tokenizer_type, tokenizer), config);
  require<CheckpointError>(
      !other.has_value(),
      "[checkpoint] {} {}. Leave --vocab-file, --merge-file and --tokenizer-model out, or give the "
      "files of the training.",
      checkpoint, other.value_or(""));
}

/// The position before a trailing incomplete UTF-8 character.
size_t complete_length(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) break;
    if (byte < 0xC0) continue;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

void run_generate(const GenerateConfig& generate, const ModelFamily& family, std::ostream& out, std::ostream& err) {
  PosixFileSystem files;
  const std::string arguments = Checkpointer::stored_arguments(files, generate.checkpoint);
  PretrainConfig config = trained_config(files, generate, arguments);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(config.tokenizer);
  config.tokenizer.vocab_size.reset();  // entries that the tokenizer lacks are no text
  set_vocab_size(config, tokenizer->vocab_size());
  require_trained_tokenizer(files, generate, arguments, config, *tokenizer);
  const std::vector<TokenId> prompt = tokenizer->encode(generate.prompt);
  config.transformer.sequence_length =
      std::min(config.transformer.max_sequence_length, std::ssize(prompt) + generate.num_tokens);
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const auto num_threads = static_cast<int>(generate.num_threads.value_or(cores));
  const DeviceChoice choice =
      choose_device({.device = generate.device, .dtype = config.transformer.params_dtype, .num_threads = num_threads});
  Device device(choice.kind, {.num_threads = num_threads});
  DeviceStepState step(device);
  const Context ctx{.device = device, .step = step.get(), .key = {}};
  const ProcessGroupCollection groups = ProcessGroupCollection::single();
  const std::unique_ptr<Model> model = family.make_model(
      {.ctx = ctx, .config = config.transformer, .groups = groups, .path = ""}, whole_layout(config.transformer));
  Checkpointer::load_model(files, generate.checkpoint, ctx, *model);

  GenerateOptions options{.max_new_tokens = generate.num_tokens,
                          .sampling = {.temperature = generate.greedy ? 0 : generate.temperature,
                                       .top_k = generate.top_k,
                                       .top_p = generate.top_p},
                          .seed = static_cast<uint64_t>(generate.seed)};
  if (!generate.ignore_eod) options.stop_token = tokenizer->eod();
  std::string pending = generate.prompt;  // later also the bytes of an incomplete character
  std::vector<TokenId> ids = prompt;
  size_t num_decoded = tokenizer->decode(ids).size();
  const std::vector<TokenId> added = Generator(ctx, *model).generate(prompt, options, [&](TokenId id) {
    // A token's text may depend on the tokens before it, such as the space between two numbers.
    ids.push_back(id);
    const std::string text = tokenizer->decode(ids);
    pending += text.substr(num_decoded);
    num_decoded = text.size();
    const size_t length = complete_length(pending);
    out << pending.substr(0, length) << std::flush;
    pending.erase(0, length);
  });
  out << pending << std::endl;
  const int64_t most = config.transformer.max_sequence_length;
  if (std::ssize(added) < generate.num_tokens && std::ssize(prompt) + std::ssize(added) == most)
    err << fmt::format(
        "megatron generate: ended after {} of {} tokens: the model's context is {} tokens, {} of them the prompt.\n",
        added.size(), generate.num_tokens, most, prompt.size());
}

}  // namespace

int generate_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
                     const ModelFamily& family) {
  return run_command("generate", err, [&] {
    if (asks_for_help(args)) return show_text(generate_help(args), out);
    run_generate(parse_generate(args), family, out, err);
  });
}

}  // namespace megatron
