// `megatron checkpoint` on checkpoints that Megatron-LM has written (tests/golden/checkpoint), whole and damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "commands/exit_code.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/dist_checkpointing/integrity.h"
#include "megatron/dist_checkpointing/safetensors_folder.h"
#include "megatron/dist_checkpointing/save_lock.h"
#include "tests/commands/checkpoint_run.h"
#include "tests/dist_checkpointing/small_checkpoint.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"
#include "tests/testing/words.h"

namespace megatron::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A copy that a test may damage.
std::string copy_of_golden(const std::string& name, const ScratchDirectory& scratch) {
  std::filesystem::copy(golden(name), scratch.file(name), std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.file(name)))
    std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
  return scratch.file(name);
}

void flip_byte(const std::string& path, int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 1));
}

/// One float32 tensor `key` of two rows.
void save_tensor(const std::string& folder, int64_t iteration, const std::string& key, std::vector<float> values,
                 Integrity integrity = Integrity::kNone) {
  PosixFileSystem files;
  CheckpointDirectory directory(files, folder);
  directory.begin(iteration);
  CheckpointWriter writer(files, directory.staging_path(iteration), 0, integrity);
  const Shape shape = {2, std::ssize(values) / 2};
  writer.add_tensor(key, shape, {0, 0}, {values.data(), DType::kFloat32, shape, shape.contiguous_strides()});
  const CheckpointMetadata stored = writer.write(1);
  directory.commit(iteration, stored, integrity, writer.hashes());
}

TEST(CheckpointInspect, ShowsIterationLayoutOptimizerAndEveryTensor) {
  const ToolResult shown = checkpoint({"inspect", golden("llama_tp2pp2")});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("iteration  2"), HasSubstr("tensor 2, pipeline 2"),
                               HasSubstr("optimizer  fully_reshardable"), HasSubstr("bfloat16  [2,80,24]"),
                               HasSubstr("decoder.layers.mlp.linear_fc1.weight"),
                               HasSubstr("optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight")));
  EXPECT_THAT(shown.out, Not(HasSubstr("rotary_base")));
}

