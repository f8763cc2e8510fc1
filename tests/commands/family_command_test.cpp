// megatron pretrain_NAME of a family with settings and batches of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "commands/pretrain.h"
#include "commands/verify.h"
#include "megatron/training/config/pretrain_config.h"
#include "tests/models/toy_family.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/words.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::joined;
using ::testing::Not;
using testing::ScratchDirectory;
using testing::toy_family;
using testing::ToyOptions;
using testing::Words;
using testing::words_of;

const std::string kToy =
    "--device cpu --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 8 --max-position-embeddings 8 "
    "--micro-batch-size 1 --global-batch-size 4 --lr 1e-2 --mock-data --tokenizer-type NullTokenizer --vocab-size 61 "
    "--make-vocab-size-divisible-by 1 --num-threads 1 --log-interval 1 --eval-iters 1 --fp64 ";

struct Ended {
  int status = 0;
  std::string out, err;
};
Ended run(const ModelFamily& family, const Words& words) {
  std::ostringstream out, err;
  const int status = pretrain_command(family, words, out, err);
  return {status, out.str(), err.str()};
}

/// The losses of every step of a run that ends well.
std::vector<double> kind_losses(const std::string& flags, const Words& more = {}) {
  const ScratchDirectory scratch;
  const Words words = joined(joined(words_of(kToy + flags), more), {"--log-jsonl", scratch.file("log")});
  const Ended ended = run(toy_family(), words);
  EXPECT_EQ(ended.status, 0) << ended.err;
  std::vector<double> losses;
  std::ifstream file(scratch.file("log"));
  for (std::string line; std::getline(file, line);)
    if (const auto record = nlohmann::json::parse(line); record.contains("kind_loss"))
      losses.push_back(record["kind_loss"]);
  return losses;
}

PretrainConfig parse_toy(const std::string& flags) {
  return parse_pretrain_gpt(words_of(kToy + "--train-iters 1 " + flags), 1, {}, RuleSet::kRunnable, {}, toy_family());
}

TEST(FamilyCommand, HelpHasTheFlagsOfTheFamilyAlone) {
  EXPECT_THAT(run(toy_family(), {"--help"}).out,
              AllOf(HasSubstr("usage: megatron pretrain_toy FLAGS"), HasSubstr("Trains a toy."),
                    HasSubstr("--toy-num-kinds"), HasSubstr("What a toy tells of each word.")));
  EXPECT_THAT(run(toy_family(), {"--help=--toy-num-kinds"}).out, HasSubstr("kinds of words"));
  EXPECT_THAT(run(gpt_family(), {"--help"}).out,
              AllOf(HasSubstr("usage: megatron pretrain_gpt FLAGS"), Not(HasSubstr("--toy-num-kinds"))));
  EXPECT_THAT(run(gpt_family(), words_of(kToy + "--train-iters 1 --toy-num-kinds 4")).err,
              HasSubstr("--toy-num-kinds"));
}

TEST(FamilyCommand, FlagsHaveTheirRules) {
  EXPECT_EQ(parse_toy("").family.options.as<ToyOptions>().num_kinds, 3);
  EXPECT_EQ(parse_toy("--toy-num-kinds 5").family.options.as<ToyOptions>().num_kinds, 5);
  const Ended ended = run(toy_family(), words_of(kToy + "--train-iters 1 --toy-num-kinds 1"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, HasSubstr("--toy-num-kinds 1"));
}

TEST(FamilyCommand, BannerShowsWhatDiffersFromTheDefaultsOfTheFamily) {
  EXPECT_THAT(arguments_block(parse_toy("")), Not(HasSubstr("toy_num_kinds")));
  EXPECT_THAT(arguments_block(parse_toy("--toy-num-kinds 5")), HasSubstr("toy_num_kinds"));
}

TEST(FamilyCommand, TrainsOnBatchesThatTheFamilyMakesOfTokens) {
  const std::vector<double> three = kind_losses("--train-iters 4"),
                            five = kind_losses("--train-iters 4 --toy-num-kinds 5");
  ASSERT_EQ(three.size(), 4U);
  ASSERT_EQ(five.size(), 4U);
  EXPECT_NEAR(three.front(), std::log(3.0), 0.05) << "weights are small at first";
  EXPECT_NEAR(five.front(), std::log(5.0), 0.05);
  EXPECT_LT(three.back(), three.front());
}

TEST(FamilyCommand, CheckpointsStoreItsSettings) {
  const ScratchDirectory scratch;
  const std::vector<double> whole = kind_losses("--train-iters 4 --toy-num-kinds 5");
  kind_losses("--train-iters 4 --save-interval 2 --exit-interval 2 --toy-num-kinds 5", {"--save", scratch.file("run")});
  const std::vector<double> rest = kind_losses("--train-iters 4 --use-checkpoint-args",
                                               {"--load", scratch.file("run"), "--exit-on-missing-checkpoint"});
  EXPECT_EQ(rest, std::vector<double>(whole.begin() + 2, whole.end()));
}

TEST(FamilyCommand, ArgumentsOfTheFamilyReturnFromJson) {
  const std::string json = arguments_to_json(parse_toy("--toy-num-kinds 5"));
  EXPECT_EQ(arguments_from_json(json, toy_family()).family.options.as<ToyOptions>().num_kinds, 5);
  EXPECT_EQ(arguments_to_json(arguments_from_json(json, toy_family())), json);
}

TEST(FamilyCommand, SettingsOfItsOwnHaveNamesOfTheirOwn) {
  ModelFamily family = toy_family();
  family.options = FamilyOptions(ToyOptions{}, [](ToyOptions& options, FieldTable& table) {
    table.begin_group("Toy", "");
    table.add("hidden_size", options.num_kinds, "kinds of words");
  });
  EXPECT_THROW(help_text({}, family), InternalError);
}

TEST(FamilyCommand, LayoutsAreVerifiedOnItsBatches) {
  std::ostringstream out, err;
  EXPECT_EQ(verify_command(words_of("layouts --num-steps 1 --layout dp=2"), out, err, toy_family()), 0) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("same"));
}

}  // namespace
}  // namespace megatron
