#include "commands/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <latch>
#include <sstream>

#include "commands/exit_code.h"
#include "commands/verify_config.h"
#include "tests/testing/words.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Result {
  int status = 0;
  std::string out, err;
};
Result run(const std::vector<std::string>& args, const VerifyHooks& hooks = {}) {
  std::ostringstream out, err;
  const int status = verify_command_with(hooks, args, out, err);
  return {status, out.str(), err.str()};
}

RankLayout layout_of(const std::string& text) {
  Mistakes mistakes;
  const auto layout = parse_rank_layout(text, mistakes);
  mistakes.throw_if_any(text);
  return layout.value();
}

TEST(RankLayout, IsWrittenInTheFormThatIsRead) {
  for (const bool has_experts : {false, true})
    for (const RankLayout& layout : rank_layouts(4, has_experts))
      EXPECT_EQ(layout_of(to_string(layout)), layout) << to_string(layout);
  EXPECT_EQ(layout_of("sp  tp=2 instances=2 dist-opt dp=4"),
            (RankLayout{.tp = 2, .dp = 4, .instances = 2, .sp = true, .dist_opt = true}));
}

TEST(RankLayout, ACoverHasEveryPairOfValues) {
  const std::vector<RankLayout> all = rank_layouts(4);
  const std::vector<RankLayout> cover = pairwise_cover(all);
  EXPECT_LT(cover.size(), 55);
  const auto has = [](const std::vector<RankLayout>& layouts, auto&& is_wanted) {
    return std::ranges::any_of(layouts, is_wanted);
  };
  for (const int64_t tp : {1, 2, 3, 4})
    for (const std::string schedule : {"", "gpipe", "zb-h1", "zb-v"})
      for (const bool dist_opt : {false, true}) {
        const auto first = [&](const RankLayout& l) { return l.tp == tp && l.schedule == schedule; };
        const auto second = [&](const RankLayout& l) { return l.tp == tp && l.dist_opt == dist_opt; };
        const auto third = [&](const RankLayout& l) { return l.overlap == dist_opt && l.schedule == schedule; };
        EXPECT_EQ(has(cover, first), has(all, first));
        EXPECT_EQ(has(cover, second), has(all, second));
        EXPECT_EQ(has(cover, third), has(all, third));
      }
  for (const RankLayout& layout : cover) EXPECT_LE(layout.num_ranks(), 4);
}

TEST(VerifyCommand, AllBuiltInLayoutsTrainLikeOneRank) {
  const Result result = run({"layouts", "--num-steps", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("tp=2"), HasSubstr("zb-v"), HasSubstr("dist-opt"), HasSubstr("recompute"),
                                HasSubstr("train like one rank"), Not(HasSubstr("DEPARTS"))));
}

TEST(VerifyCommand, HasAMixtralWhoseExpertsRanksShare) {
  const Result result = run({"layouts", "--model", "mixtral", "--num-steps", "2", "--layout", "ep=2 dp=2 dist-opt",
                             "--layout", "tp=2 sp ep=2 etp=1", "--layout", "pp=2 ep=2 dp=2"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("etp=1"), HasSubstr("train like one rank"), Not(HasSubstr("DEPARTS"))));
  EXPECT_THAT(run({"layouts", "--model", "mixtral", "--layout", "ep=3 dp=3"}).err,
              HasSubstr("--num-experts 4 does not divide by ep=3"));
}

