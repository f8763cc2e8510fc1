// Checkpoints across layouts of ranks: what one layout saves, any other loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "megatron/base/host_memory_files.h"
#include "megatron/comm/threads/rank_threads.h"
#include "megatron/dist_checkpointing/checkpoint_diff.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/element_type.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "tests/parallel/layout_checkpoint.h"
#include "tests/parallel/layout_run.h"
#include "tests/testing/scratch_directory.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

const std::vector<Layout> kCheckpointLayouts = {
    {"", 1},
    {"", 3},
    {" --pipeline-model-parallel-size 2", 4},
    {" --pipeline-model-parallel-size 3 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 2", 3},
    {" --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", 2},
    {" --pipeline-model-parallel-size 2 --pipeline-schedule zb-v", 2},
    {" --tensor-model-parallel-size 2", 2},
    {" --tensor-model-parallel-size 4 --sequence-parallel", 4},
    {" --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", 8},
    {" --use-distributed-optimizer", 3},
    {" --use-distributed-optimizer --tensor-model-parallel-size 2", 4},
    {" --use-distributed-optimizer --pipeline-model-parallel-size 2 --overlap-grad-reduce --overlap-param-gather "
     "--ddp-num-buckets 3",
     4},
    {" --use-distributed-optimizer --num-distributed-optimizer-instances 2", 4},
    {" --context-parallel-size 2 --cp-comm-type all_gather", 4},
    {" --use-distributed-optimizer --tensor-model-parallel-size 2 --context-parallel-size 2", 4}};
/// Four others for each, so that all are loaded four times.
constexpr size_t kNumTargets = 4;
const Layout& target_of(size_t from, size_t number) {
  return kCheckpointLayouts[(from + 1 + 3 * number) % kCheckpointLayouts.size()];
}

constexpr const char* kModelSize = " --num-layers 4 --global-batch-size 12 --micro-batch-size 1 --lr 1e-3";

TEST(ParallelCheckpoint, MovesFromAnyLayoutToAnyOtherBitForBit) {
  for (const std::string& model : {gpt2_like(kModelSize), llama_like(std::string(kModelSize) + " --bf16")})
    for (size_t i = 0; i < kCheckpointLayouts.size(); ++i) {
      const Layout& from = kCheckpointLayouts[i];
      const ScratchDirectory first;
      continue_to(model + saving(first), from, 2);
      const State expected = state_of(model + loading(first));
      EXPECT_EQ(expected.iteration, 2);
      EXPECT_EQ(expected.consumed_samples, 24);
      for (size_t number = 0; number < kNumTargets; ++number) {
        const Layout& to = target_of(i, number);
        const ScratchDirectory second;
        continue_to(model + loading(first) + saving(second), to, 2);
        EXPECT_EQ(state_of(model + loading(second)), expected) << from.words << " to " << to.words;
      }
    }
}

/// Moves a checkpoint from each of some layouts to the next one.
void expect_to_move_bit_for_bit(const std::string& model) {
  const std::vector<Layout> layouts = {{"", 1},
                                       {" --tensor-model-parallel-size 4 --sequence-parallel", 4},
                                       {" --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", 4},
                                       {" --use-distributed-optimizer --tensor-model-parallel-size 2", 4}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    const ScratchDirectory first, second;
    continue_to(model + saving(first), layouts[i], 2);
    continue_to(model + loading(first) + saving(second), layouts[(i + 1) % layouts.size()], 2);
    EXPECT_EQ(state_of(model + loading(second)), state_of(model + loading(first))) << layouts[i].words;
  }
}

TEST(ParallelCheckpoint, MovesModelsWithLatentAttentionAndFurtherTokensBitForBit) {
  expect_to_move_bit_for_bit(
      gpt2_like(std::string(kModelSize) +
                " --bf16 --position-embedding-type rope --normalization RMSNorm --disable-bias-linear --swiglu "
                "--untie-embeddings-and-output-weights --multi-latent-attention --q-lora-rank 11 --kv-lora-rank 13 "
                "--qk-head-dim 5 --qk-pos-emb-head-dim 6 --v-head-dim 7 --qk-layernorm --mtp-num-layers 2"));
}

TEST(ParallelCheckpoint, MovesModelsWithGatesOnAttentionBitForBit) {
  expect_to_move_bit_for_bit(llama_like(std::string(kModelSize) + " --bf16 --attention-output-gate"));
}

