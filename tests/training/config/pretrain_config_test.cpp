#include "megatron/training/config/pretrain_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/core/random.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/config/schedules.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::parse;
using testing::refusal;
using testing::with;
using testing::Words;
using testing::words_of;

TEST(PretrainConfig, ReportsEveryMistakeAtOnceAndNothingElse) {
  const std::string text =
      refusal({"--hidden-size", "64",    "--num-attention-heads",     "5",           "--seq-length",       "x",
               "--num-layer",   "4",     "--max-position-embeddings", "32",          "--micro-batch-size", "2",
               "--train-iters", "20",    "--moe-enable-deepep",       "--mock-data", "--data-path",        "a",
               "--bf16",        "--fp16"});
  EXPECT_THAT(text, HasSubstr("9 mistakes"));
  EXPECT_THAT(text, HasSubstr("--seq-length x: must be a whole number"));
  EXPECT_THAT(text, HasSubstr("did you mean --num-layers?"));
  EXPECT_THAT(text, HasSubstr("--moe-enable-deepep: a flag of Megatron that megatron.cpp does not have yet"));
  EXPECT_THAT(text, HasSubstr("--hidden-size 64 does not divide by --num-attention-heads 5"));
  EXPECT_THAT(text, HasSubstr("--fp16, --bf16 and --fp64 exclude each other"));
  EXPECT_THAT(text, HasSubstr("2 data sources are given"));
  EXPECT_THAT(text, HasSubstr("--lr is required"));
  EXPECT_THAT(text, HasSubstr("GPT2BPETokenizer (the default) needs --vocab-file"));
  EXPECT_THAT(text, Not(HasSubstr("--seq-length is required")));
  EXPECT_THAT(text, Not(HasSubstr("--num-layers is required")));
}

TEST(PretrainConfig, ResolvesTheNetwork) {
  const TransformerConfig net =
      parse({"--swiglu", "--group-query-attention", "--num-query-groups", "2", "--untie-embeddings-and-output-weights",
             "--position-embedding-type", "yarn", "--window-size", "(8,-1)", "--window-attn-skip-freq", "([0]*1+[1]*3)",
             "--recompute-activations", "--bf16"})
          .transformer;
  EXPECT_EQ(net.activation_func, ActivationFunc::kSilu);
  EXPECT_TRUE(net.gated_linear_unit);
  EXPECT_EQ(net.ffn_hidden_size, 128);
  EXPECT_EQ(net.num_query_groups, 2);
  EXPECT_EQ(net.kv_channels, 16);
  EXPECT_FALSE(net.share_embeddings_and_output_weights);
  EXPECT_EQ(net.yarn_beta_fast, 32.0);
  EXPECT_EQ(net.window_size, std::pair(int64_t{8}, int64_t{-1}));
  EXPECT_EQ(net.window_attn_skip_freq.per_layer, (std::vector<int64_t>{0, 1, 1, 1}));
  EXPECT_TRUE(net.sees_whole_sequence(1));
  EXPECT_FALSE(net.sees_whole_sequence(2));
  EXPECT_EQ(net.recompute_modules, std::vector{RecomputeModule::kCoreAttn});
  EXPECT_EQ(net.params_dtype, DType::kBFloat16);
  EXPECT_EQ(net.vocab_size, 100);
  EXPECT_EQ(net.padded_vocab_size, 128);
}

TEST(PretrainConfig, TakesMegatronsFormOfGelu) {
  EXPECT_EQ(parse().transformer.activation_func, ActivationFunc::kGeluTanh);
  EXPECT_EQ(parse({"--no-bias-gelu-fusion"}).transformer.activation_func, ActivationFunc::kGelu);
  EXPECT_EQ(parse({"--disable-bias-linear"}).transformer.activation_func, ActivationFunc::kGelu);
  EXPECT_EQ(parse({"--disable-bias-linear", "--openai-gelu"}).transformer.activation_func, ActivationFunc::kGeluTanh);
}

