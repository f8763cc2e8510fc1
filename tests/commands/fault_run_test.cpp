// Rejected steps, ranks that differ, and the output of the flags for both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <regex>
#include <span>

#include "commands/straggler_controller.h"
#include "megatron/base/file_system.h"
#include "tests/commands/bad_input.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Words small_run(const std::string& more) {
  return words_of(
      "--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16"
      " --micro-batch-size 1 --train-iters 4 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 20"
      " --eval-iters 0 --num-threads 1 --log-interval 1 --attention-dropout 0.1 " +
      more);
}

std::string text_of(const std::string& path) { return read_file(PosixFileSystem(), path); }

/// The lines of iterations, without times.
std::vector<std::string> iterations_of(const std::string& out) {
  std::vector<std::string> lines;
  const std::regex line(R"(iteration +([0-9]+/.*samples: +[0-9]+) .*(learning rate:.*loss scale).*\n)");
  for (std::sregex_iterator match(out.begin(), out.end(), line), end; match != end; ++match)
    lines.push_back(match->str(1) + match->str(2));
  return lines;
}

TEST(RejectedStep, ATransientErrorEndsTheRunWithStatus17) {
  const Outcome outcome = run(kPretrain, small_run("--error-injection-rate 1"));
  EXPECT_EQ(outcome.status, 17);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("iteration 2"), HasSubstr("possibly a transient fault")));
}

TEST(RejectedStep, APersistentErrorLeavesACheckpointForDiagnosisOnAnotherHost) {
  for (const auto& [type, verdict] :
       {std::pair{"persistent_error", "lasting fault of the hardware"}, {"correct_result", "The result is right"}}) {
    SCOPED_TRACE(type);
    const ScratchDirectory scratch;
    const std::string tracker = scratch.file("rejected.txt"), step = scratch.file("c/rejected_step.json");
    const std::string flags = "--save " + scratch.file("c") + " --load " + scratch.file("c") +
                              " --save-interval 100 --error-injection-rate 1 --error-injection-type " + type;
    const std::string tracked = flags + " --result-rejected-tracker-filename " + tracker;
    const Outcome first = run(kPretrain, small_run(tracked + " --bf16"));
    EXPECT_EQ(first.status, 16) << first.err;
    EXPECT_THAT(first.out, HasSubstr("successfully saved checkpoint from iteration       1"));
    EXPECT_EQ(text_of(tracker), "2\n");

    const Outcome same_host = run(kPretrain, small_run(flags + " --bf16"));
    EXPECT_EQ(same_host.status, 16) << same_host.err;
    EXPECT_THAT(same_host.err, HasSubstr("on the same hosts and devices"));

    std::string left = text_of(step);
    left = std::regex_replace(left, std::regex(R"("places": "[^"]*")"), R"("places": "elsewhere")");
    PosixFileSystem files;
    replace_file(files, step, left);
    const Outcome elsewhere = run(kPretrain, small_run(flags + " --bf16"));
    EXPECT_EQ(elsewhere.status, 17) << elsewhere.err;
    EXPECT_THAT(elsewhere.err, HasSubstr(verdict));
    EXPECT_FALSE(files.exists(step)) << "it is told apart";
    const std::string load = "--bf16 --save-interval 100 --load " + scratch.file("c");
    EXPECT_EQ(run(kPretrain, small_run(load)).status, 0) << "the next run goes on";

    replace_file(files, step, left);
    const Outcome skipping = run(kPretrain, small_run(load + " --result-rejected-tracker-filename " + tracker));
    EXPECT_EQ(skipping.status, 0) << skipping.err;
    EXPECT_THAT(skipping.out, HasSubstr("skipped samples:            1"));
    EXPECT_FALSE(files.exists(step)) << "the step is left out for good";
  }
}

TEST(RejectedStep, ALossThatIsNotFiniteChangesNoWeight) {
  const ScratchDirectory scratch;
  const std::string save = " --save-interval 100 --save " + scratch.file("c");
  const Outcome outcome = run(kPretrain, small_run("--lr 1e30 --nproc-per-node 2" + save));
  EXPECT_EQ(outcome.status, 16) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("not finite"), HasSubstr("No weight has changed"), HasSubstr("lower --lr")));
  EXPECT_THAT(text_of(scratch.file("c/rejected_step.json")), HasSubstr("nan\""));
  const Outcome disabled = run(kPretrain, small_run("--lr 1e30 --rerun-mode disabled"));
  EXPECT_EQ(disabled.status, 1) << disabled.err;
  EXPECT_THAT(disabled.err, HasSubstr("--no-check-for-nan-in-loss-and-grad"));
}

