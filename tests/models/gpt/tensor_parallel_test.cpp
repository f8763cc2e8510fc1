#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/models/gpt/golden_case.h"
#include "tests/models/gpt/tensor_parallel_case.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

/// LayerNorm, biases, learned positions, tied output.
TransformerConfig gpt2_style(int64_t num_heads) {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 12;
  config.num_attention_heads = config.num_query_groups = num_heads;
  config.kv_channels = 3;
  config.ffn_hidden_size = 60;
  config.vocab_size = 37;
  config.padded_vocab_size = 60;
  config.max_sequence_length = 64;
  config.hidden_dropout = 0.1;
  config.attention_dropout = 0.2;
  config.params_dtype = DType::kFloat64;
  return config;
}

/// RMSNorm, no biases, SwiGLU, rotary positions, grouped queries, untied output; norms of queries and keys.
TransformerConfig llama_style(int64_t num_heads, int64_t num_query_groups) {
  TransformerConfig config = gpt2_style(num_heads);
  config.num_query_groups = num_query_groups;
  config.kv_channels = 4;
  config.normalization = Normalization::kRMSNorm;
  config.position_embedding_type = PositionEmbeddingType::kRope;
  config.activation_func = ActivationFunc::kSilu;
  config.gated_linear_unit = true;
  config.add_bias_linear = false;
  config.share_embeddings_and_output_weights = false;
  config.qk_layernorm = true;
  return config;
}

/// Latent attention: latents of odd sizes, values narrower than queries, YaRN.
TransformerConfig deepseek_style(int64_t num_heads, std::optional<int64_t> q_lora_rank) {
  TransformerConfig config = llama_style(num_heads, num_heads);
  config.mla = MlaConfig{
      .q_lora_rank = q_lora_rank, .kv_lora_rank = 7, .qk_head_dim = 5, .qk_pos_emb_head_dim = 4, .v_head_dim = 3};
  config.yarn_rotary_scaling_factor = 4;
  config.yarn_original_max_position_embeddings = 8;
  config.yarn_mscale = 0.7;
  config.yarn_mscale_all_dim = 0.9;
  return config;
}

/// Gemma 2 and 3: norms with 1 + weight around the blocks, GeGLU, soft caps, a factor of the embedding, windows and two
/// rotary bases.
TransformerConfig gemma_style(int64_t num_heads, int64_t num_query_groups) {
  TransformerConfig config = llama_style(num_heads, num_query_groups);
  config.layernorm_placement = LayerNormPlacement::kSandwich;
  config.layernorm_zero_centered_gamma = true;
  config.activation_func = ActivationFunc::kGeluTanh;
  config.share_embeddings_and_output_weights = true;
  config.embedding_multiplier = std::sqrt(12.0);
  config.softmax_scale = 0.6;
  config.attn_logit_softcapping = 2;
  config.final_logit_softcapping = 3;
  config.window_size = {3, 0};
  config.window_attn_skip_freq = {.interval = 2, .per_layer = {}};
  config.rotary_base = 1000000;
  config.sliding_window_rotary_base = 100;
  return config;
}

/// OLMo 2 with Granite's multipliers: norms behind the blocks alone, one norm over all heads of queries and one of
/// keys.
TransformerConfig olmo_style(int64_t num_heads, int64_t num_query_groups) {
  TransformerConfig config = llama_style(num_heads, num_query_groups);
  config.layernorm_placement = LayerNormPlacement::kPost;
  config.qk_layernorm_across_heads = true;
  config.embedding_multiplier = 2;
  config.residual_multiplier = 0.4;
  config.logits_multiplier = 1.7;
  return config;
}

/// Qwen3-Next's gate on the output of attention.
TransformerConfig gated_style(int64_t num_heads, int64_t num_query_groups) {
  TransformerConfig config = llama_style(num_heads, num_query_groups);
  config.attention_output_gate = true;
  config.rotary_percent = 0.5;
  return config;
}

/// Positions that divide by the ranks.
int64_t length_for(int num_ranks) { return num_ranks == 5 ? 10 : 12; }

