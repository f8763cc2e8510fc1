// `megatron checkpoint reshard` on checkpoints that Megatron-LM has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "commands/pretrain.h"
#include "megatron/dist_checkpointing/bucketed_optimizer.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/models/gpt/gpt_family.h"
#include "tests/commands/checkpoint_run.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Words reshard(const std::string& from, const std::string& to, const Words& more) {
  Words words = {"reshard", from, "--save", to};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words sizes(const std::string& tensor, const std::string& pipeline) {
  return {"--target-tensor-parallel-size", tensor, "--target-pipeline-parallel-size", pipeline};
}

/// Iteration 2, where all cases are.
CheckpointReader open_saved(const FileSystem& files, const std::string& folder) {
  return {files, folder + "/iter_0000002", Verify::kChecksums};
}

Words golden_llama_flags() {
  return {"--num-layers",
          "2",
          "--hidden-size",
          "24",
          "--num-attention-heads",
          "4",
          "--kv-channels",
          "6",
          "--seq-length",
          "37",
          "--max-position-embeddings",
          "37",
          "--padded-vocab-size",
          "104",
          "--vocab-size",
          "101",
          "--micro-batch-size",
          "1",
          "--global-batch-size",
          "4",
          "--exit-interval",
          "5",
          "--train-iters",
          "50",
          "--lr",
          "0.01",
          "--min-lr",
          "0.001",
          "--lr-decay-style",
          "cosine",
          "--lr-warmup-iters",
          "1",
          "--lr-decay-iters",
          "50",
          "--weight-decay",
          "0.1",
          "--bf16",
          "--tokenizer-type",
          "NullTokenizer",
          "--mock-data",
          "--position-embedding-type",
          "rope",
          "--normalization",
          "RMSNorm",
          "--disable-bias-linear",
          "--swiglu",
          "--untie-embeddings-and-output-weights",
          "--group-query-attention",
          "--num-query-groups",
          "2",
          "--ffn-hidden-size",
          "40",
          "--use-distributed-optimizer",
          "--log-interval",
          "1",
          "--eval-iters",
          "0",
          "--device",
          "cpu",
          "--num-threads",
          "1"};
}

TEST(CheckpointReshard, KeepsEveryTensorOfEveryFormOnAnotherLayout) {
  for (const std::string name : {"llama_1", "llama_tp2pp2", "llama_dp2", "llama_tp2dp2", "llama_plainopt", "gpt2_pp2",
                                 "mla_1", "moe_1", "moe_ep2", "moemix_1", "legacy_1", "legacy_plain_1", "legacy_pp2"}) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const std::string to = scratch.file("new");
    const ToolResult done = checkpoint(reshard(golden(name), to, sizes("2", "2")));
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(checkpoint({"verify", to}).status, 0);
    const ToolResult compared = checkpoint({"diff", to, golden(name)});
    EXPECT_EQ(compared.status, 0) << compared.out << compared.err;
    const nlohmann::json report = checkpoint({"inspect", to, "--json"}).json();
    EXPECT_EQ(report["layout"]["tensor"], 2);
    EXPECT_EQ(report["layout"]["pipeline"], 2);
    EXPECT_EQ(report["iteration"], 2);
  }
}

TEST(CheckpointReshard, BackToTheFirstLayoutHasAllThatWasStored) {
  for (const std::string name : {"llama_1", "llama_plainopt"}) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    ASSERT_EQ(checkpoint(reshard(golden(name), scratch.file("four"), sizes("2", "2"))).status, 0);
    ASSERT_EQ(checkpoint(reshard(scratch.file("four"), scratch.file("one"), sizes("1", "1"))).status, 0);
    const PosixFileSystem files;
    const CheckpointReader first = open_saved(files, golden(name)), last = open_saved(files, scratch.file("one"));
    for (const auto& [key, tensor] : first.metadata().tensors)
      EXPECT_EQ(last.read_whole_tensor(key), first.read_whole_tensor(key)) << key;
    EXPECT_EQ(last.metadata().tensors.size(), first.metadata().tensors.size());
    std::set<std::string> stored, again;
    for (const auto& [key, item] : first.metadata().objects)
      if (!key.starts_with("rerun_state")) stored.insert(key);
    for (const auto& [key, item] : last.metadata().objects) again.insert(key);
    EXPECT_EQ(again, stored);
  }
}

