// Expected numbers are worked out by hand from Megatron's formulas.
#include "megatron/training/planning/theoretical_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/training/planning/host_tables.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kMegabyte = 1 << 20;

// h 8, n 2, g 1, d 4, f 12, v 20, 3 layers, s 5, b 2.
MemorySizes small() {
  MemorySizes sizes{.seq_length = 5, .micro_batch_size = 2};
  sizes.model.num_layers = 3;
  sizes.model.hidden_size = 8;
  sizes.model.num_attention_heads = 2;
  sizes.model.num_query_groups = 1;
  sizes.model.kv_channels = 4;
  sizes.model.ffn_hidden_size = 12;
  sizes.model.padded_vocab_size = 20;
  return sizes;
}

TEST(TheoreticalMemory, CountsParametersOfADenseModel) {
  // A layer: query and projection 2*8*8, key and value 2*8*4, feed-forward 2*8*12, two norms 2*16; final norm 16.
  TheoreticalParameters parameters = theoretical_parameters(small());
  EXPECT_EQ(parameters.transformer_block, 3 * (128 + 64 + 192 + 32) + 16);
  EXPECT_EQ(parameters.embedding_layers, 160);
  EXPECT_EQ(parameters.most_loaded_shard, 1264 + 160);
  EXPECT_EQ(parameters.total(), 1424);

  MemorySizes llama = small();
  llama.model.gated_linear_unit = true;
  llama.model.activation_func = ActivationFunc::kSilu;
  llama.model.normalization = Normalization::kRMSNorm;
  llama.model.share_embeddings_and_output_weights = false;
  parameters = theoretical_parameters(llama);
  EXPECT_EQ(parameters.transformer_block, 3 * (128 + 64 + 288 + 16) + 8);
  EXPECT_EQ(parameters.embedding_layers, 320);
  EXPECT_EQ(parameters.most_loaded_shard, 1496 + 320);

  MemorySizes gated = small();  // as many gates as queries: 8*8 more
  gated.model.attention_output_gate = true;
  EXPECT_EQ(theoretical_parameters(gated).transformer_block, 3 * (128 + 64 + 64 + 192 + 32) + 16);
}

TEST(TheoreticalMemory, CountsRouterExpertsAndSharedExpertsOfTheLayersThatHaveThem) {
  MemorySizes sizes = small();
  sizes.model.moe = MoeConfig{.num_experts = 4,
                              .layer_freq = {.interval = 0, .per_layer = {0, 1, 1}},
                              .ffn_hidden_size = 6,
                              .shared_expert_intermediate_size = 5};
  // Router 4*8, experts 4*2*8*6, shared experts 2*8*5.
  EXPECT_EQ(theoretical_parameters(sizes).transformer_block, 3 * (128 + 64 + 32) + 192 + 2 * (32 + 384 + 80) + 16);
  sizes.model.moe->latent_size = 3;  // projections 2*8*3, experts 4*2*3*6
  EXPECT_EQ(theoretical_parameters(sizes).transformer_block, 3 * (128 + 64 + 32) + 192 + 2 * (32 + 48 + 144 + 80) + 16);
  // 10 tokens: 10h as in a dense layer, attention 8h; of 2 experts input 2h and inner 4*6 each, shared experts 4*5.
  const LayerKind experts{.mixer = Mixer::kSelfAttention, .feed_forward = FeedForward::kExperts};
  EXPECT_EQ(theoretical_layer_activation_bytes(sizes, experts), 10.0 * (10 * 8 + 8 * 8 + 2 * (16 + 24) + 20));
}

/// 2 stages x 2 tensor ranks x 8 replicas: experts lie on 4 x 1 of each stage's 16 ranks, so that they have 4 replicas.
TEST(TheoreticalMemory, RanksHaveTheirExpertsAndTheirPartOfTheRest) {
  MemorySizes sizes = small();
  sizes.model.moe = MoeConfig{.num_experts = 4, .ffn_hidden_size = 6};
  sizes.tensor_size = sizes.pipeline_size = 2;
  sizes.data_size = 8;
  sizes.use_distributed_optimizer = true;
  sizes.expert_size = 4;
  sizes.expert_tensor_size = 1;
  const TheoreticalParameters parameters = theoretical_parameters(sizes);
  const double routed = 3 * 384, rest = 3 * (128 + 64 + 32 + 32) + 16;
  EXPECT_EQ(parameters.transformer_block, routed + rest);
  EXPECT_EQ(parameters.routed_experts, routed);
  EXPECT_EQ(parameters.experts_of_shard, routed / (2 * 4));
  EXPECT_EQ(parameters.other_shards, rest / (2 * 2) + routed / (2 * 4));
  EXPECT_EQ(theoretical_weight_and_optimizer_bytes(sizes),
            (rest / (2 * 2) + 160.0 / 2) * (6 + 12.0 / 8) + routed / (2 * 4) * (6 + 12.0 / 4));
  sizes.expert_size = 1;
  sizes.expert_tensor_size.reset();
  EXPECT_EQ(theoretical_parameters(sizes).other_shards, (routed + rest) / (2 * 2)) << "by default as the rest";
}