std::vector<TensorParallelCase> all_cases() {
  std::vector<TensorParallelCase> cases;
  const auto add = [&](const TransformerConfig& config, int num_ranks) {
    for (const bool sequence_parallel : {false, true})
      cases.push_back({.config = config,
                       .num_ranks = num_ranks,
                       .sequence_parallel = sequence_parallel,
                       .s = length_for(num_ranks)});
  };
  for (const int num_ranks : {2, 3, 4}) add(gpt2_style(12), num_ranks);
  add(gpt2_style(5), 5);
  add(llama_style(12, 6), 2);  // several groups a rank
  add(llama_style(12, 3), 3);  // one
  add(llama_style(12, 2), 4);  // two ranks share one
  add(llama_style(4, 1), 4);   // all ranks share one
  add(llama_style(10, 5), 5);
  add(gemma_style(12, 6), 2);
  add(gemma_style(4, 2), 4);
  add(olmo_style(12, 6), 3);
  add(olmo_style(4, 4), 4);
  add(gated_style(12, 6), 2);
  add(gated_style(8, 2), 4);
  for (const int num_ranks : {2, 4}) add(deepseek_style(8, 5), num_ranks);
  add(deepseek_style(3, {}), 3);
  for (const bool is_tied : {false, true}) {
    TransformerConfig further = llama_style(8, 2);  // predicts further tokens
    further.share_embeddings_and_output_weights = is_tied;
    further.mtp = {.num_layers = 2, .loss_scaling_factor = 0.7};
    add(further, 4);
  }
  TransformerConfig odd = llama_style(8, 2);  // further options that are cut or that add up
  odd.softmax_type = SoftmaxType::kLearnable;
  odd.add_bias_linear = true;
  odd.normalization = Normalization::kLayerNorm;
  add(odd, 4);
  return cases;
}

std::string describe(const TensorParallelCase& c) {
  return fmt::format("{} ranks, sequence parallel {}, {} heads in {} groups", c.num_ranks, c.sequence_parallel,
                     c.config.num_attention_heads, c.config.num_query_groups);
}

/// Largest departure from one rank's loss and gradients, in units of the bound that follows from the lengths of the
/// sums. Infinite where something is missing.
double departure(const TensorParallelCase& c, const StepResult& actual, const StepResult& expected,
                 std::string* worst) {
  const int64_t length = length_there_and_back(c.config, c.s, c.b * c.num_micro_batches);
  const DType dtype = c.config.params_dtype;
  double error = std::abs(actual.loss - expected.loss) / tolerance(dtype, length, std::abs(expected.loss));
  if (worst) *worst = "loss";
  for (const auto& [name, gradient] : expected.gradients) {
    const auto found = actual.gradients.find(name);
    if (found == actual.gradients.end() || found->second.size() != gradient.size()) return HUGE_VAL;
    double largest = 0, difference = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      largest = std::max(largest, std::abs(gradient[i]));
      const double d = std::abs(found->second[i] - gradient[i]);
      difference = std::max(difference, std::isnan(d) ? HUGE_VAL : d);
    }
    const double of_this = difference / tolerance(dtype, length, largest);
    if (of_this <= error) continue;
    error = of_this;
    if (worst) *worst = name;
  }
  return std::isnan(error) ? HUGE_VAL : error;
}

StepResult of_one_rank(TensorParallelCase c) {
  c.num_ranks = 1;
  c.sequence_parallel = false;
  c.fault = {};
  return run_step(c, {});
}

TEST(TensorParallelGpt, GivesTheLossAndEveryGradientOfOneRank) {
  for (const TensorParallelCase& c : all_cases()) {
    SCOPED_TRACE(describe(c));
    const StepResult one = of_one_rank(c), several = run_step(c, {});
    EXPECT_EQ(several.weights, one.weights);
    std::string worst;
    EXPECT_LE(departure(c, several, one, &worst), 1) << worst;
    EXPECT_TRUE(several.replicas_agree) << "what several ranks hold must stay the same bit for bit";
  }
}

/// The slope of the loss by one element of a weight, from losses at both sides of it.
double slope_of_loss(const TensorParallelCase& c, std::map<std::string, std::vector<double>> weights,
                     const std::string& name, size_t element) {
  double& value = weights.at(name)[element];
  const double center = value;
  value = center + kDifferenceStep;
  const double above = run_step(c, weights).loss;
  value = center - kDifferenceStep;
  return (above - run_step(c, weights).loss) / (2 * kDifferenceStep);
}

TEST(Gpt, GradientsOfLayersOfGemmaOlmoAndQwen3NextMatchFiniteDifferences) {
  for (const TransformerConfig& config : {gemma_style(4, 2), olmo_style(4, 2), gated_style(4, 2)}) {
    const TensorParallelCase c{.config = config, .s = 12, .num_micro_batches = 1};
    const StepResult step = run_step(c, {});
    for (const auto& [name, gradient] : step.gradients) {
      const auto largest =
          std::ranges::max_element(gradient, {}, [](double value) { return std::abs(value); }) - gradient.begin();
      const auto element = static_cast<size_t>(largest);
      EXPECT_NEAR(slope_of_loss(c, step.weights, name, element), gradient[element],
                  kGradientTolerance * std::max(1.0, std::abs(gradient[element])))
          << name;
      EXPECT_GT(std::abs(gradient[element]), 1e-6) << name;
    }
  }
}