/// The ranks of Megatron's run wrote these files, and each of their tensors has the parts that they had.
TEST(CheckpointReshard, DividesTensorsAndFilesAsMegatronsRanksDo) {
  const ScratchDirectory scratch;
  ASSERT_EQ(checkpoint(reshard(golden("llama_1"), scratch.file("new"), sizes("2", "2"))).status, 0);
  const PosixFileSystem files;
  const CheckpointReader theirs = open_saved(files, golden("llama_tp2pp2")),
                         ours = open_saved(files, scratch.file("new"));
  const auto parts_of = [](const GlobalTensor& tensor) {
    std::set<std::pair<std::string, std::string>> parts;  // file; the box as text
    for (const StoredChunk& chunk : tensor.chunks)
      parts.emplace(chunk.item.file, fmt::format("{} {}", chunk.box.offsets, chunk.box.sizes));
    return parts;
  };
  for (const auto& [key, tensor] : theirs.metadata().tensors) {
    std::set<std::string> wanted, found;
    for (const auto& [file, box] : parts_of(tensor)) wanted.insert(box);
    for (const auto& [file, box] : parts_of(ours.metadata().tensors.find(key)->second)) found.insert(box);
    EXPECT_EQ(found, wanted) << key;
    const bool is_cut = wanted.size() > 2;  // else one tensor-parallel rank stores it, whichever
    if (is_cut) {
      EXPECT_EQ(parts_of(ours.metadata().tensors.find(key)->second), parts_of(tensor)) << key;
    }
  }
}

TEST(CheckpointReshard, MakesTheBucketsOfMegatronsRanks) {
  const ScratchDirectory scratch;
  Words words = sizes("2", "1");
  for (const char* word : {"--target-data-parallel-size", "2", "--dist-ckpt-optim-form", "dp_reshardable"})
    words.emplace_back(word);
  ASSERT_EQ(checkpoint(reshard(golden("llama_1"), scratch.file("new"), words)).status, 0);
  const PosixFileSystem files;
  const CheckpointReader theirs = open_saved(files, golden("llama_tp2dp2")),
                         ours = open_saved(files, scratch.file("new"));
  ASSERT_EQ(ours.metadata().tensors.size(), theirs.metadata().tensors.size());
  for (const auto& [key, tensor] : theirs.metadata().tensors) {
    const auto found = ours.metadata().tensors.find(key);
    ASSERT_NE(found, ours.metadata().tensors.end()) << key;
    EXPECT_EQ(found->second.shape, tensor.shape) << key;
    EXPECT_EQ(found->second.type, tensor.type) << key;
  }
  for (const int group : {0, 1})
    for (const char* name : {"per_bucket_numel", "per_bucket_numel_unpadded"}) {
      const std::string key = bucketed_keys::object(bucketed_keys::group(-1, group), name);
      const TorchFile own = ours.read_object(key), golden = theirs.read_object(key);
      const auto size_in = [](const TorchFile& file) {
        return file.root().items()[0]->items()[0]->entries()[0].value->items()[0]->as_int();
      };
      EXPECT_EQ(size_in(own), size_in(golden)) << key;
    }
  EXPECT_EQ(checkpoint({"diff", scratch.file("new"), golden("llama_tp2dp2")}).status, 0);
  const TorchFile groups = ours.read_object(bucketed_keys::object(bucketed_keys::group(-1, 1), "optimizer"));
  for (const pickle::Object* group : groups.root().items()[0]->at(common_state::kParamGroups).items())
    EXPECT_EQ(group->at("step").as_float(), 2);
}

