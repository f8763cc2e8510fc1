// Checkpoints of Megatron's --ckpt-format torch as this program writes them, in training and by conversion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "commands/pretrain.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/models/gpt/gpt_family.h"
#include "tests/commands/checkpoint_run.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Returns the entries of a dict, or of an OrderedDict, which is an instance.
std::span<const pickle::Entry> entries_of(const pickle::Object& dict) {
  return dict.is_instance() ? std::span<const pickle::Entry>(dict.instance().entries) : dict.entries();
}
std::set<std::string> keys_of(const pickle::Object& dict) {
  std::set<std::string> keys;
  for (const pickle::Entry& entry : entries_of(dict))
    if (entry.key->kind() == pickle::Kind::kString) keys.insert(entry.key->as_string());
  return keys;
}
const pickle::Object& value_in(const pickle::Object& dict, const std::string& key) {
  for (const pickle::Entry& entry : entries_of(dict))
    if (entry.key->kind() == pickle::Kind::kString && entry.key->as_string() == key) return *entry.value;
  throw std::out_of_range(key);
}

TorchFile open_file(const FileSystem& files, const std::string& path) { return {files.open_for_reading(path), path}; }

void expect_same_tensor(const TorchFile& file, const pickle::Object& object, const TorchFile& other,
                        const pickle::Object& expected, const std::string& name) {
  const auto own = torch_tensor(object), wanted = torch_tensor(expected);
  ASSERT_TRUE(own && wanted) << name;
  EXPECT_EQ(own->shape, wanted->shape) << name;
  EXPECT_EQ(own->type, wanted->type) << name;
  EXPECT_EQ(file.read(*own), other.read(*wanted)) << name;
}

/// Converts a case to the form torch. @return the folder of the first rank
std::string converted_to_torch(const std::string& from, const ScratchDirectory& scratch) {
  const ToolResult done =
      checkpoint({"reshard", golden(from), "--save", scratch.file("new"), "--ckpt-format", "torch"});
  EXPECT_EQ(done.status, 0) << done.err;
  return scratch.file("new/iter_0000002/mp_rank_00");
}

TEST(TorchForm, HasTheEntriesOfMegatronsFilesForADistributedOptimizer) {
  const ScratchDirectory scratch;
  const PosixFileSystem files;
  const std::string ours = converted_to_torch("llama_1", scratch),
                    theirs = golden("legacy_1") + "/iter_0000002/mp_rank_00";
  const TorchFile own = open_file(files, ours + "/model_optim_rng.pt"),
                  golden_file = open_file(files, theirs + "/model_optim_rng.pt");
  EXPECT_EQ(keys_of(own.root()), keys_of(golden_file.root()));
  const pickle::Object &model = own.root().at("model"), &expected = golden_file.root().at("model");
  EXPECT_EQ(keys_of(model), keys_of(expected));
  for (const pickle::Entry& entry : entries_of(expected))
    if (torch_tensor(*entry.value))
      expect_same_tensor(own, value_in(model, entry.key->as_string()), golden_file, *entry.value,
                         entry.key->as_string());
  const auto groups_of = [](const TorchFile& file) {
    return file.root().at("optimizer").at("optimizer").at(common_state::kParamGroups).items();
  };
  ASSERT_EQ(groups_of(own).size(), groups_of(golden_file).size());
  for (size_t i = 0; i < groups_of(own).size(); ++i)
    EXPECT_EQ(keys_of(*groups_of(own)[i]), keys_of(*groups_of(golden_file)[i]));
  EXPECT_EQ(keys_of(*own.root().at("rng_state").items()[0]), keys_of(*golden_file.root().at("rng_state").items()[0]));

  const TorchFile buffers = open_file(files, ours + "/distrib_optim.pt"),
                  golden_buffers = open_file(files, theirs + "/distrib_optim.pt");
  const auto tensors_of = [](const TorchFile& file) -> const pickle::Object& {
    return *file.root().entries()[1].value->entries()[0].value;
  };
  EXPECT_TRUE(buffers.root().at("buckets_coalesced").as_bool());
  EXPECT_EQ(keys_of(tensors_of(buffers)), keys_of(tensors_of(golden_buffers)));
  EXPECT_EQ(tensors_of(buffers).at("numel_unpadded").as_int(),
            tensors_of(golden_buffers).at("numel_unpadded").as_int());
  EXPECT_EQ(checkpoint({"diff", scratch.file("new"), golden("legacy_1")}).status, 0);
}