TEST(CheckpointInspect, GivesTheSameAsJsonWithFlagsAndChunks) {
  const ToolResult shown = checkpoint({"inspect", golden("llama_tp2pp2") + "/iter_0000002", "--json", "--args",
                                       "--chunks", "--keys", "decoder.layers.mlp.linear_fc2", "embedding"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  const nlohmann::json json = shown.json();
  EXPECT_EQ(json["iteration"], 2);
  EXPECT_EQ(json["args"]["hidden_size"], 24);
  EXPECT_EQ(json["layout"]["pipeline"], 2);
  EXPECT_EQ(json["tensors"].size(), 8);  // two weights with three tensors of the optimizer each
  for (const nlohmann::json& tensor : json["tensors"]) {
    EXPECT_EQ(tensor["chunks"].size(), tensor["num_chunks"]) << tensor;
    EXPECT_EQ(tensor["bytes"].get<int64_t>() % 24, 0) << tensor;
  }
}

TEST(CheckpointInspect, NamesTheFormsOfOptimizerState) {
  for (const auto& [name, form] : std::vector<std::pair<std::string, std::string>>{
           {"llama_dp2", "dp_reshardable"}, {"llama_1", "fully_reshardable"}, {"llama_plainopt", "not distributed"}})
    EXPECT_EQ(checkpoint({"inspect", golden(name), "--json"}).json()["optimizer"], form) << name;
}

TEST(CheckpointVerify, PassesWhatMegatronHasWritten) {
  for (const std::string name : {"llama_tp2pp2", "moe_ep2", "llama_plainopt"}) {
    const ToolResult verified = checkpoint({"verify", golden(name), "--check-values"});
    EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
    EXPECT_THAT(verified.out, HasSubstr("are whole, all values are finite")) << name;
  }
}

TEST(CheckpointVerify, NamesTheFileAndTheTensorOfAFlippedByte) {
  const ScratchDirectory scratch;
  const std::string folder = copy_of_golden("llama_tp2pp2", scratch) + "/iter_0000002";
  const nlohmann::json tensors =
      checkpoint({"inspect", folder, "--json", "--chunks", "--keys", "final_layernorm.weight"}).json()["tensors"];
  const nlohmann::json& chunk = tensors[0]["chunks"][0];
  const auto file = chunk["file"].get<std::string>();
  // The payload is behind the pickle, which takes about half of a small item.
  flip_byte(folder + "/" + file, chunk["offset"].get<int64_t>() + 900);
  const ToolResult verified = checkpoint({"verify", folder});
  EXPECT_EQ(verified.status, kDamaged);
  EXPECT_THAT(verified.out, AllOf(HasSubstr(file), HasSubstr(tensors[0]["name"].get<std::string>())));
  EXPECT_THAT(verified.err, HasSubstr("1 problem found"));
}

TEST(CheckpointVerify, NamesFilesThatAreCutShortOrMissing) {
  const ScratchDirectory scratch;
  const std::string folder = copy_of_golden("llama_tp2pp2", scratch) + "/iter_0000002";
  std::filesystem::resize_file(folder + "/__1_0.distcp", 2000);
  std::filesystem::remove(folder + "/__2_0.distcp");
  const ToolResult verified = checkpoint({"verify", folder, "--json"});
  EXPECT_EQ(verified.status, kDamaged);
  std::string problems;
  const nlohmann::json report = verified.json();
  for (const nlohmann::json& problem : report["problems"]) problems += problem.get<std::string>() + "\n";
  EXPECT_THAT(problems,
              AllOf(HasSubstr("__1_0.distcp is cut short"), HasSubstr("__2_0.distcp"), Not(HasSubstr("__3_0.distcp"))));
}

TEST(CheckpointVerify, ComparesTheHashesOfIntegrityJson) {
  const ScratchDirectory scratch;
  save_tensor(scratch.path(), 3, "weight", {1, 2, 3, 4}, Integrity::kSha256);
  EXPECT_THAT(checkpoint({"verify", scratch.path()}).out, HasSubstr("files have the hashes of integrity.json"));
  std::ofstream(scratch.file("iter_0000003/metadata.json"), std::ios::app) << " ";
  const ToolResult verified = checkpoint({"verify", scratch.path()});
  EXPECT_EQ(verified.status, kDamaged);
  EXPECT_THAT(verified.out, HasSubstr("metadata.json"));
}

TEST(CheckpointVerify, ReportsNanAndInfinityOnRequest) {
  const ScratchDirectory scratch;
  save_tensor(scratch.path(), 3, "weight", {1, NAN, INFINITY, 4});
  EXPECT_EQ(checkpoint({"verify", scratch.path()}).status, 0);
  const ToolResult verified = checkpoint({"verify", scratch.path(), "--check-values"});
  EXPECT_EQ(verified.status, kDamaged);
  EXPECT_THAT(verified.out, HasSubstr("weight of 4 elements: 1 are NaN, 1 are infinite"));
}

TEST(CheckpointDiff, FindsNoDifferenceBetweenLayoutsOfOneModel) {
  const ToolResult same = checkpoint({"diff", golden("llama_tp2pp2"), golden("llama_1")});
  EXPECT_EQ(same.status, 0) << same.out << same.err;
  EXPECT_THAT(same.out, HasSubstr("no difference"));
}

TEST(CheckpointDiff, NamesWhatOnlyOneHasAndEndsWithOne) {
  const ToolResult other = checkpoint({"diff", golden("llama_1"), golden("llama_plainopt"), "--keys", "exp_avg.",
                                       "fp32_param.decoder.final", "state.param.decoder.final"});
  EXPECT_EQ(other.status, 1) << other.err;
  EXPECT_THAT(other.out,
              AllOf(HasSubstr("optimizer.state.param.decoder.final_layernorm.weight: only in the first"),
                    HasSubstr("optimizer.state.fp32_param.decoder.final_layernorm.weight: only in the second")));
}

TEST(CheckpointDiff, GivesTheLargestDifferencesOfValuesShapesAndDtypes) {
  const ScratchDirectory scratch;
  save_tensor(scratch.file("a"), 1, "weight", {1, 2, 4, 8});
  save_tensor(scratch.file("b"), 1, "weight", {1, 2.5, 4, 7});
  save_tensor(scratch.file("c"), 1, "weight", {1, 2, 4, 8, 16, 32});
  const ToolResult values = checkpoint({"diff", scratch.file("a"), scratch.file("b")});
  EXPECT_EQ(values.status, 1);
  EXPECT_THAT(values.out, HasSubstr("weight: values, 2 elements of float32 [2, 2] differ, by at most 1 absolute, "
                                    "0.2 relative"));
  EXPECT_EQ(checkpoint({"diff", scratch.file("a"), scratch.file("b"), "--atol", "1"}).status, 0);
  EXPECT_EQ(checkpoint({"diff", scratch.file("a"), scratch.file("b"), "--rtol", "0.15"}).status, 1);
  const ToolResult shapes = checkpoint({"diff", scratch.file("a"), scratch.file("c"), "--json"});
  EXPECT_EQ(shapes.json()["differences"][0]["difference"], "shape");
  EXPECT_EQ(shapes.status, 1);
}

TEST(CheckpointDiff, EndsWithMoreThanOneWhereItCannotCompare) {
  EXPECT_EQ(checkpoint({"diff", golden("llama_1"), "/nonexistent"}).status, kDamaged);
  EXPECT_EQ(checkpoint({"diff", golden("llama_1")}).status, static_cast<int>(ExitCode::kUsage));
}

class CheckpointPrune : public ::testing::Test {
 protected:
  void SetUp() override {
    CheckpointDirectory directory(files_, scratch_.path());
    for (const int64_t iteration : {10, 20, 30, 40}) save_small(files_, directory, iteration, 1);
  }
  std::vector<int64_t> left() { return CheckpointDirectory(files_, scratch_.path()).complete(); }

  PosixFileSystem files_;
  ScratchDirectory scratch_;
};

TEST_F(CheckpointPrune, ListsWithoutYesAndDeletesWithIt) {
  const Words rule = {"prune", scratch_.path(), "--keep-last", "1", "--keep-every", "20"};
  const ToolResult listed = checkpoint(rule);
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_THAT(listed.out,
              AllOf(HasSubstr("would delete " + scratch_.file("iter_0000010")), HasSubstr("these stay: 20, 40")));
  EXPECT_THAT(left(), ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(checkpoint(joined(rule, {"--yes"})).out, HasSubstr("deleted " + scratch_.file("iter_0000030")));
  EXPECT_THAT(left(), ElementsAre(20, 40));
}

TEST_F(CheckpointPrune, KeepsTheCheckpointOfTheTrackerAndNoIncompleteOneInsteadOfAWholeOne) {
  std::ofstream(scratch_.file("latest_checkpointed_iteration.txt")) << "20";
  std::filesystem::remove(scratch_.file("iter_0000040/metadata.json"));
  EXPECT_EQ(checkpoint({"prune", scratch_.path(), "--keep-last", "1", "--yes"}).status, 0);
  EXPECT_THAT(left(), ElementsAre(20, 30));
  EXPECT_TRUE(std::filesystem::exists(scratch_.file("iter_0000040")));
}

TEST_F(CheckpointPrune, DeletesNothingInAFolderThatARunHasLocked) {
  const SaveLock lock(files_, scratch_.path(), {});
  const ToolResult pruned = checkpoint({"prune", scratch_.path(), "--keep-last", "1", "--yes"});
  EXPECT_EQ(pruned.status, kDamaged);
  EXPECT_THAT(left(), ElementsAre(10, 20, 30, 40));
}

TEST(CheckpointConvert, TurnsTheFormTorchIntoTorchDistWithEveryBitOfTheSameModel) {
  // Cases with the same parameters, once of each form; the states of a plain optimizer have another name.
  for (const auto& [legacy, same] : std::vector<std::pair<std::string, std::string>>{
           {"legacy_1", "llama_1"}, {"legacy_tp2", "llama_tp2"}, {"legacy_pp2", "gpt2_pp2"}}) {
    const ScratchDirectory scratch;
    const ToolResult converted = checkpoint({"convert-format", golden(legacy), "--save", scratch.file("new")});
    ASSERT_EQ(converted.status, 0) << converted.err;
    EXPECT_EQ(checkpoint({"verify", scratch.file("new")}).status, 0);
    const ToolResult compared = checkpoint({"diff", scratch.file("new"), golden(same)});
    EXPECT_EQ(compared.status, 0) << legacy << "\n" << compared.out << compared.err;
    EXPECT_EQ(checkpoint({"inspect", scratch.file("new"), "--json"}).json()["iteration"], 2);
    EXPECT_EQ(checkpoint({"diff", scratch.file("new"), golden(legacy)}).status, 0);
  }
}

TEST(CheckpointConvert, WritesTheTensorsOfMegatronsFilesInTheFormTorchOnItsLayouts) {
  struct Layout {
    std::string from, tensor, pipeline, same;
  };
  for (const Layout& layout : {Layout{"llama_tp2", "2", "1", "legacy_tp2"}, Layout{"gpt2_pp2", "1", "2", "legacy_pp2"},
                               Layout{"legacy_pp2", "1", "2", "legacy_pp2"}}) {
    SCOPED_TRACE(layout.from);
    const ScratchDirectory scratch;
    const ToolResult converted = checkpoint({"convert-format", golden(layout.from), "--save", scratch.file("new"),
                                             "--ckpt-format", "torch", "--target-tensor-parallel-size", layout.tensor,
                                             "--target-pipeline-parallel-size", layout.pipeline});
    ASSERT_EQ(converted.status, 0) << converted.err;
    const PosixFileSystem files;
    const std::string theirs = golden(layout.same) + "/iter_0000002";
    for (const auto& entry : std::filesystem::directory_iterator(theirs)) {
      const std::string name = entry.path().filename().string() + "/model_optim_rng.pt";
      const std::string own = scratch.file("new/iter_0000002/" + name);
      const TorchFile expected(files.open_for_reading(theirs + "/" + name), name);
      const TorchFile file(files.open_for_reading(own), own);
      const pickle::Object& model = file.root().at("model");
      size_t num_tensors = 0;
      for (const pickle::Entry& one : expected.root().at("model").instance().entries) {
        const auto wanted = torch_tensor(*one.value);
        ++num_tensors;
        if (!wanted) {  // an extra state
          EXPECT_TRUE(model.at(one.key->as_string()).is_none()) << one.key->as_string();
          continue;
        }
        const auto tensor = torch_tensor(model.at(one.key->as_string()));
        ASSERT_TRUE(tensor) << one.key->as_string();
        EXPECT_EQ(tensor->shape, wanted->shape) << one.key->as_string();
        EXPECT_EQ(file.read(*tensor), expected.read(*wanted)) << one.key->as_string();
      }
      EXPECT_EQ(model.entries().size(), num_tensors);
    }
    EXPECT_EQ(checkpoint({"diff", scratch.file("new"), golden(layout.from)}).status, 0);
  }
}

TEST(CheckpointConvert, KeepsEveryWeightOfExpertsOnOtherRanks) {
  for (const std::string name : {"moe_1", "moemix_1", "llama_tp2pp2"}) {
    const ScratchDirectory scratch;
    const ToolResult converted =
        checkpoint({"convert-format", golden(name), "--save", scratch.file("new"), "--ckpt-format", "torch",
                    "--target-tensor-parallel-size", "2", "--target-pipeline-parallel-size", "2"});
    ASSERT_EQ(converted.status, 0) << converted.err;
    const ToolResult compared =
        checkpoint({"diff", scratch.file("new"), golden(name), "--keys", "embedding.", "decoder.", "output_layer."});
    EXPECT_THAT(compared.out, Not(HasSubstr("values"))) << name;
    EXPECT_THAT(compared.out, Not(HasSubstr("only in the first"))) << name;
    // The optimizer alone is not there.
    EXPECT_THAT("\n" + compared.out, Not(HasSubstr("\ndecoder."))) << name;
  }
}

TEST(CheckpointConvert, WritesWeightsAsSafetensorsUnderTheirNames) {
  for (const std::string name : {"llama_tp2pp2", "legacy_1"}) {
    const ScratchDirectory scratch;
    const Words words = {"convert-format", golden(name), "--save", scratch.file("new"), "--ckpt-format", "safetensors"};
    ASSERT_EQ(checkpoint(words).status, 0);
    const PosixFileSystem files;
    const SafetensorsFolder folder(files, scratch.file("new"));
    const std::string path = golden_path("checkpoint/expected/lm019_llama_1.safetensors");
    const SafetensorsFile expected(files.open_for_reading(path), path);
    size_t num_weights = 0;
    for (const auto& [key, tensor] : expected.tensors()) {
      if (key.starts_with("optimizer.")) continue;
      ++num_weights;
      std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
      folder.read_box(key, Box::whole(tensor.shape), bytes.data(), tensor.shape.contiguous_strides());
      EXPECT_EQ(bytes, expected.read(key)) << key;
    }
    EXPECT_EQ(folder.names().size(), num_weights);
    EXPECT_THAT(checkpoint(words).err, HasSubstr("holds files already"));
  }
}

TEST(CheckpointConvert, LeavesTorchDistAlone) {
  const ScratchDirectory scratch;
  const ToolResult same = checkpoint({"convert-format", golden("llama_1"), "--save", scratch.file("new")});
  EXPECT_EQ(same.status, kDamaged);
  EXPECT_THAT(same.err, HasSubstr("is of the form torch_dist already"));
}

TEST(CheckpointCommand, RejectsFlagsOfOtherActionsAndUnknownActions) {
  const ToolResult mixed = checkpoint({"verify", "x", "--keep-last", "2", "--args"});
  EXPECT_EQ(mixed.status, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(mixed.err, AllOf(HasSubstr("--keep-last goes with prune, this is verify"),
                               HasSubstr("--args goes with inspect, this is verify")));
  EXPECT_THAT(checkpoint({"prune", "x"}).err, HasSubstr("--keep-last or --keep-every is missing"));
  EXPECT_THAT(checkpoint({"copy", "x"}).err, HasSubstr("there is no \"checkpoint copy\""));
  EXPECT_EQ(checkpoint({"inspect", "/nonexistent"}).status, kDamaged);
}

}  // namespace
}  // namespace megatron::testing
