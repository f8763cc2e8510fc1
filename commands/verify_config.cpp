#include "commands/verify_config.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "commands/exit_code.h"
#include "commands/run_flags.h"
#include "megatron/base/flag_help.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/word_list.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/config/flag_synonyms.h"
#include "megatron/training/config/layouts.h"

namespace megatron {

namespace {

constexpr std::string_view kUsage =
    R"(usage: megatron verify layouts [--layout WORDS]... [flags] [flags of pretrain_gpt]

Trains a few steps of a model on one rank, then on layouts of several ranks (threads of this process) from the same
weights on the same batches, and compares loss, gradient norm, every gradient and every weight in fp64, step by step.
What the layout may change is rounding: how far that goes is measured in eight more runs of one rank, whose weights begin
off by eps. Where a layout departs, the first tensor that does is named, with its rank, step, error and bound.

  megatron verify layouts                                        a small GPT-2, all pairs of ways to split it
  megatron verify layouts --layout "tp=2 pp=2 sp dist-opt" --layout "pp=2 schedule=zb-v dp=2"
  megatron verify layouts --layout "tp=4" --num-layers 2 --hidden-size 64 ... --mock-data    a model of your own

Exit code: 0 all layouts agree with one rank; 1 one departs, or fails; 2 wrong flags. Others as for pretrain_gpt.

Words of a layout:
)";

constexpr std::string_view kModelHelp = R"(
Any flag of pretrain_gpt describes the model, its data and its optimizer, all of it, in place of the built-in one
('megatron pretrain_gpt --help'). Flags of a layout are given as words of --layout. Nothing is logged, evaluated or saved;
flags about that are refused. Memory: 16 bytes a parameter and step beside the trainers.
)";

constexpr std::string_view kGpt2Words =
    "--num-layers 8 --hidden-size 24 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 "
    "--micro-batch-size 1 --global-batch-size 12 --train-iters 100 --lr 1e-3 --lr-decay-style constant "
    "--vocab-size 61 --make-vocab-size-divisible-by 16 --tokenizer-type NullTokenizer --mock-data";
constexpr std::string_view kLlamaWords =
    " --position-embedding-type rope --normalization RMSNorm --disable-bias-linear --swiglu --ffn-hidden-size 48 "
    "--group-query-attention --num-query-groups 2 --untie-embeddings-and-output-weights";

constexpr int64_t kMaxRanks = 4;  // of layouts that nobody asked for
constexpr int64_t kMostSteps = 100;

FieldTable describe(VerifyConfig& config) {
  FieldTable table;
  table.begin_group("What to verify", "Flags of this command.");
  table.add("layout", config.layouts,
            "words of a layout; may be given several times. None: few layouts of up to 4 ranks in which "
            "every two words meet that fit together and the model");
  table.add("num_steps", config.num_steps, "training steps").at_least(1).at_most(kMostSteps);
  table.add("model", config.model, "built-in model: learned positions and tied embeddings, or rotary and untied");
  table.add("help", config.help, "show this text");
  return table;
}

/// The name in "--name=value".
std::string name_in(const std::string& word) { return word.substr(0, word.find('=')); }

/// Words of this command, with all layouts behind one --layout, and words of pretrain_gpt. The words behind one
/// --layout are one layout, in quotes or not.
struct SplitWords {
  std::vector<std::string> own, model;
};
SplitWords split(const std::vector<std::string>& args) {
  SplitWords words;
  std::vector<std::string> layouts;
  for (size_t i = 0; i < args.size();) {
    const std::string name = name_in(args[i]);
    std::vector<std::string> run;  // a flag and what belongs to it
    if (name != args[i] && name == "--layout")
      run = {name, args[i].substr(name.size() + 1)};
    else
      run = {name == "-h" ? "--help" : args[i]};
    for (++i; i < args.size() && !args[i].starts_with("--"); ++i) run.push_back(args[i]);
    if (name == "--layout") {
      layouts.push_back(joined(std::span(run).subspan(1), " "));
      continue;
    }
    const bool is_own = name == "--num-steps" || name == "--model" || run[0] == "--help";
    std::ranges::copy(run, std::back_inserter(is_own ? words.own : words.model));
  }
  if (layouts.empty()) return words;
  words.own.emplace_back("--layout");
  words.own.insert(words.own.end(), layouts.begin(), layouts.end());
  return words;
}