TEST(PretrainConfig, WeighsTokensEquallyUnlessToldOtherwise) {
  EXPECT_TRUE(parse().training.calculate_per_token_loss);
  EXPECT_TRUE(parse({"--calculate-per-token-loss"}).training.calculate_per_token_loss);
  EXPECT_FALSE(parse({"--no-calculate-per-token-loss"}).training.calculate_per_token_loss);
}

TEST(PretrainConfig, TakesOurOwnFlags) {
  const PretrainConfig config =
      parse({"--fp64", "--nproc-per-node", "2", "--num-threads", "3", "--log-jsonl", "log.jsonl"}, 2);
  EXPECT_EQ(config.transformer.params_dtype, DType::kFloat64);
  EXPECT_EQ(config.optimizer.params_dtype, DType::kFloat64);
  EXPECT_EQ(config.launch.nproc_per_node, 2);
  EXPECT_EQ(config.launch.num_threads, 3);
  EXPECT_EQ(config.logging.log_jsonl, "log.jsonl");
  EXPECT_EQ(config.parallel.data_parallel_size, 2);
  EXPECT_EQ(config.training.global_batch_size, 4);
}

TEST(PretrainConfig, GivesFlagsThatMegatronIgnoresTheirEffect) {
  const PretrainConfig groups = parse({"--num-query-groups", "2"});
  EXPECT_TRUE(groups.model.group_query_attention);
  EXPECT_EQ(groups.transformer.num_query_groups, 2);
  EXPECT_THAT(notes_block(groups), HasSubstr("--num-query-groups: means grouped-query attention"));
  EXPECT_EQ(parse({"--num-query-groups", "1"}).transformer.num_query_groups, 1);
  EXPECT_EQ(parse().transformer.num_query_groups, 4);
  // The checkpoint stores what Megatron made of it.
  std::string stored = arguments_to_json(parse());
  const std::string groups_text = "\"num_query_groups\": 1";
  ASSERT_NE(stored.find(groups_text), std::string::npos);
  stored.replace(stored.find(groups_text), groups_text.size(), "\"num_query_groups\": 2");
  EXPECT_EQ(arguments_from_json(stored).transformer.num_query_groups, 4);

  const PretrainConfig ramp = parse({"--rampup-batch-size", "4", "2", "100", "--global-batch-size", "16"});
  EXPECT_EQ(microbatch_calculator_of(ramp).at(0).num_microbatches, 2);
  EXPECT_EQ(microbatch_calculator_of(ramp).at(100).num_microbatches, 8);
  EXPECT_EQ(param_scheduler_config_of(ramp).lr_decay_steps, 20 * 16);
  EXPECT_THAT(notes_block(ramp), HasSubstr("--rampup-batch-size: ramps as Megatron-LM 0.16 did"));
}

TEST(PretrainConfig, TakesSpellingsOfOtherVersionsAndNamesThem) {
  const PretrainConfig config = parse(
      {"--num-layers", "8", "--pipeline-model-parallel-size", "2", "--virtual-pipeline-model-parallel-size", "2"}, 2);
  EXPECT_EQ(config.parallel.virtual_pipeline_model_parallel_size, 2);
  EXPECT_THAT(notes_block(config),
              HasSubstr("--virtual-pipeline-model-parallel-size is taken as --num-virtual-stages-per-pipeline-rank"));
  EXPECT_THAT(notes_block(parse()), Not(HasSubstr("is taken as")));
  const PretrainConfig offloaded = parse({"--cpu-optimizer"});
  EXPECT_TRUE(offloaded.optimizer.optimizer_cpu_offload);
  EXPECT_THAT(notes_block(offloaded), HasSubstr("--cpu-optimizer is taken as --optimizer-cpu-offload"));
}

TEST(PretrainConfig, NamesMegatronsFlagForSpellingsOfWhatIsNotHereYet) {
  EXPECT_THAT(
      refusal(with({"--fp8", "hybrid"})),
      HasSubstr("--fp8: Megatron's flag is --fp8-format, a flag of Megatron that megatron.cpp does not have yet"));
}