TEST(VerifyCommand, HasALlamaToo) {
  const Result result = run({"layouts", "--model", "llama", "--layout", "tp=4 sp", "--layout", "pp=2 dp=2 dist-opt"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("all 2 layouts"));
}

/// A model of rotary layers with these flags, on a few layouts.
Result run_layers(const std::string& flags) {
  testing::Words words = {"layouts", "--num-steps", "2"};
  for (const char* layout : {"tp=2 pp=2 sp", "pp=2 vpp=2 recompute", "cp=2 cp-type=a2a"})
    words = testing::joined(words, {"--layout", layout});
  return run(testing::joined(
      words, testing::words_of("--num-layers 4 --hidden-size 24 --num-attention-heads 4 --seq-length 12 "
                               "--max-position-embeddings 12 --position-embedding-type rope --ffn-hidden-size 40 "
                               "--normalization RMSNorm --disable-bias-linear --micro-batch-size 1 "
                               "--global-batch-size 4 --train-iters 2 --lr 1e-3 --vocab-size 50 "
                               "--tokenizer-type NullTokenizer --mock-data " +
                               flags)));
}

TEST(VerifyCommand, NormsAroundBlocksSoftCapsGatesAndTwoRotaryBasesTrainAlikeOnEveryLayout) {
  const Result result = run_layers(
      "--group-query-attention --num-query-groups 2 --layernorm-placement sandwich --apply-layernorm-1p --geglu "
      "--qk-layernorm --softmax-scale 0.3 --attn-logit-softcapping 5 --final-logit-softcapping 3 "
      "--embedding-multiplier 4.9 --window-size 3,0 --window-attn-skip-freq 2 --rotary-base 100000 "
      "--sliding-window-rotary-base 100 --attention-output-gate");
  EXPECT_EQ(result.status, 0) << result.out << result.err;
}

TEST(VerifyCommand, NormsBehindBlocksNormsAcrossHeadsAndMultipliersTrainAlikeOnEveryLayout) {
  const Result result = run_layers(
      "--layernorm-placement post --qk-layernorm --qk-layernorm-across-heads --swiglu --residual-multiplier 0.3 "
      "--embedding-multiplier 3 --logits-multiplier 0.5 --untie-embeddings-and-output-weights");
  EXPECT_EQ(result.status, 0) << result.out << result.err;
}

TEST(VerifyCommand, TakesAModelOfTheUser) {
  const Result result = run({"layouts",
                             "--layout",
                             "tp=3 sp",
                             "--layout=dp=3 dist-opt",
                             "--num-layers",
                             "1",
                             "--hidden-size",
                             "12",
                             "--num-attention-heads",
                             "3",
                             "--seq-length",
                             "6",
                             "--max-position-embeddings",
                             "6",
                             "--micro-batch-size",
                             "1",
                             "--global-batch-size",
                             "3",
                             "--train-iters",
                             "3",
                             "--lr",
                             "1e-3",
                             "--vocab-size",
                             "50",
                             "--tokenizer-type",
                             "NullTokenizer",
                             "--mock-data",
                             "--optimizer",
                             "sgd"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("tp=3 sp"), HasSubstr("dp=3 dist-opt"), HasSubstr("all 2 layouts")));
}

TEST(VerifyCommand, PrintsTheErrorOfEachLayoutRelativeToItsBound) {
  const Result result = run(testing::words_of(
      "layouts --num-steps 2 --layout dp=2 --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 8"
      " --max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 2 --train-iters 2 --lr 1e-3 --vocab-size "
      "50"
      " --tokenizer-type NullTokenizer --mock-data --qk-layernorm"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("error/bound"), ::testing::ContainsRegex("dp=2.* 0(\\.[0-9]+)?  same")));
}

TEST(VerifyCommand, NamesACorruptedWeightAndFails) {
  const VerifyHooks hooks = {.before_step = [](Trainer& trainer, int64_t step) {
    if (step != 1 || trainer.groups().world.rank() != 1) return;
    for (Parameter* parameter : trainer.model().parameters())
      if (parameter->name() == "decoder.layers.5.mlp.linear_fc1.weight") parameter->value().data<double>()[3] *= 1.001;
  }};
  const Result result = run({"layouts", "--layout", "dp=2", "--layout", "pp=2", "--layout", "recompute"}, hooks);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("DEPARTS  decoder.layers.5.mlp.linear_fc1.weight before step 2"),
                                HasSubstr("decoder.layers.5.mlp.linear_fc1.weight before step 2 on rank 1: error"),
                                HasSubstr("of its largest value, rounding bound"), HasSubstr("same")));
  EXPECT_THAT(result.err, HasSubstr("2 of 3 layouts do not train like one rank"));
}

TEST(VerifyCommand, ContinuesAfterALayoutThatFails) {
  const VerifyHooks hooks = {.before_step = [](Trainer& trainer, int64_t) {
    require<Error>(trainer.groups().tp.size() == 1, "no tensor ranks today");
  }};
  const Result result = run({"layouts", "--layout", "tp=2", "--layout", "dp=2"}, hooks);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("FAILED"), HasSubstr("no tensor ranks today"), HasSubstr("same")));
  EXPECT_THAT(result.err, HasSubstr("1 of 2"));
}

TEST(VerifyCommand, ReportsAllMistakesAtOnce) {
  const Result result = run({"layouts", "--layout", "tp=2 zp=3", "--layout", "schedule=1f2b", "--num-steps", "0",
                             "--sequence-parallel", "--bf16", "--load", "checkpoints", "--nunm-layers", "2"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("'zp=3'"), HasSubstr("'schedule=1f2b'"), HasSubstr("--num-steps"),
                                HasSubstr("give --layout \"sp\""), HasSubstr("compared in fp64"), HasSubstr("--load"),
                                HasSubstr("did you mean --num-layers?")));
  EXPECT_EQ(result.out, "");
}

TEST(VerifyCommand, RejectsTheNumberOfRanksInEverySpelling) {
  for (const char* flag : {"--nproc-per-node", "--nproc_per_node"}) {
    const Result result = run({"layouts", flag, "2"});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(std::string(flag) + " belongs to the layout: give --layout \"dp=N\""));
  }
}

TEST(VerifyCommand, RejectsFlagsOfWholeRuns) {
  const std::vector<std::string> flags = {"--log-params-norm", "--no-log-loss-scale-to-tensorboard",
                                          "--save=x",          "--no-load-optim",
                                          "--skip-train",      "--exit-signal-handler"};
  std::vector<std::string> args = {"layouts", "--layout", "tp=2"};
  args.insert(args.end(), flags.begin(), flags.end());
  args.insert(args.end(), {"--eval-iters", "3", "--num-threads", "2"});
  const Result result = run(args);
  EXPECT_EQ(result.status, 2);
  for (const std::string& flag : flags)
    EXPECT_THAT(result.err, HasSubstr(flag.substr(0, flag.find('=')) + ": verify trains a few steps")) << flag;
  EXPECT_THAT(result.err, AllOf(HasSubstr("--eval-iters: verify"), HasSubstr("--num-threads: verify")));
}