TEST(TensorParallelGpt, OfGpt2sVocabularyGivesTheLossAndEveryGradientOfOneRank) {
  TensorParallelCase c{.config = gpt2_style(4), .num_ranks = 2, .sequence_parallel = true, .s = 4, .b = 1};
  c.config.vocab_size = 50257;
  c.config.padded_vocab_size = 50432;
  EXPECT_LE(departure(c, run_step(c, {}), of_one_rank(c), nullptr), 1);
}

TEST(TensorParallelGpt, OfDocumentsWithPositionsOfTheirOwnGivesTheLossAndEveryGradientOfOneRank) {
  for (const TransformerConfig& config : {gpt2_style(4), llama_style(8, 2), deepseek_style(8, 5)}) {
    const TensorParallelCase c{
        .config = config, .num_ranks = 4, .sequence_parallel = true, .s = 12, .has_documents = true};
    std::string worst;
    EXPECT_LE(departure(c, run_step(c, {}), of_one_rank(c), &worst), 1) << worst;
  }
}

TEST(TensorParallelGpt, InBf16WithAnFp32ResidualStreamGivesTheLossAndEveryGradientOfOneRank) {
  for (const bool sequence_parallel : {false, true}) {
    TensorParallelCase c{.config = llama_style(8, 2), .num_ranks = 4, .sequence_parallel = sequence_parallel, .s = 12};
    c.config.params_dtype = DType::kBFloat16;
    c.config.fp32_residual_connection = true;
    std::string worst;
    EXPECT_LE(departure(c, run_step(c, {}), of_one_rank(c), &worst), 1) << worst;
  }
}

TEST(TensorParallelGpt, SplitWeightGradientsAndOffloadGiveTheSameBits) {
  for (const TransformerConfig& config : {llama_style(8, 2), deepseek_style(8, 5)})
    for (const bool sequence_parallel : {false, true}) {
      TensorParallelCase c{.config = config, .num_ranks = 4, .sequence_parallel = sequence_parallel, .s = 12};
      const StepResult expected = run_step(c, {});
      c.weight_gradient = WeightGradient::kSplit;
      EXPECT_EQ(run_step(c, {}).gradients, expected.gradients);
      c.save = SavePolicy::kOffload;
      EXPECT_EQ(run_step(c, {}).gradients, expected.gradients);
    }
}

/// The most bytes that the step has held at once.
int64_t peak_bytes(const StepResult& result) {
  int64_t live = 0, peak = 0;
  for (const Arena::Event& event : result.events) {
    live += event.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

TEST(TensorParallelGpt, UpProjectionsOfLatentAttentionThatAreRepeatedGiveTheSameBitsInLessMemory) {
  for (TransformerConfig config : {deepseek_style(8, 5), deepseek_style(8, std::nullopt)})
    for (const bool sequence_parallel : {false, true}) {
      TensorParallelCase c{.config = config, .num_ranks = 4, .sequence_parallel = sequence_parallel, .s = 12};
      const StepResult plain = run_step(c, {});
      c.config.recompute_granularity = RecomputeGranularity::kSelective;
      for (const std::vector<RecomputeModule>& modules :
           {std::vector{RecomputeModule::kMlaUpProj},
            std::vector{RecomputeModule::kMlaUpProj, RecomputeModule::kCoreAttn, RecomputeModule::kLayerNorm}}) {
        c.config.recompute_modules = modules;
        const StepResult repeated = run_step(c, {});
        EXPECT_EQ(repeated.loss, plain.loss);
        EXPECT_EQ(repeated.gradients, plain.gradients);
        EXPECT_LT(peak_bytes(repeated), peak_bytes(plain));
        EXPECT_EQ(meta_events(c, 0), repeated.events);
      }
      c.weight_gradient = WeightGradient::kSplit;
      EXPECT_EQ(run_step(c, {}).gradients, plain.gradients);
    }
}

void expect_recompute_gives_the_same_bits(const TransformerConfig& config_of_plain) {
  for (const bool sequence_parallel : {false, true}) {
    const TensorParallelCase plain{
        .config = config_of_plain, .num_ranks = 4, .sequence_parallel = sequence_parallel, .s = 12};
    const StepResult expected = run_step(plain, {});
    std::vector<TransformerConfig> configs(3, plain.config);
    configs[0].recompute_granularity = configs[1].recompute_granularity = RecomputeGranularity::kFull;
    configs[0].recompute_method = RecomputeMethod::kUniform;
    configs[0].recompute_num_layers = 2;
    configs[1].recompute_method = RecomputeMethod::kBlock;
    configs[1].recompute_num_layers = 1;
    configs[2].recompute_granularity = RecomputeGranularity::kSelective;
    configs[2].recompute_modules = {RecomputeModule::kCoreAttn, RecomputeModule::kLayerNorm, RecomputeModule::kMlp};
    for (const TransformerConfig& config : configs) {
      TensorParallelCase c = plain;
      c.config = config;
      const StepResult actual = run_step(c, {});
      EXPECT_EQ(actual.loss, expected.loss);
      EXPECT_EQ(actual.gradients, expected.gradients);
    }
  }
}
TEST(TensorParallelGpt, RecomputeGivesTheSameBits) {
  expect_recompute_gives_the_same_bits(llama_style(8, 2));
  expect_recompute_gives_the_same_bits(deepseek_style(8, 5));
  expect_recompute_gives_the_same_bits(gated_style(8, 2));
}

TEST(TensorParallelGpt, AMetaRunOfARankHasTheAllocationsOfTheRealOne) {
  for (TensorParallelCase c : all_cases()) {
    SCOPED_TRACE(describe(c));
    const std::vector<Arena::Event> real = run_step(c, {}).events;
    EXPECT_EQ(meta_events(c, 0), real);
    EXPECT_EQ(meta_events(c, c.num_ranks - 1), real) << "ranks of a group are alike";
  }
}

void expect_logits(const std::vector<std::vector<double>>& ranks, const std::vector<double>& expected, int64_t length) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (const std::vector<double>& actual : ranks) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], tolerance(DType::kFloat64, length, largest)) << "logit " << i;
    EXPECT_EQ(actual, ranks[0]) << "all ranks hold the same bits";
  }
}