TEST(TheoreticalMemory, TheFirstStageHasTheEmbeddingAndTensorRanksAShare) {
  MemorySizes sizes = small();
  sizes.model.share_embeddings_and_output_weights = false;
  sizes.tensor_size = 2;
  sizes.pipeline_size = 4;
  const TheoreticalParameters parameters = theoretical_parameters(sizes);
  EXPECT_EQ(parameters.most_loaded_shard, 1264.0 / 8 + 80);
  EXPECT_EQ(parameters.other_shards, 1264.0 / 8);
}

TEST(TheoreticalMemory, TheDistributedOptimizerSplitsTwelveOfEighteenBytes) {
  MemorySizes sizes = small();
  sizes.data_size = 4;
  EXPECT_EQ(theoretical_weight_and_optimizer_bytes(sizes), 1424 * 18);
  sizes.use_distributed_optimizer = true;
  EXPECT_EQ(theoretical_weight_and_optimizer_bytes(sizes), 1424 * 9);
}

TEST(TheoreticalMemory, CountsWhatTheRunKeepsOfAParameter) {
  const std::string bf16 = "--bf16 ", aware = bf16 + "--use-precision-aware-optimizer ",
                    moments = aware + "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 ";
  const std::tuple<std::string, int64_t, int64_t> cases[] = {
      {"", 8, 8},  // fp32 weights are stepped
      {"--fp64", 16, 16},
      {bf16, 6, 12},
      {"--fp16", 6, 12},
      {bf16 + "--grad-reduce-in-bf16", 4, 12},
      {bf16 + "--optimizer sgd", 6, 8},
      {bf16 + "--optimizer sgd --sgd-momentum 0", 6, 4},
      {aware, 6, 10},  // a remainder of two bytes
      {moments, 6, 6},
      {moments + "--main-grads-dtype bf16", 4, 6},
      {moments + "--main-grads-dtype bf16 --main-params-dtype bf16", 4, 4}};
  for (const auto& [words, weight_and_gradient, optimizer] : cases) {
    const ParameterBytes bytes = parameter_bytes_of(testing::parse(testing::words_of(words)));
    EXPECT_EQ(bytes.weight_and_gradient, weight_and_gradient) << words;
    EXPECT_EQ(bytes.optimizer, optimizer) << words;
  }
}

TEST(TheoreticalMemory, EstimatesARunByItsOwnDTypes) {
  const auto estimate = [](const std::string& words) {
    PretrainConfig config = testing::parse(testing::words_of("--bf16 --hidden-size 1024 " + words), 4);
    config.transformer.padded_vocab_size = 128;
    return memory_estimate(config);
  };
  // 4 layers of 12 h^2 and two norms of 2 h, the last norm, an embedding of 128 rows: 50481152 parameters.
  const std::string low =
      "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 "
      "--main-grads-dtype bf16 --main-params-dtype bf16 ";
  EXPECT_THAT(estimate(""), HasSubstr(": 867 of weights, gradients and optimizer, 18 bytes a parameter"));
  EXPECT_THAT(estimate(low), HasSubstr(": 385 of weights, gradients and optimizer, 8 bytes a parameter"));
  EXPECT_THAT(estimate(low + "--use-distributed-optimizer"),
              HasSubstr(": 241 of weights, gradients and optimizer, 5 bytes a parameter"));
  EXPECT_THAT(estimate("--optimizer-cpu-offload"),
              HasSubstr(": 289 of weights, gradients and optimizer, 6 bytes a parameter"));
  EXPECT_THAT(estimate("--optimizer-cpu-offload --optimizer-offload-fraction 0.25"),
              HasSubstr(": 723 of weights, gradients and optimizer, 15 bytes a parameter"));
}

