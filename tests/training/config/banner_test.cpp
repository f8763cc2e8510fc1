#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/training/config/arguments_json.h"
#include "megatron/training/config/differences.h"
#include "megatron/training/vocab.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::parse;

TEST(Banner, ShowsWhatDiffersFromTheDefaults) {
  const std::string block = arguments_block(parse({"--seed", "1234"}));
  EXPECT_THAT(block, HasSubstr("\n  lr .............................................. 0.001\n"));
  EXPECT_THAT(block, HasSubstr("\n  ffn_hidden_size ................................. 256\n"));
  EXPECT_THAT(block, HasSubstr("\n  seed ............................................ 1234\n")) << "given, if equal";
  EXPECT_THAT(block, Not(HasSubstr("adam_eps")));
  EXPECT_THAT(block, HasSubstr("other arguments have their defaults; --print-config prints all\n"));
}

TEST(Banner, HasMegatronsFormat) {
  const std::string block = arguments_block(parse({"--print-config"}));
  EXPECT_TRUE(block.starts_with("------------------------ arguments ------------------------\n"));
  EXPECT_TRUE(block.ends_with("\n-------------------- end of arguments ---------------------\n"));
  EXPECT_THAT(block, HasSubstr("\n  lr .............................................. 0.001\n"));
  EXPECT_THAT(block, HasSubstr("\n  adam_eps ........................................ 1e-08\n"));
  EXPECT_THAT(block, HasSubstr("\n  cp_comm_type .................................... ['p2p']\n"));
  EXPECT_THAT(block, HasSubstr("\n  swiglu .......................................... False\n"));
  EXPECT_THAT(block, HasSubstr("\n  save ............................................ None\n"));
}

TEST(Banner, GivesEachArgumentApartToo) {
  const auto texts = arguments_texts(parse({"--bf16"}));
  EXPECT_EQ(texts.at("lr"), "0.001");
  EXPECT_EQ(texts.at("bf16"), "True");
  EXPECT_EQ(texts.at("save"), "None");
}

TEST(Banner, NamesWhereThisRunDepartsFromMegatron) {
  EXPECT_THAT(notes_block(parse()), HasSubstr("every valid token of a step weighs equally"));
  EXPECT_THAT(notes_block(parse()), HasSubstr("without --eval-interval there is no evaluation"));
  EXPECT_THAT(notes_block(parse({"--bf16", "--cudnn-attention-dropout"})), HasSubstr("depends on tensor parallelism"));
  EXPECT_THAT(notes_block(parse({"--eval-iters", "0"})), Not(HasSubstr("evaluation")));
  EXPECT_THAT(notes_block(parse()), HasSubstr("--device: cpu or cuda"));
  EXPECT_THAT(notes_block(parse({"--device", "cpu"})), Not(HasSubstr("--device")));
  EXPECT_THAT(notes_block(parse({"--accumulate-allreduce-grads-in-fp32"})), HasSubstr("grads-in-fp32: has no effect"));
  EXPECT_THAT(notes_block(parse({"--bf16"})), Not(HasSubstr("--accumulate-allreduce-grads-in-fp32")));
  EXPECT_THAT(notes_block(parse({"--window-size", "8,-1"})), HasSubstr("B has no effect: attention is causal"));
  EXPECT_THAT(notes_block(parse({"--window-size", "8,0"})), Not(HasSubstr("--window-size")));
  const std::string notes = notes_block(parse({"--no-calculate-per-token-loss", "--eval-interval", "5"}));
  EXPECT_THAT(notes, HasSubstr("the gradient depends on the layout"));
  EXPECT_THAT(notes, Not(HasSubstr("--eval-interval")));
}

TEST(Banner, SaysThatPaddingIsLeftOutWhereThereIsSome) {
  PretrainConfig padded = parse(), exact = parse({"--make-vocab-size-divisible-by", "1"});
  for (PretrainConfig* config : {&padded, &exact}) set_vocab_size(*config, 100);
  EXPECT_THAT(notes_block(padded), HasSubstr("padding rows of the vocabulary"));
  EXPECT_THAT(notes_block(exact), Not(HasSubstr("padding rows of the vocabulary")));
}