TEST(TensorParallelGpt, LogitsAreThoseOfOneRankOnEveryRank) {
  for (const TensorParallelCase& c : all_cases()) {
    SCOPED_TRACE(describe(c));
    TensorParallelCase one = c;
    one.num_ranks = 1;
    one.sequence_parallel = false;
    const std::vector<double> expected = run_logits(one, {})[0];
    const int64_t length = length_there(c.config, c.s);
    expect_logits(run_logits(c, {}), expected, length);
    if (!c.sequence_parallel) expect_logits(run_logits(c, 5), expected, length);  // one position cannot be cut
  }
}

/// Every collective of a step, done wrongly in one of two ways.
void expect_faults_to_show(TensorParallelCase c) {
  c.num_ranks = 2;
  c.s = 4;
  c.num_micro_batches = 1;
  c.faulty = -1;
  c.config.num_layers = 1;
  const StepResult one = of_one_rank(c);
  const StepResult faultless = run_step(c, {});
  ASSERT_LE(departure(c, faultless, one, nullptr), 1);
  ASSERT_GE(faultless.num_collectives, 8);
  for (c.faulty = 0; c.faulty < faultless.num_collectives; ++c.faulty)
    EXPECT_GT(departure(c, run_step(c, {}), one, nullptr), 100)
        << "collective " << c.faulty << (c.fault == Fault::kDropped ? " dropped" : " scaled") << ", " << describe(c);
}
TEST(TensorParallelGpt, NoCollectiveCanGoWrongUnnoticed) {
  for (const TransformerConfig& config : {llama_style(4, 1), deepseek_style(4, 5)})
    for (const bool sequence_parallel : {false, true})
      for (const Fault fault : {Fault::kDropped, Fault::kScaled})
        expect_faults_to_show({.config = config, .sequence_parallel = sequence_parallel, .fault = fault});
}

TEST(TensorParallelGpt, RefusesHeadsAndPositionsThatDoNotDivide) {
  EXPECT_ANY_THROW(run_step({.config = llama_style(6, 2), .num_ranks = 4, .s = 12}, {}));
  EXPECT_ANY_THROW(run_step({.config = llama_style(4, 2), .num_ranks = 4, .sequence_parallel = true, .s = 10}, {}));
}

/// Expects a step to throw this on any number of ranks.
void expect_rejection(const TensorParallelCase& c, const std::string& text) {
  for (const int num_ranks : {1, 2}) {
    TensorParallelCase of_ranks = c;
    of_ranks.num_ranks = num_ranks;
    try {
      run_step(of_ranks, {});
      ADD_FAILURE() << num_ranks << " ranks: was trained";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

TEST(TensorParallelGpt, RejectsPositionsBeyondTheTableOnAnyNumberOfRanks) {
  TransformerConfig config = gpt2_style(4);
  config.max_sequence_length = 32;
  expect_rejection({.config = config, .s = 48}, "48 positions of 12 elements are needed");
}

TEST(TensorParallelGpt, RejectsTokensBeyondTheVocabularyOnAnyNumberOfRanks) {
  for (const int64_t id : {37, 59, 60, -1}) {  // rows that pad the table, behind it, before it
    std::vector<int64_t> tokens(24, 1);
    tokens[14] = id;
    expect_rejection({.config = gpt2_style(4), .s = 12, .tokens = tokens, .labels = std::vector<int64_t>(24, 1)},
                     fmt::format("the token id {} at position 2 of sample 1", id));
  }
}

}  // namespace
}  // namespace megatron::testing