TEST(PretrainConfig, TakesWhatScriptsGiveToTorchrun) {
  const Words one_host = words_of(
      "--nnodes 1 --node_rank 0 --master_addr localhost --master_port 6000 --rdzv_backend c10d"
      " --rdzv-endpoint localhost:29500 --rdzv_id 7 --standalone");
  EXPECT_THAT(notes_block(parse(one_host)),
              HasSubstr("--master-addr localhost, --master-port 6000, --rdzv-backend c10d"));
  EXPECT_THAT(refusal(with({"--nnodes", "4"})), HasSubstr("--nnodes 4: one process starts the ranks of its own host"));
  EXPECT_EQ(refusal(with({"--nnodes", "4"}), 2), "") << "a launcher has started ranks";
}

TEST(PretrainConfig, ArgumentsSurviveJson) {
  for (const Words& extra :
       {Words{},
        Words{"--swiglu", "--window-size", "8,0", "--window-attn-skip-freq", "2", "--no-rope-freq", "[0,1,0,1]"},
        Words{"--fp16", "--loss-scale", "128", "--iterations-to-skip", "3", "5", "--optimizer", "sgd"},
        Words{"--num-experts", "4", "--moe-layer-freq", "[0,1,1,0]", "--moe-router-load-balancing-type", "aux_loss",
              "global_aux_loss", "--moe-aux-loss-coeff", "1", "2", "--moe-router-dtype", "fp64"},
        Words{"--bf16", "--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers",
              "2"}}) {
    const PretrainConfig config = parse(extra);
    const std::string json = arguments_to_json(config);
    EXPECT_EQ(arguments_to_json(arguments_from_json(json)), json);
  }
}

TEST(PretrainConfig, StoredArgumentsGiveTheWholeModel) {
  const PretrainConfig config = parse({"--swiglu", "--group-query-attention", "--num-query-groups", "2", "--bf16"});
  const TransformerConfig net = arguments_from_json(arguments_to_json(config)).transformer;
  EXPECT_EQ(net.num_layers, 4);
  EXPECT_EQ(net.num_query_groups, 2);
  EXPECT_EQ(net.kv_channels, 16);
  EXPECT_EQ(net.ffn_hidden_size, 128);
  EXPECT_EQ(net.max_sequence_length, 32);
  EXPECT_EQ(net.activation_func, ActivationFunc::kSilu);
  EXPECT_TRUE(net.gated_linear_unit);
  EXPECT_EQ(net.params_dtype, DType::kBFloat16);
  EXPECT_EQ(net.vocab_size, 100);
  EXPECT_EQ(net.padded_vocab_size, 128);
}

TEST(PretrainConfig, ReadsStoredArgumentsOfOtherVersions) {
  const PretrainConfig config = arguments_from_json(
      R"({"apply_layernorm_1p": true, "num_layers": 2, "encoder_num_layers": 2, "hidden_size": 128, "lr": 1, "seq_length": 8,
          "num_attention_heads": 4, "max_position_embeddings": 8, "num_experts": null, "some_flag_of_the_future": 8})");
  EXPECT_TRUE(config.transformer.layernorm_zero_centered_gamma);
  EXPECT_EQ(config.transformer.hidden_size, 128);
  EXPECT_EQ(config.optimizer.lr, 1.0);
}

TEST(PretrainConfig, RefusesStoredModelsOfKindsThatItCannotBuild) {
  std::string stored = arguments_to_json(parse());
  stored.insert(1, "\"hybrid_layer_pattern\": \"M*-\", ");
  try {
    arguments_from_json(stored);
    FAIL() << "the pattern was dropped";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("hybrid_layer_pattern = \"M*-\""));
  }
}

TEST(PretrainConfig, RefusesStoredArgumentsThatDoNotFit) {
  for (const char* json : {"", "[]", "{", "{}", R"({"hidden_size": "wide"})", R"({"normalization": "BatchNorm"})",
                           R"({"window_size": [1]})", R"({"data_path": [[1]]})"})
    EXPECT_THROW(arguments_from_json(json), ConfigError) << json;
}

