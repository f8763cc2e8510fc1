#include "commands/eval.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <ostream>

#include "commands/evaluation_ranks.h"
#include "commands/exit_code.h"
#include "commands/launch/job.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/flag_parser.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/dist_checkpointing/safetensors.h"
#include "megatron/training/config/flag_synonyms.h"
#include "megatron/training/training_data.h"

namespace megatron {
namespace {

constexpr std::string_view kTokensSuffix = ".bin";

constexpr std::string_view kEvalIntroduction =
    R"(usage: megatron eval --load DIR | --load-hf DIR  --text FILE | --data-path PREFIX | --token-ids FILE

Prints the mean loss per token and the perplexity of a model on a text, on the documents of a data set
or on tokens, for a text bits per byte too. --load takes the newest checkpoint in a folder, --load-hf a
model in Hugging Face's format.

  megatron eval --load-hf Llama-3.2-1B --text book.txt
  megatron eval --load checkpoints --data-path held_out_text_document --num-sequences 1000

)";

struct EvalConfig {
  CheckpointConfig checkpoint;
  std::optional<std::string> token_ids, text, data_path, logits;
  EvaluationDevice device;
  EvaluationLayout layout;
  std::optional<int64_t> seq_length, num_sequences;
};

FieldTable describe(EvalConfig& config) {
  FieldTable table;
  table.begin_group("Model", "");
  table.add("load", config.checkpoint.load, "directory of checkpoints");
  table.add("ckpt_step", config.checkpoint.ckpt_step, "iteration to load").by_default("the newest").at_least(0);
  table.add("load_hf", config.checkpoint.load_hf, "folder of a model in Hugging Face's format").known_as("hf-path");
  add_fields(table, config.device);
  add_fields(table, config.layout);
  table.begin_group("Data", "");
  table.add("token_ids", config.token_ids, "safetensors file with int64 or int32 tensor input_ids [sequences, tokens]");
  table.add("text", config.text, "text file, cut into sequences of the model's context");
  table.add("data_path", config.data_path,
            "PREFIX of PREFIX.bin and PREFIX.idx of preprocess_data, whose documents are cut like a text each");
  table.add("num_sequences", config.num_sequences, "sequences of --data-path to take, from its first document on")
      .by_default("all")
      .at_least(1);
  table.add("seq_length", config.seq_length, "tokens of a sequence of the text, or of a document")
      .by_default("the model's context, at most 2048")
      .at_least(2);
  table.add("logits", config.logits, "safetensors file to write: fp32 tensor logits [sequences, tokens, vocabulary]");
  return table;
}

/// @throw ConfigError with all mistakes.
EvalConfig parse(const std::vector<std::string>& args) {
  EvalConfig config;
  FieldTable table = describe(config);
  Mistakes mistakes;
  parse_flags(table, args, {.synonyms = flag_synonyms()}, mistakes);
  if (config.checkpoint.load.has_value() == config.checkpoint.load_hf.has_value())
    mistakes.add({"--load", "--load-hf"}, "give one of --load and --load-hf: the model");
  if (config.token_ids.has_value() + config.text.has_value() + config.data_path.has_value() != 1)
    mistakes.add({"--token-ids", "--text", "--data-path"},
                 "give one of --token-ids, --text and --data-path: what the model predicts");
  if (!config.token_ids && config.logits)
    mistakes.add({"--logits"}, "--logits goes with --token-ids alone: other sequences differ in length");
  if (config.token_ids && config.seq_length)
    mistakes.add({"--seq-length", "--token-ids"}, "--seq-length goes with --text and --data-path alone");
  if (!config.data_path && config.num_sequences)
    mistakes.add({"--num-sequences"}, "--num-sequences goes with --data-path alone");
  check(config.layout, mistakes);
  mistakes.throw_if_any("the flags are wrong");
  return config;
}

std::string eval_help(const std::vector<std::string>& args) {
  EvalConfig defaults;
  const FieldTable table = describe(defaults);
  return help_text({.command = "megatron eval", .introduction = std::string(kEvalIntroduction), .table = table}, args);
}

/// Runs of `length` tokens. The first token of each is not predicted.
Sequences cut(const std::vector<TokenId>& tokens, int64_t length) {
  Sequences sequences;
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += static_cast<size_t>(length)) {
    const size_t end = std::min(tokens.size(), begin + static_cast<size_t>(length));
    sequences.emplace_back(tokens.begin() + static_cast<int64_t>(begin), tokens.begin() + static_cast<int64_t>(end));
  }
  return sequences;
}