TEST(RejectedStep, OfAnotherStateOrOfNoInterestIsNotCompared) {
  PosixFileSystem files;
  const ScratchDirectory scratch;
  const std::string save = " --save-interval 100 --save " + scratch.file("c"), load = " --load " + scratch.file("c");
  ASSERT_EQ(run(kPretrain, small_run("--error-injection-rate 1 --error-injection-type persistent_error" + save)).status,
            16);
  const std::string step = scratch.file("c/rejected_step.json"), left = text_of(step);
  const Outcome same_host = run(kPretrain, small_run(load));
  EXPECT_EQ(same_host.status, 16);
  EXPECT_THAT(same_host.err, HasSubstr("remove " + step));
  const Outcome other_state = run(kPretrain, small_run("--finetune" + load));
  EXPECT_EQ(other_state.status, 0) << other_state.err;
  EXPECT_THAT(other_state.out, HasSubstr("which this run reaches from another state"));
  replace_file(files, step, left);
  const Outcome disabled = run(kPretrain, small_run("--rerun-mode disabled" + load));
  EXPECT_EQ(disabled.status, 0) << disabled.err;
  EXPECT_FALSE(files.exists(step)) << "the step is taken";
}

TEST(RejectedStep, RecomputationHasTheSameBits) {
  const Outcome plain = run(kPretrain, small_run("--nproc-per-node 2 --global-batch-size 4"));
  const Outcome twice = run(kPretrain, small_run("--nproc-per-node 2 --global-batch-size 4 --rerun-mode report_stats"));
  EXPECT_EQ(twice.status, 0) << twice.err;
  EXPECT_THAT(twice.out, HasSubstr("0 of 4 steps gave another result when they were computed again"));
  ASSERT_EQ(iterations_of(plain.out).size(), 4u);
  EXPECT_EQ(iterations_of(twice.out), iterations_of(plain.out));
  const Outcome watched = run(kPretrain, small_run("--nproc-per-node 2 --global-batch-size 4 --check-for-spiky-loss"
                                                   " --check-for-large-grads"));
  EXPECT_EQ(iterations_of(watched.out), iterations_of(plain.out));
}

TEST(RampUp, ResumesInTheMiddleOnAnyLayout) {
  const ScratchDirectory scratch;
  Words whole =
      small_run("--rampup-batch-size 2 2 12 --global-batch-size 8 --lr-decay-style cosine --train-iters 8 --fp64");
  const Outcome once = run(kPretrain, whole);
  ASSERT_EQ(once.status, 0) << once.err;
  const std::vector<std::string> lines = iterations_of(once.out);
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_THAT(lines[0], HasSubstr("consumed samples:            2"));
  EXPECT_THAT(lines[4], HasSubstr("consumed samples:           22"));
  EXPECT_THAT(once.out, HasSubstr("global batch size is now 4 (4 micro-batches)"));

  const std::string save = " --save-interval 3 --save " + scratch.file("c") + " --load " + scratch.file("c");
  const Outcome start = run(kPretrain, joined(whole, words_of("--exit-interval 3" + save)));
  ASSERT_EQ(start.status, 0) << start.err;
  const Outcome rest = run(kPretrain, joined(whole, words_of("--nproc-per-node 2" + save)));
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(iterations_of(rest.out), std::vector<std::string>(lines.begin() + 3, lines.end()));
}