TEST(PretrainConfig, TakesTheModelFromTheCheckpoint) {
  const std::string stored =
      arguments_to_json(parse({"--swiglu", "--position-embedding-type", "rope", "--qk-layernorm", "--lr", "5e-5"}));
  const Words words{
      "--use-checkpoint-args", "--load",       "run", "--micro-batch-size", "2",  "--train-iters", "20", "--lr", "1e-3",
      "--mock-data",           "--seq-length", "16",  "--vocab-size",       "100"};
  const PretrainConfig config = parse_pretrain_gpt(words, 1, [&](const CheckpointConfig& checkpoint) {
    EXPECT_EQ(checkpoint.load, "run");
    return stored;
  });
  EXPECT_EQ(config.transformer.num_layers, 4);
  EXPECT_EQ(config.transformer.activation_func, ActivationFunc::kSilu);
  EXPECT_EQ(config.transformer.position_embedding_type, PositionEmbeddingType::kRope);
  EXPECT_TRUE(config.transformer.qk_layernorm);
  EXPECT_EQ(config.tokenizer.tokenizer_type, "NullTokenizer");
  EXPECT_EQ(config.model.seq_length, 16) << "what is given stays";
  EXPECT_EQ(config.optimizer.lr, 1e-3) << "what is not about the model stays";
}

