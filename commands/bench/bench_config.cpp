#include "commands/bench/bench_config.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>

#include "commands/build_commit.h"
#include "commands/exit_code.h"
#include "commands/run_flags.h"
#include "megatron/base/command_help.h"
#include "megatron/base/flag_parser.h"
#include "megatron/bench/device_facts.h"
#include "megatron/tokenizers/tokenizer_factory.h"
#include "megatron/training/config/flag_synonyms.h"
#include "megatron/training/training_data.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

constexpr std::string_view kUsage =
    R"(usage: megatron bench WHAT [flags] [flags of pretrain_gpt]

Measures how fast this machine could train a model, and how close a training step comes to that.

  gemm       the matmuls of the linear layers alone: forward, gradient of the input, gradient of the weight into fp32
  attention  attention alone, forward and backward
  ops        memory-bound ops: norms, activations, positions, residuals, embedding, loss, optimizer. For each the
             fraction of a copy's bandwidth, if it moves each operand once; on a GPU compared with the same op of
             Transformer Engine's C library, if that is installed
  comm       all-reduce, all-gather, reduce-scatter and send between ranks, by size
  step       whole training steps on random tokens: tokens/s, TFLOP/s, share of the peak, joules; and percent of the
             kernel ceiling: the time of all the kernels above at their best / the time of a step

  megatron bench gemm                                                        GPT-2 124M, one sequence of 1024 tokens
  megatron bench gemm --shapes 4096,4096,11008 512,768,3072 --bf16           matmuls [m, k] x [n, k]^T
  megatron bench step --num-layers 6 --hidden-size 384 --num-attention-heads 6 --seq-length 256 --micro-batch-size 8
  megatron bench step --bf16 --tensor-model-parallel-size 2 --nproc-per-node 2 --json results.jsonl
  megatron bench comm --nproc-per-node 4                                     mpirun -n 4 megatron bench comm

Nothing else should run meanwhile. A kernel alone is timed with alternating operands that exceed the caches. TFLOP/s are
counted in two ways: as in Megatron's log line (6 operations per weight of a matrix and token, attention over the causal
half), and as 6 N + attention (N all parameters, attention over the whole square).

Any flag of pretrain_gpt describes model, batch, precision and layout ('megatron pretrain_gpt --help'). Defaults:
)";

constexpr std::string_view kDefaults =
    R"(  GPT-2 124M, without flags for the size of the model: --num-layers 12 --hidden-size 768
  --num-attention-heads 12 --seq-length 1024; a vocabulary of 50257; --micro-batch-size 1; --lr 1e-4;
  --max-position-embeddings equal to --seq-length; step: random tokens from a temporary file.
Nothing is evaluated or saved; flags for that are rejected.
)";

FieldTable describe(BenchConfig& config) {
  FieldTable table;
  table.begin_group("Measurement", "Flags of this command.");
  table.add("json", config.json, "append the results to this file, one JSON object a line");
  table.add("name", config.name, "name of the case in the results");
  table.add("commit", config.commit, "commit to write to the results; default: the commit of this build");
  table.add("repeats", config.repeats, "calls of each kernel, or of each operation of comm, at most").at_least(1);
  table.add("seconds", config.seconds, "time limit for the calls of one kernel; at least three are made").above(0);
  table.add("warm_cache", config.warm_cache, "leave the operands of kernels in the caches");
  table.begin_group("gemm", "");
  table.add("shapes", config.shapes, "matmuls instead of a model's: M,N,K of [M, K] x [N, K]^T");
  table.add("tune", config.tune,
            "on a GPU: measure the library's algorithms for each matmul of a training step, or of --shapes, under "
            "sustained load (--seconds each, alternating, three times), and keep the fastest in the file of "
            "--matmul-choices, or benchmarks/tuned/GPU.json, where training finds them");
  table.begin_group("ops", "");
  table.add("transformer_engine", config.transformer_engine,
            "on a GPU: libtransformer_engine.so, to measure its ops on the same inputs for comparison; default: "
            "where the loader finds it (LD_LIBRARY_PATH)");
  table.begin_group("comm", "");
  table.add("sizes", config.sizes, "bytes of the whole buffer; default 1 KiB to 64 MiB").at_least(1).in("bytes");
  table.begin_group("step", "");
  table.add("warm_up", config.warm_up, "steps before the measured steps").at_least(1).in("steps");
  table.add("steps", config.steps, "measured steps; the median counts").at_least(1).in("steps");
  table
      .add("launch_time", config.launch_time,
           "start of the command ($(date +%s.%N)), from which the time to the first step is measured; default: "
           "the start of this program")
      .above(0)
      .in("seconds since 1970");
  table.add_on("ceiling", config.ceiling, "also measure the kernels of a step alone");
  return table;
}