TEST(WeightHash, IsComparedBeforeTheFirstStepAndAtItsInterval) {
  const Outcome outcome =
      run(kPretrain, small_run("--nproc-per-node 2 --check-weight-hash-across-dp-replicas-interval 2"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* iterations : {"0", "2", "4"})
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format(">>> Weight hashes match after {} iterations...", iterations)));
  EXPECT_THAT(outcome.out, Not(HasSubstr("match after 1 iterations")));
}

TEST(Stragglers, AreReportedWithEachLine) {
  const Outcome outcome =
      run(kPretrain,
          small_run("--nproc-per-node 2 --log-straggler --straggler-ctrlr-port 47111 --straggler-minmax-count 2"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("| MnRtt/Rnk: "), HasSubstr("straggler: rank "), HasSubstr("slowest ranks: ")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("forward-compute"))) << "timers of --timing-log-level 2";
  const Outcome off = run(kPretrain, small_run("--log-straggler --disable-straggler-on-startup"));
  EXPECT_THAT(off.out, Not(HasSubstr("MnRtt")));
}

TEST(Stragglers, ControllerCountsRequestsAndAnswersThem) {
  using namespace std::chrono_literals;
  StragglerController controller(0);
  for (int64_t request = 1; request <= 2; ++request) {
    const Socket asking = Socket::connect("127.0.0.1", controller.port(), 5s);
    const std::string text = "GET / HTTP/1.1\r\n\r\n";
    asking.send(std::as_bytes(std::span(text)), 5s);
    std::array<std::byte, 15> status{};
    asking.receive(status, 5s);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(status.data()), status.size()), "HTTP/1.1 200 OK");
    EXPECT_EQ(controller.num_requests(), request);
  }
}

TEST(LoggingLevel, OmitsMessagesBelowIt) {
  const std::string flags = "--manual-gc ";
  const Outcome all = run(kPretrain, small_run(flags));
  EXPECT_THAT(all.out, HasSubstr("--manual-gc has no effect here"));
  const Outcome warnings = run(kPretrain, small_run(flags + "--logging-level 30"));
  EXPECT_THAT(warnings.out, Not(HasSubstr("--manual-gc has no effect here")));
  EXPECT_EQ(iterations_of(warnings.out), iterations_of(all.out));
  EXPECT_EQ(iterations_of(warnings.out).size(), 4u);
  expect_refusal({"level", kPretrain, {"--logging-level", "loud"}, ExitCode::kUsage, {"debug, info, warning"}});
}

TEST(Wandb, WritesAnOfflineRunWithTheValuesOfEachStep) {
  const ScratchDirectory scratch;
  const Outcome outcome = run(kPretrain, small_run("--wandb-project p --wandb-exp-name e --wandb-entity me"
                                                   " --eval-iters 1 --eval-interval 4 --split 1,1,1 --wandb-save-dir " +
                                                   scratch.path()));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::regex place("an offline run of Weights & Biases is in (.*); 'wandb sync");
  std::smatch folder;
  ASSERT_TRUE(std::regex_search(outcome.out, folder, place)) << outcome.out;
  EXPECT_TRUE(folder.str(1).starts_with(scratch.path() + "/wandb/offline-run-20"));
  const std::string id = folder.str(1).substr(folder.str(1).size() - 8);
  const std::string text = text_of(folder.str(1) + "/run-" + id + ".wandb");
  EXPECT_TRUE(text.starts_with(":W&B"));
  for (const char* name :
       {"lm loss", "learning-rate", "grad-norm", "samples vs steps", "lm loss validation", "num_layers"})
    EXPECT_THAT(text, HasSubstr(name));
  expect_refusal(
      {"name", kPretrain, {"--wandb-project", "p"}, ExitCode::kUsage, {"--wandb-exp-name", "--wandb-save-dir"}});
}

}  // namespace
}  // namespace megatron::testing
