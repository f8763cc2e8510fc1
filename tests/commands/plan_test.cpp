#include "commands/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "commands/exit_code.h"
#include "megatron/training/config/layouts.h"
#include "tests/telemetry/xml.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Outcome {
  int status;
  std::string out, err;
};

Outcome plan(const std::vector<std::string>& words) {
  std::ostringstream out, err;
  const int status = plan_command(words, out, err);
  return {status, out.str(), err.str()};
}

Outcome show(std::vector<std::string> words) {
  words.insert(words.begin(), "--show-schedule");
  return plan(words);
}

TEST(PlanCommand, DrawsTheScheduleWithBubbleAndPeaks) {
  const Outcome o = show({"--pipeline-model-parallel-size", "2", "--num-micro-batches", "2"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, IsEmpty());
  EXPECT_THAT(o.out, HasSubstr("1f1b: 2 ranks, 2 micro-batches\ntime 9, bubble 33.3 % of all ranks' time"));
  EXPECT_THAT(o.out, HasSubstr("rank 0 F0 F1 ......B0--- ...B1--- \nrank 1 ...F0 B0--- F1 B1--- ......\n"));
  EXPECT_THAT(o.out, HasSubstr("     0         6         3     33.3             2\n"));
  EXPECT_THAT(o.out, HasSubstr("     1         6         3     33.3             1\n"));
}

TEST(PlanCommand, ComparesTheSchedulesAtTheSameWork) {
  const Outcome o = show({"--pipeline-model-parallel-size", "4", "--num-micro-batches", "8"});
  EXPECT_THAT(o.out, HasSubstr("gpipe                                   33      27.3                     8\n"));
  EXPECT_THAT(o.out, HasSubstr("1f1b                                    33      27.3                     4\n"));
  EXPECT_THAT(o.out, HasSubstr("interleaved, 2 stages a rank          28.5      15.8                   5.5\n"));
  EXPECT_THAT(o.out, HasSubstr("zb-h1                                   27      11.1                     4\n"));
  EXPECT_THAT(o.out, HasSubstr("zb-v, 2 stages a rank                 25.5       5.9                     4\n"));
  EXPECT_THAT(show({"--pipeline-model-parallel-size", "4", "--num-micro-batches", "6"}).out, HasSubstr("does not fit"));
}

TEST(PlanCommand, VirtualStagesImplyInterleaving) {
  const Outcome o = show({"--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "3"});
  EXPECT_THAT(o.out, HasSubstr("interleaved: 2 ranks x 3 virtual stages, 4 micro-batches\n"));
  EXPECT_THAT(show({"--schedule", "zb-v", "--pipeline-model-parallel-size", "2"}).out,
              HasSubstr("zb-v: 2 ranks x 2 virtual stages"));
}

TEST(PlanCommand, LayersMakeStagesUneven) {
  const Outcome balanced =
      show({"--pipeline-model-parallel-size", "3", "--num-virtual-stages-per-pipeline-rank", "2", "--num-layers", "43",
            "--num-micro-batches", "6", "--balance-layers", "--loss-cost", "1.5"});
  EXPECT_EQ(balanced.status, 0) << balanced.err;
  EXPECT_THAT(balanced.out, HasSubstr("embedding + 0-"));
  EXPECT_THAT(balanced.out, HasSubstr(" + loss\n"));
  const std::string flag = "--pipeline-model-parallel-layout '";
  const size_t begin = balanced.out.find(flag);
  ASSERT_NE(begin, std::string::npos);
  const size_t first = begin + flag.size();
  const std::string layout = balanced.out.substr(first, balanced.out.find('\'', first) - first);
  PretrainConfig training;  // reads the printed flags
  training.transformer.num_layers = 43;
  training.parallel.pipeline_model_parallel_size = 3;
  training.parallel.pipeline_model_parallel_layout = layout;
  EXPECT_EQ(pipeline_layout_of(training).placement().num_chunks(), 2);
  const Outcome text = show({"--pipeline-model-parallel-size", "2", "--num-layers", "5",
                             "--pipeline-model-parallel-layout", "E|t*5L", "--num-micro-batches", "2"});
  EXPECT_THAT(text.out, HasSubstr("   embedding\n"));
  EXPECT_THAT(text.out, HasSubstr("   0-4 + loss\n"));
  // Rank 0 has nothing to do and is idle all the time.
  EXPECT_THAT(text.out, HasSubstr("     0         0        12    100.0             2   embedding\n"));
}

TEST(PlanCommand, PrintsTheScheduleOfTheLayout) {
  const auto planned = [](std::vector<std::string> extra) {
    std::vector<std::string> words = {
        "--pipeline-model-parallel-size", "2", "--num-layers", "8", "--num-micro-batches", "6"};
    words.insert(words.end(), extra.begin(), extra.end());
    return show(words).out;
  };
  EXPECT_THAT(planned({}),
              HasSubstr("train with --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*4|t*4L'\n"));
  EXPECT_THAT(planned({"--schedule", "zb-v"}), HasSubstr("'Ett|tt|tt|ttL' --pipeline-schedule zb-v\n"));
  EXPECT_THAT(planned({"--schedule", "zb-h1"}), HasSubstr("'Et*4|t*4L' --pipeline-schedule zb-h1\n"));
  EXPECT_THAT(planned({"--num-virtual-stages-per-pipeline-rank", "2",
                       "--microbatch-group-size-per-virtual-pipeline-stage", "3"}),
              HasSubstr("'Ett|tt|tt|ttL' --microbatch-group-size-per-virtual-pipeline-stage 3\n"));
}

TEST(PlanCommand, TheLossCostsItsOperations) {
  // Per token and in units of h^2 multiply-adds, with s = h and v = 13 h: a layer 12 + 1, the loss 13.
  const std::vector<std::string> sizes = {"--pipeline-model-parallel-size",
                                          "2",
                                          "--num-layers",
                                          "7",
                                          "--num-micro-batches",
                                          "2",
                                          "--balance-layers",
                                          "--hidden-size",
                                          "512",
                                          "--seq-length",
                                          "512",
                                          "--vocab-size",
                                          "6656"};
  EXPECT_THAT(show(sizes).out, HasSubstr("layout 'Et*4|tttL'\n"));
  std::vector<std::string> large = sizes;
  large.back() = "26624";  // four layers' worth
  EXPECT_THAT(show(large).out, HasSubstr("layout 'Et*5|ttL'\n"));
  // With SwiGLU a layer has 16 + 1, so the same loss costs three layers.
  large.emplace_back("--swiglu");
  EXPECT_THAT(show(large).out, HasSubstr("layout 'Et*5|ttL'\n"));
  const Outcome o = show({"--num-layers", "4", "--hidden-size", "10", "--num-attention-heads", "4",
                          "--num-query-groups", "3", "--vocab-size", "7", "--loss-cost", "1"});
  for (const char* text : {"4 mistakes", "--hidden-size needs --seq-length", "--loss-cost and --hidden-size",
                           "--hidden-size 10 is not divisible", "4 is not divisible by --num-query-groups 3"})
    EXPECT_THAT(o.err, HasSubstr(text));
}

TEST(PlanCommand, EvaluationKeepsNothing) {
  const Outcome o = show({"--pipeline-model-parallel-size", "2", "--num-micro-batches", "2", "--forward-only"});
  EXPECT_THAT(o.out, HasSubstr("rank 0 F0 F1 ...\nrank 1 ...F0 F1 \n"));
  EXPECT_THAT(o.out, HasSubstr("at most 0 micro-batches' activations"));
}

TEST(PlanCommand, WritesThePictureAsSvg) {
  const testing::ScratchDirectory scratch;
  const std::string path = scratch.path() + "/schedule.svg";
  const Outcome o = show({"--schedule", "zb-h1", "--pipeline-model-parallel-size", "3", "--schedule-svg", path});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("wrote " + path));
  std::ifstream file(path);
  const std::string svg((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(testing::xml_mistake(svg), "");
  EXPECT_THAT(svg, HasSubstr("zb-h1: 3 ranks, 6 micro-batches"));
  const Outcome denied = show({"--schedule-svg", scratch.path() + "/no/such/folder.svg"});
  EXPECT_EQ(denied.status, static_cast<int>(ExitCode::kIo));
  EXPECT_THAT(denied.err, HasSubstr("no/such/folder.svg"));
}

TEST(PlanCommand, HelpDescribesTheSchedules) {
  const Outcome o = plan({"--help"});
  EXPECT_EQ(o.status, 0);
  for (const char* text : {"usage: megatron plan --show-schedule", "zb-v", "two thirds", "--schedule-svg",
                           "--microbatch-group-size-per-virtual-pipeline-stage", "--loss-cost"})
    EXPECT_THAT(o.out, HasSubstr(text));
}

TEST(PlanCommand, ReportsAllMistakesAtOnce) {
  const Outcome o = plan({"--schedule", "1f1b", "--num-virtual-stages-per-pipeline-rank", "2", "--loss-cost", "1",
                          "--microbatch-group-size-per-virtual-pipeline-stage", "4", "--forward-time", "0"});
  EXPECT_EQ(o.status, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(o.out, IsEmpty());
  for (const char* text : {"5 mistakes", "plan needs to know what to show: --show-schedule, or --memory",
                           "the schedule 1f1b has one stage", "--loss-cost needs --num-layers",
                           "is for the schedule interleaved", "--forward-time 0"})
    EXPECT_THAT(o.err, HasSubstr(text));
}

TEST(PlanCommand, RejectsImpossibleSizes) {
  const auto refused = [](const std::vector<std::string>& words, const char* text) {
    const Outcome o = show(words);
    EXPECT_EQ(o.status, static_cast<int>(ExitCode::kUsage)) << text;
    EXPECT_THAT(o.err, HasSubstr(text));
    EXPECT_THAT(o.out, IsEmpty());
  };
  refused({"--schedule", "zb-w"}, "did you mean zb-v?");
  refused({"--pipeline-model-parallel-size", "0"}, "--pipeline-model-parallel-size 0: must be at least 1");
  refused({"--pipeline-model-parallel-size", "4", "--schedule", "interleaved", "--num-micro-batches", "6"},
          "6 micro-batches in groups of 4 leave 2 over");
  refused({"--pipeline-model-parallel-size", "512", "--num-micro-batches", "10000"}, "at most 100000 can be drawn");
  refused({"--pipeline-model-parallel-size", "4", "--num-layers", "10"}, "give --num-layers 12");
  refused({"--pipeline-model-parallel-size", "2", "--num-layers", "4", "--pipeline-model-parallel-layout", "Ett|tt"},
          "must end with L");
  refused({"--pipeline-model-parallel-size", "2", "--num-layers", "4", "--pipeline-model-parallel-layout", "Et|t|t|tL",
           "--schedule", "zb-h1"},
          "has 2 virtual stages for each rank, the schedule 1: give --pipeline-model-parallel-layout 'Ett|ttL'");
  refused({"--pipeline-model-parallel-size", "2", "--num-layers", "4", "--pipeline-model-parallel-layout", "Et|t|t|tL",
           "--num-virtual-stages-per-pipeline-rank", "3"},
          "the schedule 3: leave out --num-virtual-stages-per-pipeline-rank");
  refused({"--num-layers", "4", "--balance-layers", "--account-for-loss-in-pipeline-split"},
          "--balance-layers sets the layers of each stage: leave out --account-for-loss-in-pipeline-split");
}

TEST(PlanCommand, RejectsGroupsAboveTheMicroBatchesAsMegatronDoes) {
  const std::vector<std::string> words = {"--pipeline-model-parallel-size", "2",
                                          "--num-virtual-stages-per-pipeline-rank", "2",
                                          "--microbatch-group-size-per-virtual-pipeline-stage"};
  const auto with = [&](const std::string& group, const std::string& micro_batches) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {group, "--num-micro-batches", micro_batches});
    return show(all);
  };
  EXPECT_EQ(with("8", "8").status, 0);
  const Outcome o = with("9", "8");
  EXPECT_EQ(o.status, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(o.err, HasSubstr("--microbatch-group-size-per-virtual-pipeline-stage 9 is above the 8 micro-batches of a "
                               "step: there is no such group. Give --num-micro-batches 9, or give "
                               "--microbatch-group-size-per-virtual-pipeline-stage 8"));
}

TEST(PlanCommand, StaysSmallAndFiniteWhateverTheTimes) {
  const Outcome slow = show({"--pipeline-model-parallel-size", "4", "--send-time", "1000000"});
  EXPECT_EQ(slow.status, 0) << slow.err;
  EXPECT_LT(slow.out.size(), 10'000u);
  EXPECT_THAT(slow.out, HasSubstr("(not drawn: actions take 1 to 2 of a step of"));
  const Outcome small = show({"--pipeline-model-parallel-size", "4", "--forward-time", "5e-324", "--backward-time",
                              "5e-324", "--weight-time", "5e-324"});
  EXPECT_EQ(small.status, 0) << small.err;
  for (const char* flag : {"--forward-time", "--backward-time", "--weight-time", "--send-time"}) {
    const Outcome o = show({"--pipeline-model-parallel-size", "4", flag, "1e308"});
    EXPECT_EQ(o.status, static_cast<int>(ExitCode::kUsage));
    EXPECT_THAT(o.err, HasSubstr(std::string(flag) + " 1e308: must be at most"));
  }
}

TEST(PlanCommand, ALayoutSetsTheNumberOfVirtualStages) {
  const std::vector<std::string> words = {"--pipeline-model-parallel-size",   "2",        "--num-layers", "4",
                                          "--pipeline-model-parallel-layout", "Et|t|t|tL"};
  EXPECT_THAT(show(words).out, HasSubstr("interleaved: 2 ranks x 2 virtual stages"));
  std::vector<std::string> in_a_v = words;
  in_a_v.insert(in_a_v.end(), {"--pipeline-schedule", "zb-v"});
  EXPECT_THAT(show(in_a_v).out, HasSubstr("zb-v: 2 ranks x 2 virtual stages"));
}

}  // namespace
}  // namespace megatron
