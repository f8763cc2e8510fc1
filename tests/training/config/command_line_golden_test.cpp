// Megatron's command line, flag by flag and case by case: what its own parser and validation did.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

#include "megatron/training/config/fields.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/config/unsupported_flags.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;
using ::testing::HasSubstr;

// We differ here on purpose (docs/differences.md says why); for the rounding, argparse takes the positive flag's
// default.
const std::set<std::string> kOtherDefaults{"calculate_per_token_loss", "tokenizer_type", "exit_signal",
                                           "attention_backend", "yarn_correction_range_round_to_int"};
const std::set<std::pair<std::string, std::string>> kOurChoices{{"tokenizer_type", "ByteLevelTokenizer"},
                                                                {"tokenizer_type", "CharTokenizer"},
                                                                {"tiktoken_pattern", "r50k"},
                                                                {"tiktoken_pattern", "cl100k"},
                                                                {"tiktoken_pattern", "o200k"},
                                                                {"tiktoken_pattern", "llama3"},
                                                                {"main_params_dtype", "bf16"}};

std::map<std::string, Field> fields_by_flag() {
  static PretrainConfig config;
  std::map<std::string, Field> fields;
  describe(config).for_each([&](const Field& field) {
    for (const std::string& flag : field.flags) fields.emplace(flag, field);
    for (const std::string& flag : field.off_flags) fields.emplace(flag, field);
  });
  return fields;
}

Json json_of(const FieldValue& value) {
  return std::visit(
      [](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>)
          return nullptr;
        else
          return held;
      },
      value);
}

// Python's None, False, 0-length lists and 0 of a switch all say that nothing is there.
bool same(const Json& ours, const Json& golden) {
  const auto nothing = [](const Json& json) {
    return json.is_null() || json == false || (json.is_array() && json.empty());
  };
  return ours == golden || (nothing(ours) && nothing(golden));
}

TEST(CommandLine, KnowsEveryFlagOfMegatronOrRefusesItByName) {
  const std::map<std::string, Field> fields = fields_by_flag();
  const RefusedFlags refused = refused_flags();
  int here = 0, not_here = 0;
  for (const Json& flag : testing::golden_json("training/cli_flags.json", "flags")) {
    for (const std::string name : flag["names"]) {
      if (name == "-h" || name == "--help") continue;
      EXPECT_NE(fields.contains(name), refused.contains(name)) << name << " is in both tables or in none";
      fields.contains(name) ? ++here : ++not_here;
    }
  }
  std::cout << "spellings of Megatron's flags: " << here << " here, " << not_here << " not here yet\n";
  EXPECT_GT(here, 0);
}

TEST(CommandLine, HasMegatronsDefaultsKindsAndChoices) {
  const std::map<std::string, Field> fields = fields_by_flag();
  for (const Json& flag : testing::golden_json("training/cli_flags.json", "flags")) {
    const auto found = fields.find(flag["names"][0]);
    if (found == fields.end()) continue;
    const Field& field = found->second;
    SCOPED_TRACE(flag.dump());
    EXPECT_TRUE(kOtherDefaults.contains(field.name) || same(json_of(field.get()), flag["default"]))
        << json_of(field.get());
    const std::string kind = flag["kind"];
    EXPECT_EQ(field.kind == WordKind::kSwitch, kind == "StoreTrue" || kind == "StoreFalse");
    const std::vector<std::string>& spellings = kind == "StoreFalse" ? field.off_flags : field.flags;
    EXPECT_THAT(spellings, ::testing::Contains(found->first));
    const bool has_length = flag["nargs"].is_number() && flag["nargs"] != 0;
    EXPECT_EQ(field.is_list, flag["nargs"] == "+" || flag["nargs"] == "*" || has_length);
    EXPECT_EQ(field.min_words, flag["nargs"] == "*" ? 0u : has_length ? flag["nargs"].get<size_t>() : 1u);
    if (!flag["choices"].is_array() || field.kind != WordKind::kText) continue;
    std::set<std::string> ours(field.choices.begin(), field.choices.end());
    ours.insert(field.later_choices.begin(), field.later_choices.end());
    for (const auto& [name, choice] : kOurChoices)
      if (name == field.name) ours.erase(choice);
    const auto theirs = flag["choices"].get<std::set<std::string>>();
    for (const auto& [alias, choice] : field.choice_aliases)
      if (theirs.contains(alias)) ours.insert(alias);
    EXPECT_EQ(ours, theirs);
  }
}