TEST(TorchForm, NumbersTheStatesOfAPlainOptimizerAsMegatronDoes) {
  const ScratchDirectory scratch;
  const PosixFileSystem files;
  const TorchFile own = open_file(files, converted_to_torch("legacy_plain_1", scratch) + "/model_optim_rng.pt"),
                  theirs = open_file(files, golden("legacy_plain_1") + "/iter_0000002/mp_rank_00/model_optim_rng.pt");
  EXPECT_EQ(keys_of(own.root()), keys_of(theirs.root()));
  EXPECT_EQ(keys_of(own.root().at("model")), keys_of(theirs.root().at("model")));
  const pickle::Object &outer = own.root().at("optimizer"), &golden_outer = theirs.root().at("optimizer");
  EXPECT_EQ(keys_of(outer), keys_of(golden_outer));
  const auto states = outer.at("optimizer").at(common_state::kState).entries(),
             golden_states = golden_outer.at("optimizer").at(common_state::kState).entries();
  ASSERT_EQ(states.size(), golden_states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    EXPECT_EQ(states[i].key->as_int(), golden_states[i].key->as_int());
    EXPECT_EQ(keys_of(*states[i].value), keys_of(*golden_states[i].value));
    for (const char* name : {"step", "exp_avg", "exp_avg_sq"})
      expect_same_tensor(own, states[i].value->at(name), theirs, golden_states[i].value->at(name), name);
  }
  const auto mains = outer.at("fp32_from_fp16_params").items(),
             golden_mains = golden_outer.at("fp32_from_fp16_params").items();
  ASSERT_EQ(mains.size(), golden_mains.size());
  for (size_t group = 0; group < mains.size(); ++group) {
    ASSERT_EQ(mains[group]->items().size(), golden_mains[group]->items().size());
    for (size_t i = 0; i < mains[group]->items().size(); ++i)
      expect_same_tensor(own, *mains[group]->items()[i], theirs, *golden_mains[group]->items()[i], "main parameter");
  }
}

/// A rank whose folder is written does not change what the others read, which write theirs from the same files.
TEST(TorchForm, OfOneRankBesideTorchDistIsNotReadYet) {
  const ScratchDirectory scratch;
  std::filesystem::copy(golden("llama_1"), scratch.file("both"), std::filesystem::copy_options::recursive);
  const std::string rank = scratch.file("both/iter_0000002/mp_rank_00_001");
  std::filesystem::create_directory(rank);
  std::ofstream(rank + "/model_optim_rng.pt") << "a part";
  const ToolResult compared = checkpoint({"diff", scratch.file("both"), golden("llama_1")});
  EXPECT_EQ(compared.status, 0) << compared.out << compared.err;
}

TEST(TorchForm, KeepsEveryTensorOnEveryLayout) {
  struct Case {
    std::string name, tensor, pipeline;
  };
  for (const Case& one : {Case{"llama_tp2pp2", "2", "2"}, Case{"llama_dp2", "2", "1"}, Case{"gpt2_pp2", "1", "2"},
                          Case{"llama_plainopt", "2", "2"}, Case{"mla_1", "2", "2"}, Case{"moe_1", "2", "1"},
                          Case{"moe_ep2", "1", "2"}, Case{"moemix_1", "2", "2"}, Case{"legacy_plain_1", "1", "2"}}) {
    SCOPED_TRACE(one.name);
    const ScratchDirectory scratch;
    const ToolResult done =
        checkpoint({"reshard", golden(one.name), "--save", scratch.file("new"), "--ckpt-format", "torch",
                    "--target-tensor-parallel-size", one.tensor, "--target-pipeline-parallel-size", one.pipeline});
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(checkpoint({"verify", scratch.file("new")}).status, 0);
    const ToolResult compared = checkpoint({"diff", scratch.file("new"), golden(one.name)});
    EXPECT_EQ(compared.status, 0) << compared.out << compared.err;
  }
}

Words training_words(const Words& more) {
  Words words = {"--num-layers",
                 "2",
                 "--hidden-size",
                 "16",
                 "--num-attention-heads",
                 "4",
                 "--seq-length",
                 "16",
                 "--max-position-embeddings",
                 "16",
                 "--vocab-size",
                 "61",
                 "--make-vocab-size-divisible-by",
                 "16",
                 "--micro-batch-size",
                 "1",
                 "--global-batch-size",
                 "4",
                 "--train-iters",
                 "4",
                 "--lr",
                 "0.01",
                 "--lr-decay-style",
                 "constant",
                 "--bf16",
                 "--tokenizer-type",
                 "NullTokenizer",
                 "--mock-data",
                 "--log-interval",
                 "1",
                 "--eval-iters",
                 "0",
                 "--device",
                 "cpu",
                 "--num-threads",
                 "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Trained {
  int status = 0;
  std::vector<std::string> losses;
  std::string err;
};

Trained train(const Words& words) {
  std::ostringstream out, err;
  Trained run;
  run.status = pretrain_command(gpt_family(), words, out, err);
  run.err = err.str();
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find("lm loss:"); at != std::string::npos && line.find("iteration") != std::string::npos)
      run.losses.push_back(line.substr(at, line.find('|', at) - at));
  return run;
}