TEST(ParallelCheckpoint, ResumesWithQkClipBitForBit) {
  const std::string model =
      llama_like(std::string(kModelSize) + " --bf16 --init-method-std 0.5 --qk-clip --qk-clip-threshold 1");
  const ScratchDirectory whole, first, second;
  continue_to(model + saving(whole), {}, 4);
  continue_to(model + saving(first), {}, 2);
  continue_to(model + loading(first) + saving(second), {}, 4);
  EXPECT_EQ(state_of(model + loading(second)), state_of(model + loading(whole)));
}

TEST(ParallelCheckpoint, MovesMainParamsInTwoHalvesAndInBf16BitForBit) {
  const std::string halves = llama_like(std::string(kModelSize) +
                                        " --bf16 --use-distributed-optimizer --use-precision-aware-optimizer "
                                        "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16");
  const std::vector<Layout> layouts = {{"", 3}, {" --tensor-model-parallel-size 2", 4}, {" --ddp-num-buckets 3", 2}};
  for (const std::string& model : {halves, halves + " --main-params-dtype bf16"})
    for (size_t i = 0; i < layouts.size(); ++i) {
      const ScratchDirectory first, second;
      continue_to(model + saving(first), layouts[i], 2);
      continue_to(model + loading(first) + saving(second), layouts[(i + 1) % layouts.size()], 2);
      EXPECT_EQ(state_of(model + loading(second)), state_of(model + loading(first))) << layouts[i].words;
    }
}

/// Values in bf16 are exact in fp32; the other way they round to nearest, main parameters as the weights did.
TEST(ParallelCheckpoint, MovesBetweenEightTwelveAndEighteenBytesAParameter) {
  const std::string eighteen = llama_like(std::string(kModelSize) + " --bf16");
  const std::string twelve = eighteen + " --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16";
  for (const char* optimizer : {"", " --use-distributed-optimizer"})
    for (const std::string& form : {eighteen, twelve}) {
      SCOPED_TRACE(form + optimizer);
      const std::string eight = twelve + " --main-params-dtype bf16" + optimizer, other = form + optimizer;
      const ScratchDirectory first, second;
      continue_to(eight + saving(first), {}, 2);
      EXPECT_EQ(state_of(other + loading(first)), state_of(eight + loading(first)));
      continue_to(other + loading(first) + saving(second), {}, 4);
      const State from = state_of(other + loading(second)), to = state_of(eight + loading(second));
      EXPECT_EQ(to.weights, from.weights);
      ASSERT_EQ(to.optimizer.size(), from.optimizer.size());
      for (size_t i = 0; i < to.optimizer.size(); ++i)
        ASSERT_LE(std::abs(to.optimizer[i] - from.optimizer[i]),
                  epsilon(DType::kBFloat16) / 2 * std::abs(from.optimizer[i]));
      EXPECT_EQ(continue_to(eight + loading(second), {}, 5).size(), 1U);
    }
}

/// With gradients clipped to nothing weights decay by a part of the distance of neighbours in bf16 a step: what they
/// are then is what each element was rounded to.
TEST(ParallelCheckpoint, Bf16MainParamsAreRoundedAlikeOnEveryLayout) {
  const std::string model =
      llama_like(std::string(kModelSize) + " --clip-grad 1e-30 --weight-decay 0.1 --lr 1e-2 --bf16 " +
                 "--use-precision-aware-optimizer --main-params-dtype bf16");
  const auto weights_after = [&](const Layout& layout, int64_t num_steps) {
    const ScratchDirectory directory;
    continue_to(model + saving(directory), layout, num_steps);
    return state_of(model + loading(directory)).weights;
  };
  const std::vector<double> start = weights_after({}, 0), expected = weights_after({}, 3);
  int64_t num_changed = 0;
  for (size_t i = 0; i < start.size(); ++i) num_changed += start[i] != expected[i];
  EXPECT_GT(num_changed, std::ssize(start) / 4) << "3 steps of 0.1 % of weights whose neighbours are 0.4 to 0.8 % away";
  EXPECT_LT(num_changed, std::ssize(start) * 3 / 4);
  for (const Layout& layout : kCheckpointLayouts) EXPECT_EQ(weights_after(layout, 3), expected) << layout.words;
}

TEST(ParallelCheckpoint, RanksThatFindDifferentOnesAreRefused) {
  const ScratchDirectory directory;
  const std::string words = gpt2_like(kModelSize);
  continue_to(words + saving(directory), {}, 1);
  const auto load = [](Trainer& trainer) {
    PosixFileSystem disk;
    HostMemoryFiles elsewhere;
    FileSystem& files = trainer.groups().world.rank() == 1 ? static_cast<FileSystem&>(elsewhere) : disk;
    Checkpointer(files, trainer.config(), {}).load(trainer);
  };
  EXPECT_THAT([&] { run_layout(words + loading(directory), 3, load); },
              ::testing::ThrowsMessage<RankFailure>(::testing::HasSubstr(") on ranks 0, 2, none on rank 1. Give")));
}