// One text per rule of the golden cases that this version can break; the others are about what it does not have yet.
const std::map<std::string, std::string> kRuleTexts{
    {"number of layers is required", "--num-layers is required"},
    {"hidden size is required", "--hidden-size is required"},
    {"number of heads is required", "--num-attention-heads is required"},
    {"max position embeddings is required", "--max-position-embeddings is required"},
    {"micro batch size is required", "--micro-batch-size is required"},
    {"a sequence length is required", "--seq-length is required"},
    {"num-layers and encoder-num-layers exclude each other", "two names of one setting"},
    {"seq-length and encoder-seq-length exclude each other", "two names of one setting"},
    {"positions must cover the sequence length", "is above --max-position-embeddings"},
    {"positions must cover the decoder sequence length", "--decoder-seq-length 33 is above"},
    {"hidden size must divide by heads when head width is not given", "does not divide by --num-attention-heads 5"},
    {"old flag batch-size", "give --micro-batch-size"},
    {"old flag warmup", "give --lr-warmup-fraction"},
    {"old flag model-parallel-size", "give --tensor-model-parallel-size"},
    {"unknown flag", "there is no such flag"},
    {"no abbreviations of flags", "did you mean --num-layers?"},
    {"not an integer", "must be a whole number"},
    {"not one of the choices", "must be one of"},
    {"micro batch size must be positive", "--micro-batch-size 0: must be at least 1"},
    {"global batch size must be positive", "--global-batch-size 0: must be at least 1"},
    {"global batch must divide by micro batch times data parallel size", "does not divide by micro-batch size"},
    {"evaluation batch must divide by evaluation micro batch times data parallel size", "--eval-global-batch-size 3"},
    {"world size must divide by the product of the model-parallel sizes", "not divide by tensor"},
    {"sequence must divide by twice the context-parallel size", "does not divide by 2 * --context-parallel-size"},
    {"layers must divide by pipeline stages", "do not divide by 3 stages (--pipeline-model-parallel-size 3)"},
    {"layers of a stage must divide by layers of a virtual stage", "--num-layers-per-virtual-pipeline-stage 3"},
    {"one way to name virtual stages", "say the same twice"},
    {"interleaving without overlap needs more than 2 stages", "need --pipeline-model-parallel-size 3 or more"},
    {"interleaving needs pipeline stages", "need --pipeline-model-parallel-size 2 or more"},
    {"heads must divide by tensor-parallel size", "--num-attention-heads 1 does not divide by --tensor"},
    {"query groups against tensor-parallel size", "must be a multiple or a divisor"},
    {"expert parallelism needs experts", "--expert-model-parallel-size 2 needs a mixture of experts"},
    {"experts must divide by expert-parallel size", "--num-experts 3 does not divide by --expert-model-parallel-size"},
    {"top-1 with softmax needs pre-softmax", "give --moe-router-pre-softmax or"},
    {"expert bias needs sigmoid scores", "--moe-router-enable-expert-bias needs --moe-router-score-function sigmoid"},
    {"experts must divide by router groups", "--num-experts 4 does not divide by --moe-router-num-groups 3"},
    {"group top-k above number of groups", "--moe-router-group-topk 3 is above --moe-router-num-groups 2"},
    {"padding to capacity needs a capacity factor", "needs --moe-expert-capacity-factor"},
    {"capacity factor does not go with sinkhorn", "--moe-expert-capacity-factor 1 does not go with"},
    {"as many coefficients as load-balancing types", "has 2 values and --moe-aux-loss-coeff has 1"},
    {"layer pattern must have one entry per layer", "--moe-layer-freq lists 3 layers, --num-layers is 4"},
    {"iterations and samples exclude each other", "exclude each other: give one length"},
    {"iteration-based run with sample-based decay", "--lr-decay-samples does not go with --train-iters"},
    {"iteration-based run with sample-based warm-up", "--lr-warmup-samples does not go with --train-iters"},
    {"sample-based run with iteration-based decay", "--lr-decay-iters does not go with --train-samples"},
    {"sample-based run with iteration-based warm-up", "--lr-warmup-iters does not go with --train-samples"},
    {"fraction and iterations of warm-up exclude each other", "--lr-warmup-fraction 0.1 excludes"},
    {"fraction and samples of warm-up exclude each other", "--lr-warmup-fraction 0.1 excludes"},
    {"minimum above maximum learning rate", "is below the lowest"},
    {"constant weight decay takes no start or end", "go with --weight-decay-incr-style linear or cosine"},
    {"growing weight decay needs start and end", "need both --start-weight-decay and --end-weight-decay"},
    {"override and use-checkpoint exclude each other", "one side's schedule wins"},
    {"one half precision at a time", "exclude each other: weights have one precision"},
    {"fp32 residual needs fp16 or bf16", "--fp32-residual-connection needs"},
    {"fp16 cross entropy needs fp16", "--fp16-lm-cross-entropy needs --fp16"},
    {"parameter-gather overlap needs the distributed optimizer", "needs --use-distributed-optimizer"},
    {"parameter-gather overlap needs gradient-reduce overlap", "needs --overlap-grad-reduce"},
    {"saving needs an interval", "--save needs --save-interval"},
    {"save interval must be positive", "--save-interval 0: must be at least 1"},
    {"retain interval must be a multiple of save interval", "is not a multiple of --save-interval"},
    {"memory interval must be a multiple of log interval", "is not a multiple of --log-interval"},
    {"one activation at a time", "2 activations are given"},
    {"multi-token prediction needs rope or no positions", "--mtp-num-layers needs --position-embedding-type rope"},
    {"latent attention excludes grouped queries", "and --group-query-attention exclude each other"},
    {"latent attention excludes interleaved rotary embedding", "and --rotary-interleaved exclude each other"},
    {"rope type yarn without latent attention", "--rope-type yarn needs --multi-latent-attention"},
    {"old flag no-position-embedding", "--no-position-embedding goes with rope only"},
    {"full recompute needs method and number of layers", "full needs --recompute-method"},
    {"selective recompute takes no method", "go with --recompute-granularity full only"},
    {"override of the iteration excludes finetune", "--finetune exclude each other"},
    {"activation offload excludes pipeline stages",
     "--pipeline-model-parallel-size 2 exclude each other: the first layers"},
    {"offload fewer layers than there are", "--cpu-offloading-num-layers 4 must be below --num-layers 4"},
    {"tensor-parallel overlap needs sequence parallelism", "--tp-comm-overlap needs --sequence-parallel and"},
    {"main parameters from a checkpoint need no-load-optim", "--load-main-params-from-ckpt needs --no-load-optim"},
    {"one data source at most", "2 data sources are given"},
    {"step schedule and global batch exclude each other", "exclude each other: give one batch size"},
    {"first threshold must be 0", "the first threshold must be 0"},
    {"thresholds must increase", "thresholds must increase"},
    {"entries are threshold:batch", "'640' is not TOKENS:BATCH"},
    {"at least one thread", "--num-dataset-builder-threads 0: must be at least 1"},
    {"squared ReLU with biases and activation fusion", "--squared-relu with biases needs"},
    {"the window is one word with a comma", "must be one word of two numbers"},
    {"this negative flag has only the --no- spelling", "did you mean --no-bias-gelu-fusion?"},
    {"evaluation batch (defaults to the global batch) must divide", "--eval-global-batch-size 10"},
    {"WSD needs its decay length", "--lr-decay-style WSD needs the length"},
    {"neither iterations nor samples", "--train-iters or --train-samples is required"},
    {"warm-up must be shorter than decay", "the warm-up must be shorter"},
    {"initial warm-up rate above the maximum", "warm-up starts at 0.002"},
    {"a value that starts with a minus and has an exponent reads as a flag", "the lowest learning rate -1e-05"},
    {"negative minimum rate", "(--min-lr) is negative"},
    {"negative weight decay", "weight decay -0.1 (--weight-decay) is negative"},
    {"end of weight decay below its start", "below its start 0.2"},
};
// Refused by Megatron because of what it lacks; nothing here depends on one kind of GPU, every optimizer's state can be
// kept in host memory, and gathers of weights overlap without interleaving.
const std::set<std::string> kAcceptedHere{
    "tensor or context parallelism needs CUDA_DEVICE_MAX_CONNECTIONS=1 on this architecture",
    "offload needs the precision-aware optimizer", "overlap with the optimizer step needs interleaving"};
