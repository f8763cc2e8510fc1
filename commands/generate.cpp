#include "commands/generate.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "commands/evaluation_ranks.h"
#include "commands/exit_code.h"
#include "commands/generate_config.h"
#include "commands/generated_text.h"
#include "commands/launch/job.h"
#include "commands/prompts.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/inference/generator.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "megatron/training/training_data.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

using ResultJson = nlohmann::ordered_json;

void require_trained_tokenizer(FileSystem& files, const GenerateConfig& generate, const PretrainConfig& config,
                               const Tokenizer& tokenizer) {
  const std::string checkpoint = Checkpointer::stored_path(files, generate.checkpoint);
  const std::string arguments = Checkpointer::stored_arguments(files, generate.checkpoint);
  const auto other = other_tokenizer(files, checkpoint, arguments,
                                     tokenizer_record(config.tokenizer.tokenizer_type, tokenizer), config);
  require<CheckpointError>(
      !other.has_value(),
      "[checkpoint] {} {}. Leave --vocab-file, --merge-file and --tokenizer-model out, or give the "
      "files of the training.",
      checkpoint, other.value_or(""));
}

/// The configuration of the model, whose tokenizer the flags may name.
PretrainConfig named_config(FileSystem& files, const GenerateConfig& generate, const ModelFamily& family) {
  PretrainConfig config = config_to_evaluate(files, generate.checkpoint, family);
  if (generate.vocab_file) config.tokenizer.vocab_file = generate.vocab_file;
  if (generate.merge_file) config.tokenizer.merge_file = generate.merge_file;
  if (generate.tokenizer_model) config.tokenizer.tokenizer_model = generate.tokenizer_model;
  return config;
}

/// Leaves out the model's entries that the tokenizer lacks: they are no text. Tensor-parallel ranks get equal blocks.
void limit_vocabulary(const GenerateConfig& generate, const Tokenizer& tokenizer, PretrainConfig& config) {
  const int64_t num_ranks = generate.layout.tensor_model_parallel_size;
  if (generate.checkpoint.load_hf) {
    TransformerConfig& network = config.transformer;
    network.vocab_size = std::min(network.vocab_size, tokenizer.vocab_size());
    network.padded_vocab_size = padded_vocab_size(network.padded_vocab_size, 1, num_ranks);
  } else {
    if (num_ranks > 1) config.parallel.tensor_model_parallel_size = num_ranks;
    config.tokenizer.vocab_size.reset();
    set_vocab_size(config, tokenizer.vocab_size());
  }
}

/// The frequencies of some rotary embeddings follow the length of the text, so that one model serves one text.
void require_same_model_for_all(const TransformerConfig& network, size_t num_prompts) {
  require<NotSupported>(
      num_prompts == 1 || (!network.dynamic_rope_factor && network.longrope_long_factor.empty()),
      "[generate] the rope type of this model (dynamic, longrope) depends on the length of a text, so "
      "that several prompts cannot share its tables. Give one with --prompt.");
}

GenerateOptions options_of(const GenerateConfig& generate, const Tokenizer& tokenizer) {
  GenerateOptions options{.max_new_tokens = generate.num_tokens,
                          .batch_size = generate.batch_size,
                          .sampling = {.temperature = generate.greedy ? 0 : generate.temperature,
                                       .top_k = generate.top_k,
                                       .top_p = generate.top_p},
                          .seed = static_cast<uint64_t>(generate.seed),
                          .scores_tokens = generate.logprobs,
                          .scores_prompt = generate.prompt_logprobs,
                          .num_top = generate.top_logprobs};
  if (!generate.ignore_eod) options.stop_token = tokenizer.eod();
  return options;
}

