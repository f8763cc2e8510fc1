// Supervised fine-tuning as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "tests/commands/bad_input.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

/// A tiny model, a file of conversations and checkpoints in a folder of the test.
class FineTuning : public ::testing::Test {
 protected:
  static constexpr const char* kModel =
      "--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 96 --max-position-embeddings 96"
      " --micro-batch-size 2 --global-batch-size 4 --lr 3e-2 --lr-decay-style constant --eval-iters 0 --log-interval 1"
      " --num-threads 1 --device cpu";

  std::string at(const std::string& name) const { return scratch_.path() + "/" + name; }

  Words words(const std::string& more) const {
    return words_with("--tokenizer-type SFTTokenizer --tokenizer-model " + golden_path("data/sft/tokenizer"), more);
  }
  Words words_with(const std::string& tokenizer, const std::string& more) const {
    return words_of(std::string(kModel) + " " + tokenizer + " --data-cache-path " + at("cache") + " " + more);
  }

  /// Questions on 8 letters. @param last_turn  what the user says at the end, behind the answer
  std::string write_conversations(const std::string& name, const std::string& last_turn, char first_answer = 'p') {
    std::ofstream file(at(name));
    for (char letter = 0; letter < 8; ++letter)
      file << R"({"messages": [{"role": "user", "content": "after )" << static_cast<char>('a' + letter)
           << R"("}, {"role": "assistant", "content": ")" << std::string(6, static_cast<char>(first_answer + letter))
           << R"("}, {"role": "user", "content": ")" << last_turn << "\"}]}\n";
    return at(name);
  }

  /// The losses of the steps.
  static std::vector<std::string> losses(const Words& words) {
    const Outcome outcome = run(Command::kPretrainGpt, words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const std::regex expression(R"(lm loss: (\S+))");
    std::vector<std::string> found;
    for (std::sregex_iterator match(outcome.out.begin(), outcome.out.end(), expression), end; match != end; ++match)
      found.push_back(match->str(1));
    return found;
  }

  static constexpr const char* kTuned = " --sft --sft-tokenizer-prompt-format chat-template --split 1,0,0 ";
  const ScratchDirectory scratch_;
};

TEST_F(FineTuning, LossOnTheAnswersFallsFromACheckpointOfPretraining) {
  const std::string pretrained = at("pretrained");
  const auto before = losses(words("--mock-data --train-iters 2 --save-interval 2 --save " + pretrained));
  ASSERT_EQ(before.size(), 2);
  const auto tuned = losses(words("--train-iters 60 --finetune --load " + pretrained + kTuned + "--data-path " +
                                  write_conversations("chats.jsonl", "thanks")));
  ASSERT_EQ(tuned.size(), 60);
  EXPECT_GT(std::stod(tuned.front()), 4) << "ln(263) is 5.6";
  EXPECT_LT(std::stod(tuned.back()), 1);
}

// Megatron asks both folders for the model, and the one of --load wins.
TEST_F(FineTuning, OneCommandLineStartsFromAPretrainedModelAndResumes) {
  losses(words("--mock-data --train-iters 1 --save-interval 1 --save " + at("pretrained")));
  const std::string data = write_conversations("chats.jsonl", "thanks");
  const auto train = [&](const std::string& more) {
    return losses(
        words_of("--use-checkpoint-args --pretrained-checkpoint " + at("pretrained") + " --load " + at("tuned") +
                 " --save " + at("tuned") + " --save-interval 2 --train-iters 6 " + more +
                 " --seq-length 96 --micro-batch-size 2 --global-batch-size 4 --lr 3e-2 --lr-decay-style constant"
                 " --eval-iters 0 --log-interval 1 --num-threads 1 --device cpu --tokenizer-type SFTTokenizer"
                 " --tokenizer-model " +
                 golden_path("data/sft/tokenizer") + kTuned + "--data-path " + data));
  };
  EXPECT_EQ(train("--exit-interval 2").size(), 2) << "starts";
  EXPECT_EQ(train("").size(), 4) << "resumes";
}

TEST_F(FineTuning, WhatIsNotAnAnswerAddsNothingToTheLoss) {
  const auto train = [&](const std::string& file) {
    return losses(words("--train-iters 4" + std::string(kTuned) + "--data-path " + file));
  };
  // The model sees the last turn behind all that it is trained on.
  const auto thanks = train(write_conversations("thanks.jsonl", "thanks"));
  EXPECT_EQ(train(write_conversations("no.jsonl", "no, wrong!")), thanks);
  EXPECT_NE(train(write_conversations("other.jsonl", "thanks", 'q')), thanks);
}

TEST_F(FineTuning, ResumedRunTakesTheStepsThatWereLeft) {
  const std::string flags = std::string(kTuned) + "--data-path " + write_conversations("chats.jsonl", "thanks");
  const auto whole = losses(words("--train-iters 6" + flags));
  const std::string save = " --save-interval 3 --save " + at("ckpt") + " --load " + at("ckpt");
  auto parts = losses(words("--train-iters 6 --exit-interval 3" + flags + save));
  ASSERT_EQ(parts.size(), 3);
  for (const std::string& loss : losses(words("--train-iters 6" + flags + save))) parts.push_back(loss);
  EXPECT_EQ(parts, whole);
}

TEST_F(FineTuning, BadLineEndsTheRunWithItsPlace) {
  const std::string file = write_conversations("chats.jsonl", "thanks");
  std::ofstream(file, std::ios::app) << "{\"messages\": 1}\n";
  const Outcome outcome =
      run(Command::kPretrainGpt, words("--train-iters 9" + std::string(kTuned) + "--data-path " + file));
  EXPECT_EQ(outcome.status, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(outcome.err, HasSubstr("chats.jsonl:9: the line is not a JSON object whose key messages has a list"));
}

TEST_F(FineTuning, MistakesAreReportedBeforeTheRun) {
  const auto error_of = [&](const Words& words) {
    const Outcome outcome = run(Command::kPretrainGpt, words);
    EXPECT_NE(outcome.status, 0);
    return outcome.err;
  };
  const auto error = [&](const std::string& more) { return error_of(words("--train-iters 2 --sft " + more)); };
  EXPECT_THAT(error("--data-path " + at("none.jsonl")), HasSubstr("none.jsonl: there is no such file. With --sft"));
  EXPECT_THAT(error("--mock-data"), HasSubstr("--sft with --mock-data: there are no made-up conversations"));
  const std::string data = "--data-path " + write_conversations("chats.jsonl", "thanks");
  EXPECT_THAT(error(data + " --reset-attention-mask"), HasSubstr("conversations of a sample are separated already"));
  const auto error_with_bytes = [&](const std::string& more) {
    return error_of(words_with("--tokenizer-type ByteLevelTokenizer", "--train-iters 2 --sft " + data + more));
  };
  EXPECT_THAT(error_with_bytes(""), HasSubstr("padding token <SPECIAL_233> is not in the vocabulary"));
  EXPECT_THAT(error_with_bytes(" --sft-tokenizer-prompt-format chat-template"),
              HasSubstr("the tokenizer has no chat template. Give one with --chat-template"));
}

}  // namespace
}  // namespace megatron::testing