TEST(ParallelCheckpoint, RanksWhoseCheckpointsHoldOtherWeightsOfTheSameIterationAreRefused) {
  const ScratchDirectory first, second;
  continue_to(gpt2_like(kModelSize) + saving(first), {}, 1);
  continue_to(gpt2_like(kModelSize + std::string(" --seed 77")) + saving(second), {}, 1);
  const auto load = [&](Trainer& trainer) {
    PosixFileSystem files;
    PretrainConfig config = trainer.config();
    if (trainer.groups().world.rank() == 1) config.checkpoint.load = second.path();
    Checkpointer(files, config, {}).load(trainer);
  };
  EXPECT_THAT([&] { run_layout(gpt2_like(kModelSize) + loading(first), 3, load); },
              ::testing::ThrowsMessage<RankFailure>(::testing::ContainsRegex(
                  "different checkpoints: iteration 1 .*on ranks 0, 2, iteration 1 .*on rank 1. Give")));
}

TEST(ParallelCheckpoint, OfADistributedOptimizerHasMegatronsNamesAndTheGroupsOfTheWholeModel) {
  const Layout embedding_alone{
      " --use-distributed-optimizer --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout E|t*4L", 2};
  for (const std::string precision : {" --bf16", ""}) {
    const ScratchDirectory directory;
    continue_to(llama_like(kModelSize + precision) + saving(directory), embedding_alone, 1);
    const PosixFileSystem files;
    const CheckpointReader reader(files, directory.file("iter_0000001"), Verify::kChecksums);
    EXPECT_TRUE(reader.has_tensor("optimizer.state.param.embedding.word_embeddings.weight"));
    EXPECT_FALSE(reader.has_tensor("optimizer.state.fp32_param.embedding.word_embeddings.weight"));
    const CheckpointReader::CommonState common = reader.read_common_state();
    EXPECT_EQ(reader.metadata().tensors.at("optimizer.state.param.decoder.layers.mlp.linear_fc1.weight").type,
              element_type_of(DType::kFloat32));
    const pickle::Object& optimizer = common.state().at("optimizer");
    EXPECT_EQ(optimizer.at("param_state_sharding_type").as_string(), "fully_reshardable");
    EXPECT_EQ(common.state().at("content_metadata").at("distrib_optim_sharding_type").as_string(), "fully_reshardable");
    std::vector<double> decays;  // norms, which do not decay, are on the other stage
    for (const pickle::Object* group : optimizer.at("optimizer").at("param_groups").items())
      decays.push_back(group->at("wd_mult").as_float());
    EXPECT_EQ(decays, (std::vector<double>{1, 0}));
  }
}

TEST(ParallelCheckpoint, TrainingGoesOnAsOnOneRank) {
  for (const std::string& model : {gpt2_like(kModelSize), llama_like(kModelSize)}) {
    const std::string words = model + " --fp64";
    const std::vector<double> whole = continue_to(words, {}, 5);
    for (size_t i = 0; i < kCheckpointLayouts.size(); ++i) {
      const ScratchDirectory directory;
      continue_to(words + saving(directory), kCheckpointLayouts[i], 2);
      for (size_t number = 0; number < 2; ++number) {
        const Layout& to = target_of(i, number);
        const std::vector<double> losses = continue_to(words + loading(directory), to, 5);
        ASSERT_EQ(losses.size(), 3);
        for (size_t k = 0; k < losses.size(); ++k)
          EXPECT_NEAR(losses[k], whole[k + 2], 1e-11) << kCheckpointLayouts[i].words << " to " << to.words;
      }
    }
  }
}

TEST(ParallelCheckpoint, EveryRankWritesItsShare) {
  const ScratchDirectory directory;
  continue_to(gpt2_like(kModelSize) + saving(directory), kCheckpointLayouts[2], 1);
  uintmax_t least = UINTMAX_MAX, most = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto bytes = std::filesystem::file_size(directory.file(fmt::format("iter_0000001/__{}_0.distcp", rank)));
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  EXPECT_LT(most, 2 * least) << "replicas share the work";
}

TEST(ParallelCheckpoint, WithoutFullyParallelSaveTheFirstReplicaWritesAll) {
  const ScratchDirectory shared, single;
  const std::string words = gpt2_like(kModelSize);
  continue_to(words + saving(shared), {"", 3}, 1);
  continue_to(words + saving(single), {" --no-ckpt-fully-parallel-save", 3}, 1);
  EXPECT_TRUE(std::filesystem::exists(shared.file("iter_0000001/__2_0.distcp")));
  EXPECT_FALSE(std::filesystem::exists(single.file("iter_0000001/__1_0.distcp")));
  EXPECT_FALSE(std::filesystem::exists(single.file("iter_0000001/__2_0.distcp")));
  EXPECT_EQ(state_of(words + loading(single)), state_of(words + loading(shared)));
}