TEST(CheckpointReshard, GivesExpertsRanksAndAnOptimizerOfTheirOwn) {
  const ScratchDirectory scratch;
  const Words words = {"--target-expert-parallel-size",        "2", "--target-tensor-parallel-size", "2",
                       "--target-expert-tensor-parallel-size", "1", "--dist-ckpt-optim-form",        "dp_reshardable"};
  const ToolResult done = checkpoint(reshard(golden("moe_ep2"), scratch.file("new"), words));
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("for 2 ranks: tensor 2, pipeline 1, expert 2, expert tensor 1, data 1"));
  const ToolResult compared = checkpoint({"diff", scratch.file("new"), golden("moe_ep2")});
  EXPECT_EQ(compared.status, 0) << compared.out << compared.err;
  const PosixFileSystem files;
  EXPECT_TRUE(bucketed_keys::are_chained(open_saved(files, scratch.file("new")).metadata()));
}

/// The losses that a run of the golden models' flags logs after loading, one a line.
std::vector<std::string> losses_of_run(const std::string& load, int64_t num_ranks, const Words& layout) {
  Words words = golden_llama_flags();
  for (const std::string& word :
       {std::string("--load"), load, std::string("--nproc-per-node"), fmt::format("{}", num_ranks)})
    words.push_back(word);
  words.insert(words.end(), layout.begin(), layout.end());
  std::ostringstream out, err;
  EXPECT_EQ(pretrain_command(gpt_family(), words, out, err), 0) << err.str();
  std::vector<std::string> losses;
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find("lm loss:"); at != std::string::npos && line.find("iteration") != std::string::npos)
      losses.push_back(line.substr(at, line.find('|', at) - at));
  return losses;
}

TEST(CheckpointReshard, LeavesTheLossesOfTrainingAsTheyAre) {
  const ScratchDirectory scratch;
  Words words = sizes("2", "2");
  for (const char* word : {"--dist-ckpt-optim-form", "dp_reshardable"}) words.emplace_back(word);
  ASSERT_EQ(checkpoint(reshard(golden("llama_dp2"), scratch.file("new"), words)).status, 0);
  const Words layout = {"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"};
  const std::vector<std::string> expected = losses_of_run(golden("llama_1"), 4, layout);
  EXPECT_EQ(expected.size(), 3);  // iterations 3 to 5
  EXPECT_EQ(losses_of_run(scratch.file("new"), 4, layout), expected);
}

TEST(CheckpointReshard, SaysWhatCannotBeDividedAndWritesNothing) {
  const ScratchDirectory scratch;
  const std::string to = scratch.file("new");
  const auto refusal = [&](const std::string& from, const Words& words) {
    const ToolResult refused = checkpoint(reshard(golden(from), to, words));
    EXPECT_NE(refused.status, 0);
    return refused.err;
  };
  EXPECT_THAT(refusal("llama_1", sizes("1", "3")), HasSubstr("2 layers cannot be divided evenly into 3 parts"));
  EXPECT_THAT(refusal("llama_1", sizes("64", "1")), HasSubstr("cannot be cut into 64 tensor-parallel parts"));
  EXPECT_THAT(refusal("llama_1", {"--target-expert-parallel-size", "2"}), HasSubstr("the model has no experts"));
  EXPECT_THAT(refusal("llama_plainopt", {"--dist-ckpt-optim-form", "dp_reshardable"}),
              HasSubstr("the state of the optimizer in"));
  EXPECT_THAT(refusal("moe_ep2", {"--target-expert-parallel-size", "4", "--target-data-parallel-size", "3"}),
              HasSubstr("Give a multiple of --target-data-parallel-size 4"));
  EXPECT_FALSE(std::filesystem::exists(to));
  EXPECT_THAT(checkpoint({"reshard", golden("llama_1")}).err, HasSubstr("--save is missing"));
  EXPECT_THAT(checkpoint({"verify", "x", "--target-data-parallel-size", "2"}).err, HasSubstr("goes with reshard"));
}

}  // namespace
}  // namespace megatron::testing