TEST(Banner, NamesFlagsWithoutEffectWithTheReason) {
  const std::string notes =
      notes_block(parse({"--manual-gc", "--no-masked-softmax-fusion", "--transformer-impl", "local"}));
  EXPECT_THAT(notes, HasSubstr("--manual-gc has no effect here: there is no garbage collector"));
  EXPECT_THAT(notes, HasSubstr("--no-masked-softmax-fusion has no effect here"));
  EXPECT_THAT(notes, HasSubstr("--transformer-impl local has no effect here"));
  const std::string of_others = notes_block(parse({"--expert-tensor-parallel-size", "2", "--decoder-seq-length", "8"}));
  EXPECT_THAT(of_others, HasSubstr("--expert-tensor-parallel-size has no effect without --num-experts"));
  EXPECT_THAT(of_others, HasSubstr("--decoder-seq-length 8 has no effect here: GPT has no encoder"));
  EXPECT_THAT(notes_block(parse()), Not(HasSubstr("has no effect")));
}

TEST(Banner, NamesSettingsThatNeedAnotherOne) {
  const auto idle = idle_settings(parse({"--rotary-percent", "0.5", "--hysteresis", "4", "--adam-beta1", "0.8"}));
  EXPECT_THAT(idle, ::testing::UnorderedElementsAre(
                        "--rotary-percent has no effect without --position-embedding-type rope or yarn, or "
                        "--multi-latent-attention with --rope-type rope",
                        "--hysteresis has no effect without --fp16 with a dynamic loss scale"));
  EXPECT_THAT(idle_settings(parse()), ::testing::IsEmpty());
}

TEST(Banner, NamesTokenizerFlagsThatTheTypeDoesNotRead) {
  EXPECT_THAT(idle_settings(parse({"--vocab-file", "v", "--merge-file", "m", "--tokenizer-model", "t"})),
              ::testing::UnorderedElementsAre(
                  "--vocab-file has no effect without --tokenizer-type GPT2BPETokenizer, CharTokenizer or one of BERT",
                  "--merge-file has no effect without --tokenizer-type GPT2BPETokenizer",
                  "--tokenizer-model has no effect without a tokenizer type that reads it"));
  EXPECT_THAT(idle_settings(parse({"--null-tokenizer-eod-id", "3"})), ::testing::IsEmpty());
}

TEST(Banner, NamesGivenFlagsThatOneRankOrThisRunHasNoUseFor) {
  EXPECT_THAT(
      idle_settings(parse({"--sequence-parallel", "--no-overlap-p2p-communication", "--no-align-param-gather",
                           "--exit-signal", "SIGUSR1", "--no-load-optim", "--lr-warmup-init", "1e-4", "--hysteresis",
                           "2", "--disable-tp-comm-overlap-ag", "--tp-comm-overlap-ag-splits", "4"})),
      ::testing::UnorderedElementsAre(
          "--sequence-parallel has no effect without --tensor-model-parallel-size above 1",
          "--no-tp-comm-overlap-ag has no effect without --tp-comm-overlap",
          "--tp-comm-overlap-ag-splits has no effect without a --tp-comm-overlap that gathers",
          "--no-overlap-p2p-communication has no effect without interleaved pipeline stages",
          "--no-align-param-gather has no effect without --overlap-param-gather and interleaved pipeline stages",
          "--exit-signal has no effect without --exit-signal-handler", "--no-load-optim has no effect without --load",
          "--lr-warmup-init has no effect without a warm-up",
          "--hysteresis has no effect without --fp16 with a dynamic loss scale"));
  EXPECT_THAT(idle_settings(parse({"--exit-signal-handler", "--exit-signal", "SIGUSR1", "--lr-warmup-init", "1e-4",
                                   "--lr-warmup-fraction", "0.1"})),
              ::testing::IsEmpty());
}

TEST(Banner, NamesGraphsThatNoStepWouldBe) {
  const std::string text = "--cuda-graph-impl has no effect without more steps than --cuda-graph-warmup-steps";
  const testing::Words graph = {"--cuda-graph-impl", "full_iteration", "--train-iters", "4",
                                "--cuda-graph-warmup-steps"};
  const auto with_warm_up = [&](const char* steps) {
    testing::Words words = graph;
    words.push_back(steps);
    return idle_settings(parse(words));
  };
  EXPECT_THAT(with_warm_up("4"), ::testing::ElementsAre(text));
  EXPECT_THAT(with_warm_up("3"), ::testing::IsEmpty());
  EXPECT_THAT(
      idle_settings(parse({"--cuda-graph-impl", "none", "--cuda-graph-warmup-steps", "2"})),
      ::testing::ElementsAre("--cuda-graph-warmup-steps has no effect without --cuda-graph-impl full_iteration"));
}

