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
#include "megatron/base/command_help.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/word_list.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/config/flag_synonyms.h"
#include "megatron/training/config/layouts.h"

namespace megatron {

namespace {

constexpr std::string_view kVerifyUsage =
    R"(usage: megatron verify layouts [--layout SETTINGS]... [flags] [flags of pretrain_gpt]

Trains a few steps of a model on one rank, then on layouts of several ranks (threads of this process) from the same
weights on the same batches, and compares loss, gradient norm, every gradient and every weight in fp64, step by step.
A layout may only change rounding; eight more runs of one rank, with initial weights perturbed by eps, measure its effect.
If a layout differs by more, the first such tensor is printed, with its rank, step, error and bound.

  megatron verify layouts                                        a small GPT-2, all pairs of ways to split it
  megatron verify layouts --layout "tp=2 pp=2 sp dist-opt" --layout "pp=2 schedule=zb-v dp=2"
  megatron verify layouts --layout "tp=4" --num-layers 2 --hidden-size 64 ... --mock-data    a model of your own

Exit code: 0 all layouts agree with one rank; 1 one differs, or fails; 2 wrong flags. Others as for pretrain_gpt.

Settings of a layout:
)";

constexpr std::string_view kModelHelp = R"(
Flags of pretrain_gpt replace the built-in model, its data and its optimizer completely ('megatron pretrain_gpt --help').
Give the layout by --layout, not by flags of pretrain_gpt. Nothing is logged, evaluated or saved; flags for that are
rejected. Memory: 16 bytes a parameter and step in addition to the trainers.
)";

constexpr std::string_view kGpt2Flags =
    "--num-layers 8 --hidden-size 24 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 "
    "--micro-batch-size 1 --global-batch-size 12 --train-iters 100 --lr 1e-3 --lr-decay-style constant "
    "--vocab-size 61 --make-vocab-size-divisible-by 16 --tokenizer-type NullTokenizer --mock-data";
constexpr std::string_view kLlamaFlags =
    " --position-embedding-type rope --normalization RMSNorm --disable-bias-linear --swiglu --ffn-hidden-size 48 "
    "--group-query-attention --num-query-groups 2 --untie-embeddings-and-output-weights";

constexpr std::string_view kMixtralFlags =
    " --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 32 --moe-router-load-balancing-type aux_loss "
    "--moe-aux-loss-coeff 1e-2";

constexpr int64_t kMaxRanks = 4;  // of the default layouts
constexpr int64_t kMostSteps = 100;

FieldTable describe(VerifyConfig& config) {
  FieldTable table;
  table.begin_group("What to verify", "Flags of this command.");
  table.add("layout", config.layouts,
            "settings of a layout; may be given several times. Default: a few layouts of up to 4 ranks that "
            "cover every valid pair of settings");
  table.add("num_steps", config.num_steps, "training steps").at_least(1).at_most(kMostSteps);
  table.add("model", config.model,
            "built-in model: learned positions and tied embeddings, rotary and untied, or that with experts");
  return table;
}

/// The arguments with all layouts after one --layout. Settings after one --layout are one layout, in quotes or not.
std::vector<std::string> with_layouts_together(const std::vector<std::string>& args) {
  std::vector<std::string> others, layouts;
  for (size_t i = 0; i < args.size();) {
    const std::string name = flag_in(args[i]);
    if (name != "--layout") {
      others.push_back(args[i++]);
      continue;
    }
    std::vector<std::string> settings;
    if (name != args[i]) settings.push_back(args[i].substr(name.size() + 1));
    for (++i; i < args.size() && !args[i].starts_with("--"); ++i) settings.push_back(args[i]);
    layouts.push_back(joined(settings, " "));
  }
  if (layouts.empty()) return others;
  others.emplace_back("--layout");
  others.insert(others.end(), layouts.begin(), layouts.end());
  return others;
}

/// Rejects flags of pretrain_gpt that have another meaning here, or none.
void check_model_arguments(const std::vector<std::string>& arguments, Mistakes& mistakes) {
  std::set<std::string> of_runs = run_flags();
  of_runs.insert({"--num-threads", "--no-check-for-nan-in-loss-and-grad", "--distributed-timeout-seconds-after-init"});
  for (const std::string& argument : arguments) {
    const std::string flag = flag_in(argument);
    if (const auto layout_setting = layout_setting_of(flag))
      mistakes.add({flag}, "{} belongs to the layout: give --layout \"{}\"", flag, *layout_setting);
    if (flag == "--bf16" || flag == "--fp16" || flag == "--grad-reduce-in-bf16")
      mistakes.add(
          {flag}, "{} rounds so coarsely that it would hide a fault: leave it out, layouts are compared in fp64", flag);
    if (of_runs.contains(flag))
      mistakes.add({flag},
                   "{}: verify trains a few steps from initial weights; it does not log, evaluate or "
                   "save. Leave it out",
                   flag);
  }
}