TEST(TheoreticalMemory, EstimatesTheTableOfPositionsAndNamesItsFlag) {
  PretrainConfig config = testing::parse(testing::words_of("--max-position-embeddings 2147483647"));
  config.transformer.padded_vocab_size = 128;
  EXPECT_THAT(memory_estimate(config), HasSubstr("The table of --max-position-embeddings 2147483647 has"));
}

TEST(TheoreticalMemory, NamesTheFlagThatSharesExperts) {
  const auto estimate = [](const std::string& words, int num_ranks) {
    PretrainConfig config = testing::parse(testing::words_of(words), num_ranks);
    config.transformer.padded_vocab_size = 128;
    return memory_estimate(config);
  };
  EXPECT_THAT(estimate("--num-experts 4 --expert-model-parallel-size 2", 2),
              HasSubstr("A larger --expert-model-parallel-size than 2 shares its 4 experts between more ranks."));
  for (const auto& [words, num_ranks] : {std::pair{"--num-experts 4 --expert-model-parallel-size 4", 4}, {"", 1}})
    EXPECT_THAT(estimate(words, num_ranks), Not(HasSubstr("--expert-model-parallel-size")));
}

TEST(HostTables, ThatDoNotFitAreRefusedWithTheirFlagAlone) {
  const auto refusal = [](const std::string& words, int64_t ranks_here = 1) -> std::string {
    PretrainConfig config = testing::parse(testing::words_of(words));
    config.transformer.padded_vocab_size = 128;
    try {
      require_host_tables_fit(host_tables(config, true), ranks_here, int64_t{16} << 30);
    } catch (const OutOfMemory& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_THAT(refusal("--global-batch-size 2147483640"), EndsWith("Give a smaller --global-batch-size."));
  EXPECT_THAT(refusal("--num-layers 100000000"), EndsWith("Give a smaller --num-layers."));
  EXPECT_THAT(refusal("--max-position-embeddings 2147483647"), EndsWith("Give a smaller --max-position-embeddings."));
  EXPECT_THAT(refusal("--max-position-embeddings 2147483647 --position-embedding-type rope"),
              EndsWith("Give a smaller --max-position-embeddings."));
  EXPECT_THAT(refusal("--hidden-size 2147483640"), EndsWith("Give a smaller --hidden-size."));
  EXPECT_THAT(refusal("--seq-length 2147483647 --max-position-embeddings 2147483647 --position-embedding-type none"),
              EndsWith("Give a smaller --seq-length."));
  EXPECT_EQ(refusal("--num-layers 400000"), "");
  EXPECT_THAT(refusal("--num-layers 400000", 8), HasSubstr("on 8 ranks")) << "which share the host";
}

TEST(TheoreticalMemory, ActivationsWithoutSequenceParallelism) {
  // 10 rows: layers 3*10*8*34, tokens 80, mask 80, logits and norm 2*10*(20+8); 5 % more.
  EXPECT_DOUBLE_EQ(theoretical_activation_bytes(small(), 1), 1.05 * (8160 + 80 + 80 + 560));
  MemorySizes tensor = small();
  tensor.tensor_size = 2;  // 3*10*8*22
  EXPECT_DOUBLE_EQ(theoretical_activation_bytes(tensor, 1), 1.05 * (5280 + 160 + 2 * 10 * (10 + 8)));
}

TEST(TheoreticalMemory, ActivationsWithSequenceParallelismAndSelectiveRecompute) {
  MemorySizes sizes = small();
  sizes.sequence_parallel = true;
  sizes.tensor_size = 2;
  EXPECT_DOUBLE_EQ(theoretical_layer_activation_bytes(sizes, {}), 10 * 8 * 22) << "not without recompute";
  sizes.model.recompute_granularity = RecomputeGranularity::kSelective;  // 10*(18*8 + 4*12) a layer, output 10*4*28
  EXPECT_DOUBLE_EQ(theoretical_layer_activation_bytes(sizes, {}), 1920.0 / 2);
  EXPECT_DOUBLE_EQ(theoretical_activation_bytes(sizes, 1), (3 * 1920 + 160 + 1120) / 2.0);
}

TEST(TheoreticalMemory, HalvesOfLayersAddUpToWholeOnes) {
  const MemorySizes whole = small();
  MemorySizes halves = small();
  halves.model.num_layers = 6;
  for (int i = 0; i < 3; ++i) {
    halves.model.layer_kinds.push_back({Mixer::kSelfAttention, FeedForward::kNone});
    halves.model.layer_kinds.push_back({Mixer::kNone, FeedForward::kDense});
  }
  EXPECT_EQ(theoretical_parameters(halves).total(), theoretical_parameters(whole).total());
  EXPECT_DOUBLE_EQ(theoretical_activation_bytes(halves, 1), theoretical_activation_bytes(whole, 1));
  halves.sequence_parallel = true;
  halves.model.recompute_granularity = RecomputeGranularity::kSelective;
  EXPECT_DOUBLE_EQ(theoretical_layer_activation_bytes(halves, halves.model.layer_kinds[0]) +
                       theoretical_layer_activation_bytes(halves, halves.model.layer_kinds[1]),
                   theoretical_layer_activation_bytes(halves, {}));
  halves.model.layer_kinds[2] = {Mixer::kStateSpace, FeedForward::kNone};
  EXPECT_THROW(theoretical_parameters(halves), NotSupported);
}

TEST(TheoreticalMemory, APipelineHoldsAsManyMicroBatchesAsItHasStages) {
  MemorySizes sizes = small();
  sizes.pipeline_size = 3;  // no output layer in the first stage; tokens and masks three times
  const double full = 1.05 * (8160 + 3 * 160);
  EXPECT_DOUBLE_EQ(theoretical_activation_bytes(sizes, 7), full);
  EXPECT_DOUBLE_EQ(theoretical_activation_bytes(sizes, 2), full * 2 / 3);
  sizes.virtual_pipeline_size = 2;
  EXPECT_DOUBLE_EQ(theoretical_activation_bytes(sizes, 7), full * (1 + 2.0 / 6));
}

TEST(TheoreticalMemory, ContextParallelRanksShareActivationsAndShards) {
  const MemorySizes one = memory_sizes_of(testing::parse());
  const MemorySizes two = memory_sizes_of(testing::parse({"--context-parallel-size", "2"}, 4));
  const MemorySizes hybrid = memory_sizes_of(testing::parse(
      {"--hybrid-context-parallel", "--max-seqlen-per-dp-cp-rank", "12", "--dataloader-inter-document-masking"}, 4));
  EXPECT_EQ(hybrid.seq_length * hybrid.micro_batch_size, 12);
  EXPECT_EQ(two.data_size, 4) << "two of data, two of context parallelism";
  EXPECT_DOUBLE_EQ(2 * theoretical_activation_bytes(two, 1), theoretical_activation_bytes(one, 1));
}

TEST(TheoreticalMemory, ReportsAsMegatronDoes) {
  PretrainConfig config = testing::parse();
  config.transformer.padded_vocab_size = 128;
  // h 64, f 256, 4 layers of 49408 parameters, final norm 128, embedding 8192: 205952. 64 rows of 34 * 64 bytes.
  EXPECT_EQ(theoretical_memory_report(memory_sizes_of(config), 1),
            fmt::format("Number of parameters in transformer block in billions:  0.00\n"
                        "Number of parameters in embedding layers in billions: 0.00\n"
                        "Total number of parameters in billions: 0.00\n"
                        "Number of parameters in most loaded shard in billions: 0.0002\n"
                        "Activation memory footprint per transformer layer (precise, without SP): 0.1 MB\n"
                        "Theoretical memory footprints: weight and optimizer={:.2f} MB, activation={:.2f} MB, "
                        "total={:.2f} MB",
                        205952 * 18 / kMegabyte, 615552.0 / kMegabyte, (205952 * 18 + 615552.0) / kMegabyte));
  MemorySizes stages = small();
  stages.pipeline_size = 3;
  EXPECT_THAT(theoretical_memory_report(stages, 2), HasSubstr("Number of in-flight microbatches: 2\n"));
  stages.virtual_pipeline_size = 2;
  EXPECT_THAT(theoretical_memory_report(stages, 2), HasSubstr("interleaved schedule: 1.33\n"
                                                              "Number of in-flight microbatches: 4\n"));
  EXPECT_THAT(theoretical_memory_report(small(), 2), Not(HasSubstr("in-flight")));
}

}  // namespace
}  // namespace megatron