TEST(ParallelCheckpoint, TensorsOfAllStagesTogetherAreCompared) {
  const ScratchDirectory directory;
  const std::string words = gpt2_like(kModelSize), strict = " --dist-ckpt-strictness raise_all";
  continue_to(words + saving(directory), {" --pipeline-model-parallel-size 2", 2}, 1);
  const ScratchDirectory other;
  continue_to(words + loading(directory) + saving(other) + strict, {" --pipeline-model-parallel-size 2", 4}, 1);
  EXPECT_EQ(state_of(words + loading(other)), state_of(words + loading(directory)));
}

TEST(ParallelCheckpoint, AFailureOfOneRankLeavesTheLastCheckpoint) {
  const ScratchDirectory directory;
  const std::string words = gpt2_like(kModelSize);
  continue_to(words + saving(directory), kCheckpointLayouts[6], 1);
  try {
    run_layout(words + saving(directory) + loading(directory) + kCheckpointLayouts[6].words, 2, [&](Trainer& trainer) {
      PosixFileSystem files;
      Checkpointer checkpointer(files, trainer.config(), {});
      checkpointer.load(trainer);
      train(trainer, 1, 2);
      require<IoError>(trainer.groups().world.rank() == 0, "rank 1's disk is full");
      checkpointer.save(trainer);
    });
    FAIL() << "the save went through";
  } catch (const RankFailure& failure) {
    EXPECT_EQ(failure.rank, 1);
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("disk is full"));
  }
  EXPECT_EQ(state_of(words + loading(directory)).iteration, 1);
}

TEST(ParallelCheckpoint, RandomPairsOfLayoutsKeepEveryBitAndTheNextLoss) {
  OneRankCurves one_rank(2);
  for (const LayoutPair& pair : random_pairs(5, 24))
    EXPECT_EQ(reshard(pair, one_rank).failure, "") << pair.from.layout() << " to " << pair.to.layout();
}

/// Those of other ranks than these among them.
TEST(ParallelCheckpoint, MegatronsLoadIntoAnyLayout) {
  const std::vector<Layout> layouts = {{" --tensor-model-parallel-size 2", 2},
                                       {" --pipeline-model-parallel-size 2", 4},
                                       {" --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
                                        "--use-distributed-optimizer",
                                        8}};
  for (const char* folder : {"lm019/llama_1", "lm019/llama_tp2pp2", "lm019/llama_plainopt", "lm019/gpt2_1"}) {
    const std::string golden = golden_words(folder);
    const State expected = state_of(golden);
    EXPECT_EQ(expected.num_steps, kGoldenAdamSteps);
    for (const Layout& layout : layouts) {
      const ScratchDirectory directory;
      continue_to(golden + saving(directory), layout, golden_iteration(folder));
      EXPECT_EQ(state_of(golden + loading(directory)), expected) << folder << layout.words;
    }
  }
}

/// Runs of Megatron with one set of values: its default form of the distributed optimizer's state, and whole tensors.
TEST(ParallelCheckpoint, BucketsOfMegatronsDistributedOptimizerAreItsWholeTensors) {
  const State expected = state_of(golden_words("lm019/llama_1"));
  const std::string buckets = golden_words("lm019/llama_dp2");
  EXPECT_EQ(state_of(buckets), expected);
  const std::string two = golden_words("lm019/llama_tp2dp2"), tensor = " --tensor-model-parallel-size 2";
  for (const auto& [golden, layout] :
       {std::pair{buckets, Layout{" --use-distributed-optimizer", 2}},
        {buckets, Layout{" --use-distributed-optimizer --ddp-num-buckets 3", 4}},
        {buckets, Layout{" --pipeline-model-parallel-size 2", 2}},
        {two, Layout{tensor, 2}},
        {two, Layout{" --use-distributed-optimizer --global-batch-size 6 --use-checkpoint-opt_param-scheduler", 3}},
        {two, Layout{" --pipeline-model-parallel-size 2", 4}},
        {two, Layout{tensor + " --use-distributed-optimizer", 4}}}) {
    const ScratchDirectory directory;
    continue_to(golden + saving(directory), layout, golden_iteration("lm019/llama_dp2"));
    EXPECT_EQ(state_of(golden + loading(directory)), expected) << layout.words;
  }
}