/// Flags of pretrain_gpt that mean something else here, or nothing.
void check_model_words(const std::vector<std::string>& words, Mistakes& mistakes) {
  std::set<std::string> of_runs = run_flags();
  of_runs.insert({"--num-threads", "--no-check-for-nan-in-loss-and-grad", "--distributed-timeout-seconds-after-init"});
  for (const std::string& word : words) {
    const std::string flag = name_in(word);
    if (const auto layout_word = layout_word_of(flag))
      mistakes.add({flag}, "{} is about the layout: say --layout \"{}\"", flag, *layout_word);
    if (flag == "--bf16" || flag == "--fp16" || flag == "--grad-reduce-in-bf16")
      mistakes.add({flag}, "{} rounds so coarsely that a fault would not stand out: leave it out, fp64 is compared",
                   flag);
    if (of_runs.contains(flag))
      mistakes.add({flag},
                   "{}: verify begins with initial weights, takes a few steps, and logs, evaluates and saves "
                   "nothing. Leave it out",
                   flag);
  }
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<std::string> model_words_of(const VerifyConfig& config) {
  std::vector<std::string> words = config.model_words;
  if (words.empty()) {
    words = words_of(kGpt2Words);
    if (config.model == BuiltInModel::kLlama) std::ranges::copy(words_of(kLlamaWords), std::back_inserter(words));
  }
  if (std::ranges::find(words, "--fp64") == words.end()) words.emplace_back("--fp64");
  words.insert(words.end(), {"--eval-iters", "0"});
  return words;
}

/// @throw ConfigError, NotSupported as pretrain_gpt does
PretrainConfig resolve(std::vector<std::string> words, const RankLayout& layout) {
  std::ranges::copy(flags_of(layout), std::back_inserter(words));
  return parse_pretrain_gpt(words, static_cast<int>(layout.num_ranks()));
}

/// What is wrong with a layout, in its words. How pretrain_gpt would share the layers anyhow is no help here.
std::string reason_in_words(const Error& error) {
  const std::regex advice(
      ": (give --num-layers [0-9]+, or )?(leave out [^']* and )?give --pipeline-model-parallel-layout '[^']*'");
  return in_layout_words(
      std::regex_replace(reason_of(error), advice, ": choose pp and vpp whose product divides the layers"));
}

/// Words without flags that words of a layout stand for, and without their values.
std::vector<std::string> without_layout_flags(const std::vector<std::string>& words) {
  std::vector<std::string> rest;
  bool is_kept = true;
  for (const std::string& word : words) {
    if (word.starts_with("--")) is_kept = !layout_word_of(name_in(word));
    if (is_kept) rest.push_back(word);
  }
  return rest;
}

/// Those of all combinations that fit the model.
void add_all(const std::vector<std::string>& words, VerifyPlan& plan) {
  std::vector<RankLayout> fitting;
  for (const RankLayout& layout : rank_layouts(kMaxRanks)) try {
      resolve(words, layout);
      fitting.push_back(layout);
    } catch (const Error&) {
      ++plan.num_misfits;
    }
  for (const RankLayout& layout : pairwise_cover(fitting)) plan.layouts.push_back({layout, resolve(words, layout)});
}

}  // namespace

VerifyConfig parse_verify(const std::vector<std::string>& args) {
  VerifyConfig config;
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    config.help = !args.empty();
    require<ConfigError>(config.help, "what? 'megatron verify layouts' compares layouts of ranks with one rank.");
    return config;
  }
  require<ConfigError>(args[0] == "layouts", "'{}' cannot be verified; 'layouts' can: megatron verify layouts.",
                       args[0]);
  const bool has_stray_word = args.size() > 1 && !args[1].starts_with("-");
  require<ConfigError>(!has_stray_word, "'{}': words of a layout stand behind --layout.",
                       args.size() > 1 ? args[1] : "");
  SplitWords words = split({args.begin() + 1, args.end()});
  FieldTable table = describe(config);
  Mistakes mistakes;
  const GivenFields given = parse_flags(table, words.own, {.synonyms = flag_synonyms()}, mistakes);
  if (config.help) return config;
  for (const std::string& text : config.layouts) parse_rank_layout(text, mistakes);
  check_model_words(words.model, mistakes);
  words.model = without_layout_flags(words.model);
  if (given.contains("model") && !words.model.empty())
    mistakes.add({"--model"}, "--model {} and {} both describe the model: give one",
                 python_text(table.find("model")->get()), words.model[0]);
  config.model_words = std::move(words.model);
  if (mistakes.empty()) return config;
  try {
    resolve(model_words_of(config), {});
  } catch (const Error& error) {
    mistakes.add({}, "{}", reason_of(error));
  }
  mistakes.throw_if_any("the flags are wrong");
  return config;
}

VerifyPlan plan_of(const VerifyConfig& config) {
  const std::vector<std::string> words = model_words_of(config);
  VerifyPlan plan{.one_rank = resolve(words, {}), .layouts = {}};
  Mistakes mistakes;
  if (const auto& iterations = plan.one_rank.training.train_iters; iterations && *iterations < config.num_steps)
    mistakes.add({"--num-steps", "--train-iters"}, "--num-steps {} are more than --train-iters {}: raise that",
                 config.num_steps, *iterations);
  for (const std::string& text : config.layouts) try {
      const RankLayout layout = parse_rank_layout(text, mistakes).value();
      plan.layouts.push_back({layout, resolve(words, layout)});
    } catch (const Error& error) {
      mistakes.add({"--layout"}, "--layout '{}': {}", text, reason_in_words(error));
    }
  mistakes.throw_if_any("the flags are wrong");
  if (config.layouts.empty()) add_all(words, plan);
  return plan;
}

std::string verify_help() {
  VerifyConfig config;
  return std::string(kUsage) + rank_layout_help() + std::string(kModelHelp) + "\n" + help_of(describe(config));
}

}  // namespace megatron