TEST(Banner, NamesSeveralValidationSetsWhereDataIsOneSource) {
  testing::Words words = testing::with({"--full-validation", "--multiple-validation-sets", "--data-path", "x"});
  std::erase(words, "--mock-data");
  EXPECT_THAT(idle_settings(parse_pretrain_gpt(words, 1, {}, RuleSet::kMegatron)),
              ::testing::Contains("--multiple-validation-sets has no effect without --valid-data-path or "
                                  "--per-split-data-args-path"));
}

TEST(Banner, SaysWhereTheLearningRateEndsBeforeTheRun) {
  // 2 * 20 samples, of which the first 4 iterations take 2 each and the others 8: 4 + 32 / 8 = 8.
  const testing::Words schedule = {"--step-batch-size-schedule", "0:2 256:8", "--min-lr", "1e-5"};
  EXPECT_THAT(notes_block(parse(schedule)),
              HasSubstr("the learning rate is at its minimum of 1e-05 after iteration 8 of 20: its schedule has 40 "
                        "samples, 2 for an iteration"));
  testing::Words constant = schedule;
  constant.insert(constant.end(), {"--lr-decay-style", "constant"});
  EXPECT_THAT(notes_block(parse(constant)), Not(HasSubstr("at its minimum")));
  EXPECT_THAT(notes_block(parse({"--step-batch-size-schedule", "0:2"})), Not(HasSubstr("at its minimum")));
  EXPECT_THAT(notes_block(parse({"--min-lr", "1e-5"})), Not(HasSubstr("at its minimum")));
}

TEST(Banner, SaysWhichStepsToSkipNeverCome) {
  EXPECT_THAT(notes_block(parse({"--iterations-to-skip", "21", "20", "7", "400"})),
              HasSubstr("--iterations-to-skip 21 400 has no effect: the run ends at iteration 20"));
  EXPECT_THAT(notes_block(parse({"--iterations-to-skip", "20", "1"})), Not(HasSubstr("--iterations-to-skip")));
}

TEST(Banner, SaysWhereEvaluationHasNoBatches) {
  EXPECT_THAT(notes_block(parse({"--eval-interval", "5", "--eval-iters", "0"})),
              HasSubstr("--eval-interval has no effect without --eval-iters above 0, or --full-validation"));
}

TEST(Banner, SaysWhereTheOrderOfSamplesHangsOnTheLayout) {
  EXPECT_THAT(notes_block(parse({"--dataloader-type", "cyclic"})),
              HasSubstr("the losses are those of this layout and micro-batch size alone"));
  EXPECT_THAT(notes_block(parse()), Not(HasSubstr("--dataloader-type")));
}

TEST(OtherSampleOrder, NamesWhatTheCyclicOrderHangsOn) {
  const auto others = [](const std::vector<std::string>& there, const std::vector<std::string>& here, int ranks) {
    return other_sample_order(parse(here, ranks), arguments_to_json(parse(there)));
  };
  const std::vector<std::string> cyclic = {"--dataloader-type", "cyclic"};
  EXPECT_THAT(others(cyclic, cyclic, 1), ::testing::IsEmpty());
  EXPECT_THAT(others(cyclic, cyclic, 2), ::testing::ElementsAre("data_parallel_size is 1 there and 2 here"));
  EXPECT_THAT(others(cyclic, {"--dataloader-type", "cyclic", "--no-data-sharding"}, 1),
              ::testing::ElementsAre("data_sharding is True there and False here"));
  EXPECT_THAT(others({}, cyclic, 1), ::testing::ElementsAre("dataloader_type is single there and cyclic here"));
  EXPECT_THAT(others({}, {}, 2), ::testing::IsEmpty());  // the order of every layout
  const std::vector<std::string> shared = {"--dataloader-type", "cyclic", "--no-data-sharding"};
  EXPECT_THAT(
      others(shared, shared, 2),
      ::testing::ElementsAre("data_parallel_size is 1 there and 2 here (which matters from the second pass on)"));
}

TEST(Differences, AreAllExplained) {
  for (const Difference& difference : differences({})) {
    EXPECT_FALSE(difference.topic.empty());
    EXPECT_FALSE(difference.megatron.empty()) << difference.topic;
    EXPECT_FALSE(difference.ours.empty()) << difference.topic;
  }
}

}  // namespace
}  // namespace megatron