// Accepted by Megatron without effect; here they have theirs (PretrainConfig.GivesFlagsThatMegatronIgnoresTheirEffect).
const std::set<std::string> kOfEffectHere{"query groups ignored without the switch", "accepted without effect"};

// The text of the refusal, or nothing.
std::string refusal_of(const Json& test) {
  try {
    parse_pretrain_gpt(test["args"].get<Words>(), test["world"], {}, RuleSet::kMegatron);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(CommandLine, RefusesWhatMegatronRefusesForTheSameReason) {
  int same_rule = 0, not_here = 0;
  for (const Json& test : testing::golden_json("training/cli_validation.json", "cases")) {
    if (test["accepted"]) continue;
    const std::string rule = test["rule"];
    const std::string text = refusal_of(test);
    SCOPED_TRACE(test["args"].dump() + "\n" + text);
    if (kAcceptedHere.contains(rule)) {
      EXPECT_EQ(text, "");
    } else if (const auto expected = kRuleTexts.find(rule); expected != kRuleTexts.end()) {
      EXPECT_THAT(text, HasSubstr(expected->second)) << rule;
      ++same_rule;
    } else {
      EXPECT_THAT(text, HasSubstr("that megatron.cpp does not have yet")) << rule;
      ++not_here;
    }
  }
  std::cout << "refused: " << same_rule << " by the same rule, " << not_here
            << " because of a flag that is not here yet\n";
  EXPECT_EQ(same_rule + not_here, 111);
}

// Names of `resolved` that are switches without effect here and so are not derived from others.
const std::set<std::string> kNotDerivedHere{"apply_rope_fusion", "use_dist_ckpt"};

void expect_resolved(const Json& golden, PretrainConfig& config, std::set<std::string>& not_here) {
  FieldTable table = describe(config);
  for (const auto& [name, value] : golden.items()) {
    if (kNotDerivedHere.contains(name)) continue;
    const Field* field = table.find(name);
    if (field == nullptr)
      not_here.insert(name);
    else
      EXPECT_TRUE(same(json_of(field->get()), value)) << name << " is " << json_of(field->get()) << ", not " << value;
  }
}

// The settings that Megatron puts in its model configuration.
void expect_model(const Json& golden, const TransformerConfig& net) {
  EXPECT_EQ(net.num_query_groups, golden["num_query_groups"].get<int64_t>());
  EXPECT_EQ(net.kv_channels, golden["kv_channels"].get<int64_t>());
  EXPECT_EQ(net.ffn_hidden_size, golden["ffn_hidden_size"].get<int64_t>());
  EXPECT_EQ(net.add_bias_linear, golden["add_bias_linear"].get<bool>());
  EXPECT_EQ(net.add_qkv_bias, golden["add_qkv_bias"].get<bool>());
  EXPECT_EQ(net.gated_linear_unit, golden["gated_linear_unit"].get<bool>());
  EXPECT_EQ(net.init_method_std, golden["init_method_std"].get<double>());
  EXPECT_EQ(net.embedding_init_method_std, golden["embedding_init_method_std"].get<double>());
  EXPECT_EQ(net.window_size ? Json({net.window_size->first, net.window_size->second}) : Json(), golden["window_size"]);
  EXPECT_EQ(net.window_attn_skip_freq.interval,
            golden["window_attn_skip_freq"].is_null() ? 0 : golden["window_attn_skip_freq"].get<int64_t>());
}

TEST(CommandLine, ResolvesWhatMegatronAcceptsToTheSameValues) {
  int accepted = 0, not_here = 0, of_effect = 0;
  std::set<std::string> names_not_here;
  for (const Json& test : testing::golden_json("training/cli_validation.json", "cases")) {
    if (!test["accepted"]) continue;
    const std::string text = refusal_of(test);
    SCOPED_TRACE(test["args"].dump() + "\n" + text);
    if (kOfEffectHere.contains(test.value("note", ""))) {
      EXPECT_EQ(text, "");
      ++of_effect;
      continue;
    }
    if (!text.empty()) {
      EXPECT_THAT(text, HasSubstr("that megatron.cpp does not have yet"));
      ++not_here;
      continue;
    }
    PretrainConfig config = parse_pretrain_gpt(test["args"].get<Words>(), test["world"], {}, RuleSet::kMegatron);
    expect_resolved(test["resolved"], config, names_not_here);
    expect_model(test["config"], config.transformer);
    EXPECT_EQ(microbatch_calculator_of(config).at(0).num_microbatches, test["num_microbatches"].get<int64_t>());
    ++accepted;
  }
  std::cout << "accepted: " << accepted << " with the same values, " << of_effect
            << " whose flags have an effect here, " << not_here << " need what is not here yet; values not here yet:";
  for (const std::string& name : names_not_here) std::cout << ' ' << name;
  std::cout << '\n';
  EXPECT_GT(accepted, 0);
}

void expect_steps(const Json& test, const PretrainConfig& config) {
  const ParamSchedulerConfig schedule = param_scheduler_config_of(config);
  EXPECT_EQ(config.training.train_iters, test["train_iters"].get<int64_t>());
  EXPECT_DOUBLE_EQ(schedule.lr_warmup_steps, test["lr_warmup_steps"].get<double>());
  EXPECT_EQ(schedule.lr_decay_steps, test["lr_decay_steps"].get<int64_t>());
  EXPECT_EQ(schedule.wd_incr_steps, test["wd_incr_steps"].get<int64_t>());
  EXPECT_EQ(schedule.wsd_decay_steps ? Json(*schedule.wsd_decay_steps) : Json(), test["wsd_decay_steps"]);
  const MicrobatchCalculator calculator = microbatch_calculator_of(config);
  ParamScheduler scheduler(schedule);
  int64_t consumed = 0;
  for (const Json& row : test["steps"]) {
    const BatchSize batch = calculator.at(consumed);
    EXPECT_EQ(consumed, row[0].get<int64_t>());
    EXPECT_EQ(batch.num_microbatches, row[1].get<int64_t>());
    EXPECT_DOUBLE_EQ(scheduler.lr(), row[2].get<double>());
    EXPECT_DOUBLE_EQ(scheduler.weight_decay(), row[3].get<double>());
    consumed += batch.running_batch_size;
    scheduler.step(batch.running_batch_size);
  }
}

TEST(CommandLine, GivesTheGoldenSchedulesStepByStep) {
  int followed = 0, refused = 0;
  for (const Json& test : testing::golden_json("training/cli_schedules.json", "cases")) {
    const std::string text = refusal_of(test);
    SCOPED_TRACE(test["args"].dump() + "\n" + text);
    if (test.contains("error")) {  // one of them only in the middle of the run: here at the start
      EXPECT_NE(text, "");
      ++refused;
      continue;
    }
    ASSERT_EQ(text, "");
    expect_steps(test, parse_pretrain_gpt(test["args"].get<Words>(), test["world"], {}, RuleSet::kMegatron));
    ++followed;
  }
  EXPECT_GT(followed, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace megatron