std::vector<std::string> arguments_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<std::string> model_arguments_of(const VerifyConfig& config) {
  std::vector<std::string> arguments = config.model_arguments;
  if (arguments.empty()) {
    arguments = arguments_of(kGpt2Flags);
    if (config.model != BuiltInModel::kGpt2)
      std::ranges::copy(arguments_of(kLlamaFlags), std::back_inserter(arguments));
    if (config.model == BuiltInModel::kMixtral)
      std::ranges::copy(arguments_of(kMixtralFlags), std::back_inserter(arguments));
  }
  if (std::ranges::find(arguments, "--fp64") == arguments.end()) arguments.emplace_back("--fp64");
  arguments.insert(arguments.end(), {"--eval-iters", "0"});
  return arguments;
}

/// @throw ConfigError, NotSupported as pretrain_gpt does
PretrainConfig resolve(std::vector<std::string> arguments, const RankLayout& layout) {
  std::ranges::copy(flags_of(layout), std::back_inserter(arguments));
  return parse_pretrain_gpt(arguments, static_cast<int>(layout.num_ranks()));
}

/// The error about a layout in its own settings, without pretrain_gpt's advice on other ways to share the layers.
std::string reason_in_settings(const Error& error) {
  const std::regex advice(
      ": (give --num-layers [0-9]+, or )?(leave out [^']* and )?give --pipeline-model-parallel-layout '[^']*'");
  return in_layout_settings(
      std::regex_replace(reason_of(error), advice, ": choose pp and vpp whose product divides the layers"));
}

/// The arguments without the flags that a layout sets, and without their values.
std::vector<std::string> without_layout_flags(const std::vector<std::string>& arguments) {
  std::vector<std::string> rest;
  bool is_kept = true;
  for (const std::string& argument : arguments) {
    if (argument.starts_with("--")) is_kept = !layout_setting_of(flag_in(argument));
    if (is_kept) rest.push_back(argument);
  }
  return rest;
}

/// All combinations that fit the model.
void add_all(const std::vector<std::string>& arguments, VerifyPlan& plan) {
  std::vector<RankLayout> fitting;
  const bool has_experts = plan.one_rank.transformer.moe.has_value();
  for (const RankLayout& layout : rank_layouts(kMaxRanks, has_experts)) try {
      resolve(arguments, layout);
      fitting.push_back(layout);
    } catch (const Error&) {
      ++plan.num_misfits;
    }
  for (const RankLayout& layout : pairwise_cover(fitting)) plan.layouts.push_back({layout, resolve(arguments, layout)});
}

}  // namespace

VerifyConfig parse_verify(const std::vector<std::string>& args) {
  VerifyConfig config;
  require<ConfigError>(!args.empty(),
                       "nothing to verify. 'megatron verify layouts' compares layouts of ranks with one rank.");
  require<ConfigError>(args[0] == "layouts", "'{}' cannot be verified; 'layouts' can: megatron verify layouts.",
                       args[0]);
  const bool has_stray_argument = args.size() > 1 && !args[1].starts_with("-");
  require<ConfigError>(!has_stray_argument, "'{}' is not a flag. Give settings of a layout after --layout.",
                       args.size() > 1 ? args[1] : "");
  FieldTable table = describe(config);
  SplitArguments arguments = split_arguments(table, with_layouts_together({args.begin() + 1, args.end()}));
  Mistakes mistakes;
  const GivenFields given = parse_flags(table, arguments.own, {.synonyms = flag_synonyms()}, mistakes);
  for (const std::string& text : config.layouts) parse_rank_layout(text, mistakes);
  check_model_arguments(arguments.model, mistakes);
  arguments.model = without_layout_flags(arguments.model);
  if (given.contains("model") && !arguments.model.empty())
    mistakes.add({"--model"}, "--model {} and {} both describe the model: give one",
                 python_text(table.find("model")->get()), arguments.model[0]);
  config.model_arguments = std::move(arguments.model);
  if (mistakes.empty()) return config;
  try {
    resolve(model_arguments_of(config), {});
  } catch (const Error& error) {
    mistakes.add({}, "{}", reason_of(error));
  }
  mistakes.throw_if_any("the flags are wrong");
  return config;
}

VerifyPlan plan_of(const VerifyConfig& config) {
  const std::vector<std::string> arguments = model_arguments_of(config);
  VerifyPlan plan{.one_rank = resolve(arguments, {}), .layouts = {}};
  Mistakes mistakes;
  if (const auto& iterations = plan.one_rank.training.train_iters; iterations && *iterations < config.num_steps)
    mistakes.add({"--num-steps", "--train-iters"}, "--num-steps {} exceeds --train-iters {}: raise --train-iters",
                 config.num_steps, *iterations);
  for (const std::string& text : config.layouts) try {
      const RankLayout layout = parse_rank_layout(text, mistakes).value();
      plan.layouts.push_back({layout, resolve(arguments, layout)});
    } catch (const Error& error) {
      mistakes.add({"--layout"}, "--layout '{}': {}", text, reason_in_settings(error));
    }
  mistakes.throw_if_any("the flags are wrong");
  if (config.layouts.empty()) add_all(arguments, plan);
  return plan;
}

std::string verify_help(const std::vector<std::string>& args) {
  VerifyConfig defaults;
  const FieldTable table = describe(defaults);
  return help_text({.command = "megatron verify",
                    .introduction = std::string(kVerifyUsage) + rank_layout_help() + std::string(kModelHelp) + "\n",
                    .table = table,
                    .more_about_word = flags_of_training_about,
                    .about_other_flag = help_of_training_flag},
                   args);
}

}  // namespace megatron