class TorchFormTraining : public ::testing::TestWithParam<Words> {};
INSTANTIATE_TEST_SUITE_P(
    Layouts, TorchFormTraining,
    ::testing::Values(Words{"--nproc-per-node", "8", "--tensor-model-parallel-size", "2",
                            "--pipeline-model-parallel-size", "2", "--use-distributed-optimizer"},
                      Words{"--nproc-per-node", "4", "--tensor-model-parallel-size", "2"},
                      Words{"--nproc-per-node", "2", "--pipeline-model-parallel-size", "2", "--transformer-impl",
                            "local", "--untie-embeddings-and-output-weights"},
                      Words{"--nproc-per-node", "4", "--num-experts", "4", "--expert-model-parallel-size", "2",
                            "--disable-bias-linear", "--pipeline-model-parallel-size", "2",
                            "--use-distributed-optimizer"}));

TEST_P(TorchFormTraining, ResumesBitForBitAndHoldsWhatTorchDistHolds) {
  const ScratchDirectory scratch;
  const auto with = [&](const Words& more) {
    Words words = GetParam();
    words.insert(words.end(), more.begin(), more.end());
    return training_words(words);
  };
  const Trained whole = train(with({"--save-interval", "2", "--save", scratch.file("torch_dist")}));
  ASSERT_EQ(whole.status, 0) << whole.err;
  ASSERT_EQ(whole.losses.size(), 4);
  const Trained first = train(with(
      {"--save-interval", "2", "--exit-interval", "2", "--ckpt-format", "torch", "--save", scratch.file("torch")}));
  ASSERT_EQ(first.status, 0) << first.err;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.file("torch/iter_0000002"))) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name.starts_with("mp_rank_") || name.starts_with("tokenizer")) << name;
  }
  const ToolResult compared = checkpoint({"diff", scratch.file("torch"), scratch.file("torch_dist/iter_0000002")});
  EXPECT_EQ(compared.status, 0) << compared.out << compared.err;
  const Trained second = train(with({"--load", scratch.file("torch")}));
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.losses, ElementsAre(whole.losses[2], whole.losses[3]));
}

TEST(TorchForm, SavesThatWereCutOffLeaveTheOlderCheckpoint) {
  const ScratchDirectory scratch;
  const Words words = training_words({"--save-interval", "2", "--ckpt-format", "torch", "--save", scratch.path()});
  ASSERT_EQ(train(words).status, 0);
  std::filesystem::rename(scratch.file("iter_0000004"), scratch.file("iter_0000004.saving"));
  PosixFileSystem files;
  CheckpointDirectory directory(files, scratch.path());
  EXPECT_EQ(directory.latest().found.value().iteration, 2);
  EXPECT_THAT(directory.complete(), ElementsAre(2));
}

TEST(TorchForm, SaysWhatItCannotHold) {
  const ScratchDirectory scratch;
  const auto refusal = [&](const Words& more) {
    Words words = {"--save-interval", "2", "--ckpt-format", "torch", "--save", scratch.path()};
    words.insert(words.end(), more.begin(), more.end());
    return train(training_words(words)).err;
  };
  EXPECT_THAT(refusal({"--async-save"}), HasSubstr("--ckpt-format torch with --async-save"));
  EXPECT_THAT(refusal({"--use-distributed-optimizer", "--dist-ckpt-optim-form", "dp_reshardable"}),
              HasSubstr("distrib_optim.pt has a form of its own"));
  EXPECT_THAT(refusal({"--verify-integrity"}), HasSubstr("integrity.json covers torch_dist alone"));
  EXPECT_THAT(checkpoint({"reshard", golden("moe_ep2"), "--save", scratch.file("new"), "--ckpt-format", "torch",
                          "--target-tensor-parallel-size", "2", "--target-expert-tensor-parallel-size", "1"})
                  .err,
              HasSubstr("its folders have one number for both"));
}

}  // namespace
}  // namespace megatron::testing