TEST(PretrainConfig, ReportsACheckpointThatCannotBeReadAmongOtherMistakes) {
  const auto no_checkpoint = [](const CheckpointConfig&) -> std::string { throw CheckpointError("run is missing"); };
  const auto text_of = [&](const Words& words) -> std::string {
    try {
      parse_pretrain_gpt(words, 1, no_checkpoint, RuleSet::kMegatron);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  const Words words = {"--use-checkpoint-args", "--load", "run",         "--micro-batch-size", "2",
                       "--train-iters",         "20",     "--mock-data", "--vocab-size",       "100"};
  const std::string text = text_of(words);
  EXPECT_THAT(text, HasSubstr("2 mistakes"));
  EXPECT_THAT(text, HasSubstr("is missing"));
  EXPECT_THAT(text, HasSubstr("--lr is required"));
  Words rest_is_right = words;
  rest_is_right.insert(rest_is_right.end(), {"--lr", "1e-3"});
  EXPECT_THROW(parse_pretrain_gpt(rest_is_right, 1, no_checkpoint, RuleSet::kMegatron), CheckpointError);
}

TEST(PretrainConfig, TakesAWindowThatBeginsWithMinus) {
  EXPECT_EQ(parse({"--window-size", "-1,0"}).transformer.window_size, (std::pair<int64_t, int64_t>{-1, 0}));
}

TEST(PretrainConfig, TellsAtOnceWhatIsWrongWithFlagsScheduleAndThisVersion) {
  const std::string text = refusal(
      with({"--pipeline-model-parallel-size", "2", "--pipeline-schedule", "zb-v",
            "--num-virtual-stages-per-pipeline-rank", "1", "--min-lr", "2", "--fp16", "--fp16-lm-cross-entropy"}),
      4, RuleSet::kRunnable);
  EXPECT_THAT(text, HasSubstr("--min-lr"));
  EXPECT_THAT(text, HasSubstr("the schedule zb-v has two virtual stages"));
  EXPECT_THAT(text, HasSubstr("cannot run it yet: --fp16-lm-cross-entropy: the loss is computed from fp32 logits"));
}

TEST(PretrainConfig, RefusesAScheduleThatCannotRunTheMicroBatches) {
  const Words words = with({"--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "1",
                            "--pipeline-schedule", "interleaved", "--global-batch-size", "6"});
  EXPECT_EQ(refusal(words, 2), "") << "not by the rules of Megatron's command line";
  EXPECT_THAT(refusal(words, 2, RuleSet::kRunnable), HasSubstr("leave 1 over"));
}

TEST(PretrainConfig, GivesInterleavedAndZbVTwoVirtualStages) {
  for (const char* schedule : {"interleaved", "zb-v"}) {
    const PretrainConfig config =
        parse({"--pipeline-model-parallel-size", "2", "--pipeline-schedule", schedule, "--num-layers", "4"}, 2);
    EXPECT_EQ(config.parallel.virtual_pipeline_model_parallel_size, 2) << schedule;
  }
}

TEST(PretrainConfig, RefusesToRunMoreThanThisVersionCan) {
  EXPECT_NO_THROW(require_runnable(parse()));
  try {
    require_runnable(parse({"--fp16", "--fp16-lm-cross-entropy"}, 4));
    FAIL() << "it was not refused";
  } catch (const NotSupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("--fp16-lm-cross-entropy: the loss is computed from fp32 logits"));
  }
}

TEST(PretrainConfig, RefusesGraphsOfStepsThatDifferOrThatAreWatchedFromInside) {
  const auto refusal_of = [](const Words& more, int num_ranks) -> std::string {
    Words words = {"--cuda-graph-impl", "full_iteration"};
    words.insert(words.end(), more.begin(), more.end());
    try {
      require_runnable(parse(words, num_ranks));
    } catch (const NotSupported& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal_of({}, 1), "");
  EXPECT_EQ(refusal_of({"--eod-mask-loss", "--timing-log-level", "1"}, 1), "");
  EXPECT_EQ(refusal_of({"--nvtx-ranges", "--profile"}, 1), "");
  EXPECT_EQ(refusal_of({"--tensor-model-parallel-size", "2", "--sequence-parallel"}, 4), "");
  EXPECT_EQ(refusal_of({"--profile"}, 2), "");
  EXPECT_EQ(refusal_of({"--profile", "--profile-ranks", "0"}, 1), "");
  EXPECT_THAT(refusal_of({"--profile", "--profile-ranks", "0"}, 2), HasSubstr("Leave out --profile-ranks"));
  EXPECT_THAT(refusal_of({"--pipeline-model-parallel-size", "2"}, 2), HasSubstr("--pipeline-model-parallel-size"));
  EXPECT_THAT(refusal_of({"--reset-attention-mask"}, 1), HasSubstr("as many documents"));
  EXPECT_THAT(refusal_of({"--reset-position-ids"}, 1), HasSubstr("as many documents"));
  EXPECT_THAT(refusal_of({"--timing-log-level", "2"}, 1), HasSubstr("--timing-log-level 1"));
  EXPECT_THAT(refusal_of({"--nvtx-ranges"}, 1), HasSubstr("--profile"));
}

// Any words at all: either a configuration that can be written and read back, or a ConfigError.
TEST(PretrainConfig, RandomCommandLinesAreAcceptedOrRefusedWithReasons) {
  std::vector<std::string> flags;
  PretrainConfig defaults;
  describe(defaults).for_each([&](const Field& field) {
    flags.insert(flags.end(), field.flags.begin(), field.flags.end());
    flags.insert(flags.end(), field.off_flags.begin(), field.off_flags.end());
  });
  std::erase(flags, "--use-checkpoint-args");  // reads a checkpoint
  std::erase(flags, "--load-hf");              // reads a model
  const Words values{"0",
                     "1",
                     "2",
                     "3",
                     "8",
                     "-1",
                     "1e-3",
                     "-1e-5",
                     "0.5",
                     "rope",
                     "x",
                     "",
                     "[0,1]",
                     "8,0",
                     "linear",
                     "WSD",
                     "0:4",
                     "full",
                     "uniform",
                     "=",
                     "--",
                     "9223372036854775807",
                     "99999999999999999999",
                     "nan"};
  const RandomKey key = RandomKey::from_seed(1);
  int accepted = 0, refused = 0;
  for (int64_t trial = 0; trial < 1000; ++trial) {
    const auto pick = [&](int64_t index, const std::vector<std::string>& from) {
      return from[static_cast<size_t>(uniform(key.at(trial), index) * static_cast<double>(from.size()))];
    };
    Words extra;
    for (int64_t i = 0; i < 1 + trial % 4; ++i) {
      extra.push_back(pick(2 * i, flags));
      if (uniform(key.at(trial).at("value"), i) < 0.6) extra.push_back(pick(2 * i + 1, values));
    }
    try {
      const PretrainConfig config = parse(extra, 1 + static_cast<int>(trial % 3));
      arguments_from_json(arguments_to_json(config));
      ++accepted;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("\n  1. "));
      ++refused;
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace megatron