/// The same run saves buckets, and whole tensors: any layout loads the same bits of both.
TEST(ParallelCheckpoint, BucketsOfOneLayoutLoadIntoAnyOther) {
  const std::string dense = std::string(kModelSize) + " --bf16";
  const std::string experts =
      " --num-layers 4 --micro-batch-size 1 --bf16 --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 16";
  const std::string stages = " --pipeline-model-parallel-size 2", tensor = " --tensor-model-parallel-size 2";
  const std::string virtual_stages = " --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1";
  const std::string small_buckets = " --overlap-grad-reduce --ddp-bucket-size 1000";
  struct Case {
    std::string model;
    Layout from, to;
  };
  const std::vector<Case> cases = {
      {gpt2_like(dense), {small_buckets, 2}, {tensor, 2}},
      {gpt2_like(dense), {tensor + stages, 4}, {" --global-batch-size 6 --use-checkpoint-opt_param-scheduler", 3}},
      {gpt2_like(dense + " --transformer-impl local"), {virtual_stages, 4}, {tensor, 2}},
      {llama_like(dense), {tensor + stages + small_buckets, 8}, {stages, 2}},
      {llama_like(dense), {stages + " --pipeline-model-parallel-layout E|t*4L", 2}, {tensor, 4}},
      {llama_like(experts), {tensor + " --sequence-parallel", 2}, {"", 2}},
      {llama_like(experts + " --moe-grouped-gemm"),
       {" --expert-model-parallel-size 2" + stages, 4},
       {tensor + " --sequence-parallel", 2}},
      {llama_like(experts + " --moe-layer-freq 2"), {" --expert-model-parallel-size 2", 4}, {"", 1}},
      {llama_like(experts),
       {tensor + " --sequence-parallel --expert-model-parallel-size 2 --expert-tensor-parallel-size 1", 4},
       {" --expert-model-parallel-size 4", 4}}};
  for (const auto& [model, from, to] : cases) {
    SCOPED_TRACE(model + from.words);
    const std::string words = model + " --use-distributed-optimizer";
    const ScratchDirectory whole, buckets, moved;
    continue_to(words + saving(whole), from, 2);
    continue_to(words + saving(buckets) + " --dist-ckpt-optim-form dp_reshardable", from, 2);
    const PosixFileSystem files;
    const CheckpointReader reader(files, buckets.file("iter_0000002"), Verify::kChecksums);
    EXPECT_TRUE(bucketed_keys::are_in(reader.metadata()));
    EXPECT_EQ(reader.optimizer_problem(), "");
    EXPECT_THAT(
        compare_checkpoints(reader, CheckpointReader(files, whole.file("iter_0000002"), Verify::kChecksums), {}),
        ::testing::IsEmpty());
    EXPECT_EQ(state_of(words + loading(buckets)), state_of(words + loading(whole)));
    continue_to(words + loading(buckets) + saving(moved), to, 2);
    EXPECT_EQ(state_of(words + loading(moved)), state_of(words + loading(whole))) << to.words;
  }
}

/// One state of generators for each tensor and pipeline rank, one extra state for each module, whatever the replicas.
TEST(ParallelCheckpoint, EveryLayoutStoresTheObjectsThatMegatronAsksFor) {
  const auto objects_in = [](const std::string& path) {
    const PosixFileSystem files;
    const CheckpointReader reader(files, path, Verify::kChecksums);
    std::vector<std::string> keys;
    for (const auto& [key, item] : reader.metadata().objects) keys.push_back(key);
    return keys;
  };
  const std::string folder = "lm019/llama_tp2pp2";
  const int64_t iteration = golden_iteration(folder);
  const std::string name = fmt::format("iter_{:07d}", iteration);
  std::vector<std::string> expected = objects_in(golden_checkpoints() + folder + "/saved/" + name);
  expected.emplace_back("decoder.final_layernorm._extra_state/shard_0_1");
  const ScratchDirectory directory, lean;
  const Layout layout{" --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", 8};
  continue_to(golden_words(folder) + saving(directory), layout, iteration);
  EXPECT_THAT(objects_in(directory.file(name)), ::testing::UnorderedElementsAreArray(expected));
  continue_to(golden_words(folder) + " --no-save-rng --ckpt-drop-redundant-extra-state" + saving(lean), layout,
              iteration);
  std::erase_if(expected, [](const std::string& key) {
    return key.starts_with("rng_state/") || key.find("_extra_state") != std::string::npos;
  });
  EXPECT_THAT(objects_in(lean.file(name)), ::testing::UnorderedElementsAreArray(expected));
}

}  // namespace
}  // namespace megatron::testing