/// Prints continuations, in the order of the prompts.
class ContinuationWriter {
 public:
  ContinuationWriter(const GenerateConfig& config, const Tokenizer& tokenizer, const std::vector<Prompt>& prompts,
                     std::ostream& out)
      : config_(config), prompts_(prompts), has_objects_(config.json || config.prompts_file), out_(out) {
    for (const Prompt& prompt : prompts) texts_.emplace_back(tokenizer, prompt.ids, config.stop);
    lines_.resize(prompts.size());
  }

  /// @return false at a stop word.
  bool take(int64_t prompt, TokenId id) {
    GeneratedText& text = texts_[static_cast<size_t>(prompt)];
    const bool ends = text.add(id);
    if (!has_objects_) print_up_to(ends ? text.text().size() : text.num_settled());
    return !ends;
  }

  void end(int64_t prompt, const Continuation& continuation) {
    const auto number = static_cast<size_t>(prompt);
    if (!has_objects_) {
      print_up_to(texts_[number].text().size());
      out_ << std::endl;
      return;
    }
    lines_[number] = object_of(number, continuation).dump(-1, ' ', false, ResultJson::error_handler_t::replace);
    for (; num_printed_ < lines_.size() && !lines_[num_printed_].empty(); ++num_printed_)
      out_ << std::exchange(lines_[num_printed_], {}) << std::endl;
  }

 private:
  /// Prints the prompt, and the first `size` bytes of what follows it, as far as they are not there.
  void print_up_to(size_t size) {
    if (!has_prompt_) out_ << prompts_[0].text;
    has_prompt_ = true;
    out_ << texts_[0].text().substr(num_printed_, size - num_printed_) << std::flush;
    num_printed_ = size;
  }

  ResultJson object_of(size_t number, const Continuation& continuation) const {
    ResultJson object = {
        {"prompt", prompts_[number].text}, {"text", texts_[number].text()}, {"ids", ResultJson::array()}};
    for (const ScoredToken& token : continuation.added) object["ids"].push_back(token.id);
    object["finish_reason"] = continuation.reason == FinishReason::kLength ? "length"
                              : continuation.reason == FinishReason::kEod  ? "eod"
                                                                           : "stop";
    if (config_.logprobs) add_scores("", continuation.added, ResultJson::array(), object);
    if (config_.prompt_logprobs) {
      object["prompt_ids"] = prompts_[number].ids;
      add_scores("prompt_", continuation.prompt, ResultJson::array({nullptr}), object);
    }
    return object;
  }

  /// @param first  the values before those of the tokens
  void add_scores(const std::string& prefix, const std::vector<ScoredToken>& tokens, const ResultJson& first,
                  ResultJson& object) const {
    ResultJson values = first, top = first;
    for (const ScoredToken& token : tokens) {
      values.push_back(token.log_prob);
      ResultJson candidates = ResultJson::array();
      for (const TokenLogProb& candidate : token.top)
        candidates.push_back(ResultJson{{"id", candidate.id}, {"logprob", candidate.log_prob}});
      top.push_back(std::move(candidates));
    }
    object[prefix + "logprobs"] = std::move(values);
    if (config_.top_logprobs > 0) object[prefix + "top_logprobs"] = std::move(top);
  }

  const GenerateConfig& config_;
  const std::vector<Prompt>& prompts_;
  bool has_objects_, has_prompt_ = false;
  std::ostream& out_;
  std::vector<GeneratedText> texts_;
  std::vector<std::string> lines_;  // of prompts that have ended, until those before them have
  size_t num_printed_ = 0;          // lines, or bytes of the only text
};

/// Names the continuation that the model's context has cut.
void warn_of_full_context(const Prompt& prompt, const Continuation& continuation, int64_t num_tokens, int64_t context,
                          std::ostream& err) {
  const int64_t added = std::ssize(continuation.added), length = std::ssize(prompt.ids);
  if (continuation.reason != FinishReason::kLength || added >= num_tokens || length + added != context) return;
  err << fmt::format(
      "megatron generate: {}ended after {} of {} tokens: the model's context is {} tokens, {} of them the prompt.\n",
      prompt.line > 0 ? fmt::format("line {}: ", prompt.line) : "", added, num_tokens, context, length);
}