bool has_flag(const std::vector<std::string>& arguments, std::initializer_list<std::string_view> flags) {
  return std::ranges::any_of(arguments, [&](const std::string& argument) {
    return std::ranges::find(flags, std::string_view(flag_in(argument))) != flags.end();
  });
}

std::string value_of(const std::vector<std::string>& arguments, std::string_view flag) {
  for (size_t i = arguments.size(); i-- > 0;) {
    if (flag_in(arguments[i]) != flag) continue;
    if (arguments[i].size() > flag.size()) return arguments[i].substr(flag.size() + 1);
    return i + 1 < arguments.size() ? arguments[i + 1] : "";
  }
  return "";
}

/// Rejects flags that belong to other kinds of measurement: the title of their group is the kind.
void check_kind(const BenchConfig& config, const FieldTable& table, const GivenFields& given, Mistakes& mistakes) {
  for (const FieldGroup& group : table.groups()) {
    const bool is_of_a_kind =
        std::ranges::any_of(names_of_enum(BenchKind{}), [&](const auto& kind) { return kind.second == group.title; });
    if (!is_of_a_kind || group.title == name_of(config.kind)) continue;
    for (const Field& field : group.fields)
      if (given.contains(field.name))
        mistakes.add({field.spelling()}, "{} belongs to 'bench {}', this is 'bench {}'", field.spelling(), group.title,
                     name_of(config.kind));
  }
}

void check_step_arguments(const std::vector<std::string>& arguments, Mistakes& mistakes) {
  const std::set<std::string> of_runs = run_flags();
  for (const std::string& argument : arguments) {
    const std::string flag = flag_in(argument);
    if (of_runs.contains(flag))
      mistakes.add({flag}, "{}: bench only trains a few steps; it does not log, evaluate or save. Leave it out", flag);
  }
  if (has_flag(arguments, {"--train-iters", "--train-samples"}))
    mistakes.add({"--train-iters"},
                 "--train-iters, --train-samples: bench step trains --warm-up and --steps steps. Give those");
}

std::optional<LinearShape> parse_shape(const std::string& text) {
  LinearShape shape{.name = text};
  const char *at = text.data(), *end = at + text.size();
  for (int64_t* size : {&shape.m, &shape.n, &shape.k}) {
    const auto [next, error] = std::from_chars(at, end, *size);
    if (error != std::errc() || *size < 1 || *size > static_cast<int64_t>(kLargestCount)) return std::nullopt;
    const bool is_last = size == &shape.k;
    if (is_last ? next != end : next == end || *next != ',') return std::nullopt;
    at = next + 1;
  }
  return shape;
}

}  // namespace

std::string_view name_of(BenchKind kind) {
  for (const auto& [named, name] : names_of_enum(kind))
    if (named == kind) return name;
  return "";
}

bool names_data(const std::vector<std::string>& arguments) {
  return has_flag(
      arguments, {"--mock-data", "--data-path", "--train-data-path", "--data-args-path", "--per-split-data-args-path"});
}

std::vector<std::string> arguments_of(const BenchConfig& config) {
  const std::vector<std::string>& given = config.model_arguments;
  std::vector<std::string> arguments;
  const auto add = [&](std::initializer_list<std::string_view> unless, std::initializer_list<const char*> more) {
    if (!has_flag(given, unless)) arguments.insert(arguments.end(), more.begin(), more.end());
  };
  const bool needs_no_model = config.kind == BenchKind::kComm || !config.shapes.empty();
  const bool has_model = has_flag(given, {"--num-layers", "--hidden-size", "--num-attention-heads"});
  if (needs_no_model)
    arguments = {"--num-layers", "1", "--hidden-size", "64", "--num-attention-heads", "1", "--seq-length", "64"};
  else if (!has_model)
    arguments = {"--num-layers", "12", "--hidden-size", "768", "--num-attention-heads", "12"};
  if (!needs_no_model && !has_model) add({"--seq-length"}, {"--seq-length", "1024"});
  std::vector<std::string> all = arguments;
  all.insert(all.end(), given.begin(), given.end());
  if (const std::string s = value_of(all, "--seq-length"); !s.empty())
    add({"--max-position-embeddings"}, {"--max-position-embeddings", s.c_str()});
  const std::string steps = std::to_string(config.tune ? 1 : config.warm_up + config.steps);
  add({}, {"--train-iters", steps.c_str(), "--eval-iters", "0"});
  add({"--lr"}, {"--lr", "1e-4"});
  add({"--micro-batch-size"}, {"--micro-batch-size", "1"});
  add({"--tokenizer-type", "--vocab-file", "--tokenizer-model"}, {"--tokenizer-type", "NullTokenizer"});
  if (!has_flag(given, {"--tokenizer-type", "--vocab-file", "--tokenizer-model"}))
    add({"--vocab-size"}, {"--vocab-size", "50256"});
  if (!names_data(given)) arguments.emplace_back("--mock-data");
  arguments.insert(arguments.end(), given.begin(), given.end());
  return arguments;
}