TEST(VerifyCommand, ReportsEveryLayoutThatDoesNotFitTheModel) {
  const Result result =
      run({"layouts", "--layout", "tp=3", "--layout", "pp=5", "--layout", "dp=5", "--layout", "tp=2"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("3 mistakes"), HasSubstr("'tp=3'"), HasSubstr("'pp=5'"), HasSubstr("'dp=5'"),
                                Not(HasSubstr("'tp=2'"))));
}

TEST(VerifyCommand, ReportsLayoutsInTheirSettings) {
  const auto refusal = [](const std::string& layout) { return run({"layouts", "--layout", layout}).err; };
  EXPECT_THAT(refusal("tp=3"), HasSubstr("--num-attention-heads 4 does not divide by tp=3"));
  EXPECT_THAT(refusal("pp=2 vpp=3"),
              ::testing::EndsWith("do not divide by 6 virtual stages (pp=2 * 3 virtual stages of a "
                                  "rank): choose pp and vpp whose product divides the layers\n"));
  EXPECT_THAT(refusal("pp=2 vpp=4 schedule=zb-v"),
              HasSubstr("vpp asks for 4 virtual stages of a rank, but the schedule zb-v has two virtual stages on each "
                        "rank: leave out vpp"));
}

TEST(VerifyCommand, RejectsSettingsWithoutEffect) {
  const auto refusal = [](const std::string& layout) { return run({"layouts", "--layout", layout}).err; };
  EXPECT_THAT(refusal("schedule=zb-v dp=2"), HasSubstr("schedule has no effect without pp=2 or more"));
  EXPECT_THAT(refusal("sp"), HasSubstr("sp has no effect without tp=2 or more"));
  EXPECT_THAT(refusal("tp=2 overlap"), HasSubstr("overlap has no effect without cp=2 or dp=2 or more"));
}

TEST(VerifyCommand, AFlagOfALayoutIsTheOnlyMistake) {
  const std::string error = run({"layouts", "--tensor-model-parallel-size", "2"}).err;
  EXPECT_THAT(error, AllOf(HasSubstr("1 mistake\n"), HasSubstr("give --layout \"tp=N\"")));
}

TEST(VerifyCommand, RejectsMoreStepsThanTheRunHasAndTwoModels) {
  EXPECT_THAT(run({"layouts", "--num-steps", "101"}).err, HasSubstr("--num-steps"));
  const Result two = run({"layouts", "--model", "llama", "--num-layers", "2"});
  EXPECT_EQ(two.status, 2);
  EXPECT_THAT(two.err, HasSubstr("both describe the model"));
}

TEST(VerifyCommand, NeedsNoQuotesAroundALayout) {
  const Result result = run({"layouts", "--layout", "tp=2", "sp", "--num-steps", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("tp=2 sp"), HasSubstr("the layout trains like one rank")));
  EXPECT_THAT(run({"layouts", "tp=2"}).err, HasSubstr("'tp=2' is not a flag. Give settings of a layout"));
  EXPECT_THAT(run({"layouts", "--layout", "--num-steps", "1"}).err, HasSubstr("--layout '': must not be empty"));
  EXPECT_THAT(run({"layouts", "--layout", " "}).err, HasSubstr("give settings such as"));
}

TEST(VerifyCommand, HelpDescribesTheSettings) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--help"}, {"layouts", "-h"}}) {
    const Result help = run(args);
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, AllOf(HasSubstr("Exit code: 0"), HasSubstr("dist-opt"), HasSubstr("--num-steps"),
                                HasSubstr("megatron verify layouts --layout")));
  }
  EXPECT_THAT(run({"everything"}).err, HasSubstr("megatron verify layouts"));
  EXPECT_EQ(run({}).status, 2);
}

TEST(VerifyDeathTest, EndsThoughARankHangsInItsOwnCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::latch hangs(1);  // else rank 1 may see the failure in a collective before it can hang
  const VerifyHooks hooks = {.before_step =
                                 [&hangs](Trainer& trainer, int64_t) {
                                   if (trainer.groups().world.rank() == 0) {
                                     hangs.wait();
                                     throw ShapeError("five is not six");
                                   }
                                   hangs.count_down();
                                   for (;;) ::pause();
                                 },
                             .ranks = {}};
  EXPECT_EXIT(verify_command_with(hooks, {"layouts", "--layout", "dp=2"}, std::cout, std::cerr),
              ::testing::ExitedWithCode(static_cast<int>(ExitCode::kFailure)),
              AllOf(HasSubstr("[rank 0] five is not six"), HasSubstr("megatron verify: rank 1 still")));
}

}  // namespace
}  // namespace megatron