/// The work that all ranks share.
struct GenerateJob {
  GenerateConfig generate;
  std::unique_ptr<Tokenizer> tokenizer;
  PretrainConfig config;  // of config_of_ranks(), with the model
  CommandRanks ranks;
  std::vector<Prompt> prompts;
};

GenerateJob read_job(const GenerateConfig& generate, const ModelFamily& family, const std::vector<std::string>& words,
                     const LaunchEnvironment& launch) {
  PosixFileSystem files;
  GenerateJob job{.generate = generate, .tokenizer = {}, .config = {}, .ranks = {}, .prompts = {}};
  PretrainConfig config = named_config(files, generate, family);
  job.tokenizer = tokenizer_of(config.tokenizer);
  limit_vocabulary(generate, *job.tokenizer, config);
  if (!generate.checkpoint.load_hf) require_trained_tokenizer(files, generate, config, *job.tokenizer);
  TransformerConfig& network = config.transformer;
  job.prompts = read_prompts(generate);
  require_same_model_for_all(network, job.prompts.size());
  encode_prompts(generate, *job.tokenizer, network.max_sequence_length, network.vocab_size, job.prompts);
  network.sequence_length = 0;
  for (const Prompt& prompt : job.prompts)
    network.sequence_length = std::max(network.sequence_length, std::ssize(prompt.ids) + generate.num_tokens);
  network.sequence_length = std::min(network.sequence_length, network.max_sequence_length);
  job.config = config_of_ranks(generate.layout, generate.device, config, launch);
  job.ranks = command_ranks(job.config, launch, words);
  return job;
}

/// Continues the prompts on one rank, which all ranks do alike. The first prints.
void continue_prompts(const GenerateJob& job, const EvaluationRank& rank, std::ostream& out, std::ostream& err) {
  PosixFileSystem files;
  const TransformerConfig& network = job.config.transformer;
  const EvaluatedModel evaluated(files, job.generate.checkpoint, network, job.config.family, rank);
  std::ostream silent(nullptr);
  ContinuationWriter writer(job.generate, *job.tokenizer, job.prompts, rank.is_first() ? out : silent);
  const GenerateHooks hooks{.on_token = [&](int64_t prompt, TokenId id) { return writer.take(prompt, id); },
                            .on_end = [&](int64_t prompt, const Continuation& made) { writer.end(prompt, made); }};
  std::vector<std::vector<TokenId>> ids;
  for (const Prompt& prompt : job.prompts) ids.push_back(prompt.ids);
  const std::vector<Continuation> made = Generator(evaluated.context(), evaluated.model(), evaluated.gpu_ranks())
                                             .generate_all(ids, options_of(job.generate, *job.tokenizer), hooks);
  if (!rank.is_first()) return;
  for (size_t i = 0; i < made.size(); ++i)
    warn_of_full_context(job.prompts[i], made[i], job.generate.num_tokens, network.max_sequence_length, err);
}

}  // namespace

int generate_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
                     const ModelFamily& family) {
  std::optional<GenerateJob> job;
  const int status = run_command("generate", err, [&] {
    if (asks_for_help(args)) return show_text(generate_help(args), out);
    const LaunchEnvironment launch = launch_environment(process_environment());
    std::vector<std::string> words = {"generate"};
    words.insert(words.end(), args.begin(), args.end());
    run_before_meeting(launch, [&] { job = read_job(parse_generate(args), family, words, launch); });
  });
  if (!job) return status;
  return run_on_ranks(job->ranks, err, [&](const OwnRank& own) {
    run_evaluation(job->config, job->ranks, own, err,
                   [&](const EvaluationRank& rank) { continue_prompts(*job, rank, out, err); });
  });
}

}  // namespace megatron