/// Runs of `length` tokens of each document, at most `most` of them.
Sequences read_documents(std::string prefix, int64_t length, int64_t most) {
  if (prefix.ends_with(kTokensSuffix)) prefix.resize(prefix.size() - kTokensSuffix.size());
  const IndexedDataset dataset(prefix, {});
  Sequences sequences;
  for (int64_t document = 0; document < dataset.num_documents() && std::ssize(sequences) < most; ++document) {
    std::vector<TokenId> tokens;
    for (int64_t part = dataset.document_index(document); part < dataset.document_index(document + 1); ++part)
      for (const int64_t id : dataset.sequence(part)) {
        require<DataError>(id == static_cast<TokenId>(id), "[eval] {}.bin: {} in document {} is no token id.", prefix,
                           id, document);
        tokens.push_back(static_cast<TokenId>(id));
      }
    for (std::vector<TokenId>& sequence : cut(tokens, length))
      if (std::ssize(sequences) < most) sequences.push_back(std::move(sequence));
  }
  return sequences;
}

void write_logits(FileSystem& files, const std::string& path, const std::vector<float>& values, int64_t num_sequences,
                  int64_t vocab_size) {
  const auto bytes = std::as_bytes(std::span(values));
  std::vector<SafetensorsItem> items;
  const int64_t rows = std::ssize(values) / vocab_size;
  items.push_back({"logits",
                   ElementType::kFloat32,
                   {num_sequences, num_sequences > 0 ? rows / num_sequences : 0, vocab_size},
                   make_owned_source({bytes.begin(), bytes.end()})});
  const auto file = files.open_for_writing(path, WriteMode::kTruncate);
  write_safetensors(*file, std::move(items), {{"format", "pt"}});
  file->sync();
  file->close();
}

void print(const NextTokenLoss& loss, std::optional<int64_t> text_bytes, std::ostream& out) {
  out << fmt::format("tokens {}\nloss {:.8f}\nperplexity {:.6f}\n", loss.num_tokens, loss.mean(),
                     std::exp(loss.mean()));
  if (text_bytes)
    out << fmt::format("bits per byte {:.8f}\n", loss.sum / std::numbers::ln2 / static_cast<double>(*text_bytes));
}

/// The work that all ranks share.
struct EvalJob {
  EvalConfig eval;
  PretrainConfig config;  // of config_of_ranks(), with the model
  CommandRanks ranks;
  Sequences sequences;
  std::optional<int64_t> text_bytes = {};
};

EvalJob read_job(const EvalConfig& eval, const ModelFamily& family, const std::vector<std::string>& words,
                 const LaunchEnvironment& launch) {
  PosixFileSystem files;
  PretrainConfig config = config_to_evaluate(files, eval.checkpoint, family);
  TransformerConfig& network = config.transformer;
  EvalJob job{.eval = eval, .config = {}, .ranks = {}, .sequences = {}};
  const int64_t length = eval.seq_length.value_or(std::min<int64_t>(network.max_sequence_length, 2048));
  if (eval.data_path) {
    job.sequences =
        read_documents(*eval.data_path, length, eval.num_sequences.value_or(std::numeric_limits<int64_t>::max()));
  } else if (eval.text) {
    const std::string text = read_file(files, *eval.text);
    job.text_bytes = std::ssize(text);
    job.sequences = cut(tokenizer_of(config.tokenizer)->encode(text), length);
  } else {
    job.sequences = read_token_ids(files, *eval.token_ids);
  }
  network.sequence_length = longest(job.sequences);
  job.config = config_of_ranks(eval.layout, eval.device, config, launch);
  job.ranks = command_ranks(job.config, launch, words);
  return job;
}

/// The work of one rank, of which the first prints.
void evaluate(const EvalJob& job, const EvaluationRank& rank, std::ostream& out) {
  PosixFileSystem files;
  const TransformerConfig& network = job.config.transformer;
  EvaluatedModel model(files, job.eval.checkpoint, network, job.config.family, rank);
  NextTokenLoss loss;
  std::vector<float> all;
  for (const std::vector<TokenId>& sequence : job.sequences) {
    const std::vector<float> logits = model.evaluator().logits(sequence);
    if (!rank.is_first()) continue;
    loss += model.evaluator().loss(sequence, logits);
    if (job.eval.logits) all.insert(all.end(), logits.begin(), logits.end());
  }
  if (!rank.is_first()) return;
  require<DataError>(loss.num_tokens > 0,
                     "[eval] there is no token to predict: a sequence of two tokens or more is needed.");
  if (job.eval.logits) write_logits(files, *job.eval.logits, all, std::ssize(job.sequences), network.vocab_size);
  print(loss, job.text_bytes, out);
}

}  // namespace

int eval_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
                 const ModelFamily& family) {
  std::optional<EvalJob> job;
  const int status = run_command("eval", err, [&] {
    if (asks_for_help(args)) return show_text(eval_help(args), out);
    const LaunchEnvironment launch = launch_environment(process_environment());
    std::vector<std::string> words = {"eval"};
    words.insert(words.end(), args.begin(), args.end());
    run_before_meeting(launch, [&] { job = read_job(parse(args), family, words, launch); });
  });
  if (!job) return status;
  return run_on_ranks(job->ranks, err, [&](const OwnRank& own) {
    run_evaluation(job->config, job->ranks, own, err, [&](const EvaluationRank& rank) { evaluate(*job, rank, out); });
  });
}

}  // namespace megatron