PretrainConfig pretrain_config_of(const BenchConfig& config, int world_size) {
  PretrainConfig result = parse_pretrain_gpt(arguments_of(config), world_size);
  set_vocab_size(result, tokenizer_of(result.tokenizer)->vocab_size());
  return result;
}

std::vector<LinearShape> linear_shapes_of(const BenchConfig& config) {
  std::vector<LinearShape> shapes;
  Mistakes mistakes;
  for (const std::string& text : config.shapes) {
    if (const auto shape = parse_shape(text))
      shapes.push_back(*shape);
    else
      mistakes.add({"--shapes"}, "--shapes {}: a matmul is three positive whole numbers M,N,K, such as 512,768,3072",
                   text);
  }
  mistakes.throw_if_any("the flags are wrong");
  return shapes;
}

std::vector<int64_t> message_bytes_of(const BenchConfig& config) {
  if (!config.sizes.empty()) return config.sizes;
  std::vector<int64_t> sizes;
  for (int64_t bytes = 1024; bytes <= int64_t{64} << 20; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

MeasureOptions measure_options_of(const BenchConfig& config, int64_t cache_bytes) {
  return {.repeats = config.repeats,
          .seconds = config.seconds,
          .rotation_bytes = config.warm_cache ? 0 : rotation_bytes_for(cache_bytes)};
}

BenchConfig parse_bench(const std::vector<std::string>& args, int world_size) {
  BenchConfig config;
  config.commit = build_commit();
  require<ConfigError>(
      !args.empty(),
      "nothing to measure. 'megatron bench step' measures training steps; also gemm, attention, ops, comm.");
  const auto kinds = names_of_enum(BenchKind{});
  const auto* found =
      std::ranges::find(kinds, std::string_view(args[0]), &std::pair<BenchKind, std::string_view>::second);
  require<ConfigError>(found != kinds.end(), "'{}' cannot be measured; gemm, attention, ops, comm and step can.",
                       args[0]);
  config.kind = found->first;
  FieldTable table = describe(config);
  const SplitArguments arguments = split_arguments(table, {args.begin() + 1, args.end()});
  Mistakes mistakes;
  const GivenFields given = parse_flags(table, arguments.own, {.synonyms = flag_synonyms()}, mistakes);
  config.model_arguments = arguments.model;
  check_kind(config, table, given, mistakes);
  check_step_arguments(arguments.model, mistakes);
  const auto collect = [&](auto&& check) {
    try {
      check();
    } catch (const Error& error) {
      mistakes.add({}, "{}", reason_of(error));
    }
  };
  if (config.kind == BenchKind::kGemm) collect([&] { linear_shapes_of(config); });
  collect([&] {
    require<ConfigError>(!pretrain_config_of(config, world_size).parallel.hybrid_context_parallel,
                         "--hybrid-context-parallel: bench measures sequences of one length. Leave it out, and give "
                         "--context-parallel-size");
  });
  mistakes.throw_if_any("the flags are wrong");
  return config;
}

std::string bench_help(const std::vector<std::string>& args) {
  BenchConfig defaults;
  const FieldTable table = describe(defaults);
  return help_text({.command = "megatron bench",
                    .introduction = std::string(kUsage) + std::string(kDefaults) + "\n",
                    .table = table,
                    .more_about_word = flags_of_training_about,
                    .about_other_flag = help_of_training_flag},
                   args);
}

}  // namespace megatron
