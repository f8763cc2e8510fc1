// Messages and times of ranks as threads when one of them is late, lost, aborted or calls another operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <thread>

#include "tests/comm/buffers.h"
#include "tests/testing/rank_threads.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RankContext;
using testing::run_ranks;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;
using testing::view_of;

void sleep(int duration_ms) { std::this_thread::sleep_for(milliseconds(duration_ms)); }

constexpr milliseconds kShort{300};
constexpr milliseconds kLong{60000};

/// CommErrors of all ranks, and the longest that one of them took.
struct Failures {
  std::vector<std::string> texts;
  steady_clock::duration longest{0};
  std::atomic<bool> has_any{false};

  /// For the late rank: returns when another one has failed.
  void wait_for_one() const {
    while (!has_any) sleep(1);
  }
};

/// Runs `function` and expects only CommError. No rank aborts the others on the way out: each must learn of
/// the failure from its own operation.
void run_and_collect(Failures& failures, int num_ranks, milliseconds timeout,
                     const std::function<void(RankContext&)>& function) {
  std::mutex mutex;
  std::latch start(num_ranks);  // none fails before all have their group
  run_ranks(
      num_ranks,
      [&](RankContext& context) {
        start.arrive_and_wait();
        const auto begin = steady_clock::now();
        std::string text;
        try {
          function(context);
        } catch (const CommError& error) {
          text = error.what();
        }
        const std::lock_guard lock(mutex);
        failures.longest = std::max(failures.longest, steady_clock::now() - begin);
        if (!text.empty()) failures.texts.push_back(text);
        if (!text.empty()) failures.has_any = true;
      },
      timeout);
}

TEST(Timeout, NamesTheMissingRankOnEveryRank) {
  Failures failures;
  run_and_collect(failures, 4, kLong, [&](RankContext& context) {
    std::vector<float> buffer(3);
    context.group.barrier({"start"}).wait();
    context.group.set_timeout(kShort);
    if (context.rank == 2) failures.wait_for_one();
    context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"grad bucket 7"}).wait();
  });
  ASSERT_THAT(failures.texts, SizeIs(4));  // rank 2 too, when it comes
  EXPECT_THAT(failures.texts,
              Each(AllOf(HasSubstr("all_reduce #1 \"grad bucket 7\" of world timed out after 300 ms: rank 2 never "
                                   "entered it; ranks 0, 1, 3 waiting."),
                         HasSubstr("Rank 2 waits in no operation; its last was barrier #0 \"start\" of world"))));
  EXPECT_LT(failures.longest, kShort + std::chrono::seconds(5));
}

TEST(Timeout, FollowsTheChainToTheRankThatBlocksAll) {
  Failures failures;
  run_and_collect(failures, 4, kShort, [&](RankContext& context) {
    const ProcessGroup tp = context.world.split("tp", {{0, 1}, {2, 3}}).value();
    const ProcessGroup dp = context.world.split("dp", {{0, 2}, {1, 3}}).value();
    if (context.rank == 3) failures.wait_for_one();
    if (context.rank != 0) dp.barrier({"gradients"}).wait();  // 1 waits for 3; 0 for 1, 2 for 0
    tp.barrier({"activations"}).wait();
    if (context.rank == 0) dp.barrier({"gradients"}).wait();
  });
  ASSERT_THAT(failures.texts, SizeIs(4));
  EXPECT_THAT(failures.texts, Each(HasSubstr("Rank 3 waits in no operation")));
  EXPECT_THAT(failures.texts, Each(Not(HasSubstr("Rank 1 waits in no operation"))));
}

TEST(Timeout, ReportsRanksThatWaitForEachOther) {
  Failures failures;
  run_and_collect(failures, 2, kShort, [](RankContext& context) {
    const ProcessGroup a = context.world.split("a", {{0, 1}}).value(), b = context.world.split("b", {{0, 1}}).value();
    (context.rank == 0 ? a : b).barrier({"x"}).wait();
    (context.rank == 0 ? b : a).barrier({"x"}).wait();
  });
  ASSERT_THAT(failures.texts, SizeIs(2));
  EXPECT_THAT(failures.texts, Each(HasSubstr("wait for each other")));
}

TEST(Timeout, NamesThePeerOfASend) {
  Failures failures;
  run_and_collect(failures, 3, kShort, [&](RankContext& context) {
    std::vector<float> buffer(3);
    if (context.rank == 0) context.group.recv(view_of(buffer), 2, 1, {"activation"}).wait();
    failures.wait_for_one();
  });
  ASSERT_THAT(failures.texts, SizeIs(1));
  EXPECT_THAT(failures.texts[0],
              AllOf(HasSubstr("recv #0 \"activation\" of world timed out after 300 ms: rank 2 never"),
                    HasSubstr("Rank 2 waits in no operation and has issued none.")));
}

TEST(Timeout, DoesNotCountTheTimeInWhichARankComputes) {
  Failures failures;
  std::latch end(2);  // the time between the ends of two ranks does count
  run_and_collect(failures, 2, kShort, [&](RankContext& context) {
    std::vector<float> buffer(3, 1.0f);
    Work work = context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"});
    if (context.rank == 0) sleep(2 * static_cast<int>(kShort.count()));
    work.wait();
    EXPECT_EQ(buffer[0], 2.0f);
    end.arrive_and_wait();
  });
  EXPECT_THAT(failures.texts, SizeIs(0));
}

TEST(Timeout, TheLongestMeansNever) {
  run_ranks(
      2, [](RankContext& context) { context.group.barrier({"x"}).wait(); }, milliseconds::max());
}

TEST(Abort, FromAnotherThreadWakesAllThatWaitInTheGroup) {
  Failures failures;
  run_and_collect(failures, 4, kLong, [](RankContext& context) {
    const ProcessGroup three = context.world.split("three", {{0, 1, 2}, {3}}).value();
    std::thread watchdog;
    if (context.rank == 0)
      watchdog = std::thread([three] {
        sleep(50);
        three.abort("loss is not finite");
      });
    std::string text;
    try {
      if (context.rank < 2) three.barrier({"x"}).wait();
      if (context.rank == 2) sleep(100);
      if (context.rank == 2) three.barrier({"x"}).wait();
    } catch (const CommError& error) {
      text = error.what();
    }
    if (watchdog.joinable()) watchdog.join();
    context.group.barrier({"other groups go on"}).wait();
    if (!text.empty()) throw CommError(text);
  });
  ASSERT_THAT(failures.texts, SizeIs(3));
  EXPECT_THAT(failures.texts, Each(HasSubstr("[three] aborted: loss is not finite")));
  EXPECT_LT(failures.longest, std::chrono::seconds(5));
}

TEST(Abort, AbortOfTheWorldReachesEveryGroup) {
  Failures failures;
  run_and_collect(failures, 4, kLong, [](RankContext& context) {
    const ProcessGroup pair = context.world.split("pair", {{0, 1}, {2, 3}}).value();
    std::vector<float> buffer(3);
    if (context.rank == 0) pair.recv(view_of(buffer), 1, 0, {"x"}).wait();
    if (context.rank == 2) pair.barrier({"x"}).wait();
    sleep(50);
    if (context.rank == 1) context.world.abort("signal 15");
    if (context.rank == 3) context.group.barrier({"x"}).wait();
  });
  ASSERT_THAT(failures.texts, SizeIs(3));
  EXPECT_THAT(failures.texts, Each(HasSubstr("aborted by rank 1: signal 15")));
}

TEST(Abort, LeavesNoRankTouchingTheBuffersOfAnother) {  // shows under the address and thread sanitizers
  for (int delay_us = 0; delay_us < 2000; delay_us += 100) {
    Failures ignored;
    run_and_collect(ignored, 3, kLong, [&](RankContext& context) {
      std::vector<float> buffer(1 << 20, 1.0f);
      Work work = context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"large"});
      if (context.rank == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
        context.world.abort("in the middle");
      }
      try {
        work.wait();
      } catch (const CommError&) {
      }
      std::fill(buffer.begin(), buffer.end(), 2.0f);
    });
  }
}

TEST(Abort, StopsNewGroupsAndOperations) {
  ThreadWorld ranks(1, kLong);
  const auto world = ranks.join(0);
  ranks.abort("the end");
  EXPECT_THAT([&] { world->split("tp", {{0}}); }, ThrowsMessage<CommError>(HasSubstr("the end")));
}

/// Rank 1 calls another operation than rank 0; both must get both names.
void expect_disagreement(const std::function<void(RankContext&)>& function, const std::string& first,
                         const std::string& second) {
  Failures failures;
  run_and_collect(failures, 3, kLong, function);
  ASSERT_THAT(failures.texts, SizeIs(3));
  EXPECT_THAT(failures.texts, Each(AllOf(HasSubstr("ranks disagree"), HasSubstr(first), HasSubstr(second))));
}

TEST(Mismatch, NamesDifferentOperations) {
  std::vector<std::vector<float>> buffers(3, std::vector<float>(6)), outputs(3, std::vector<float>(18));
  expect_disagreement(
      [&](RankContext& context) {
        auto& buffer = buffers[static_cast<size_t>(context.rank)];
        if (context.rank == 1)
          context.group.all_gather(view_of(buffer), view_of(outputs[1]), {"y"}).wait();
        else
          context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"}).wait();
      },
      "called all_reduce(float32, 6 elements, sum) as all_reduce #0 \"x\" of world",
      "rank 1 called all_gather(float32, 6 elements) as all_gather #0 \"y\" of world");
}

TEST(Mismatch, NamesDifferentSizesDtypesReductionsAndRoots) {
  expect_disagreement(
      [](RankContext& context) {
        std::vector<float> buffer(context.rank == 1 ? 5 : 6);
        context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"}).wait();
      },
      "5 elements", "6 elements");
  expect_disagreement(
      [](RankContext& context) {
        std::vector<float> buffer(6);
        View view = view_of(buffer);
        if (context.rank == 1) view.dtype = DType::kInt32;
        context.group.all_reduce(view, ReduceOp::kSum, {"x"}).wait();
      },
      "int32", "float32");
  expect_disagreement(
      [](RankContext& context) {
        std::vector<float> buffer(6);
        context.group.all_reduce(view_of(buffer), context.rank == 1 ? ReduceOp::kMax : ReduceOp::kSum, {"x"}).wait();
      },
      "max", "sum");
  expect_disagreement(
      [](RankContext& context) {
        std::vector<float> buffer(6);
        context.group.broadcast(view_of(buffer), context.rank == 1 ? 1 : 0, {"x"}).wait();
      },
      "root 1", "root 0");
}

TEST(Mismatch, NamesASkippedCollectiveAtTheNextOne) {
  expect_disagreement(
      [](RankContext& context) {
        std::vector<float> buffer(6);
        if (context.rank != 1) context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"skipped"}).wait();
        context.group.barrier({"next"}).wait();
      },
      "\"skipped\"", "barrier #0 \"next\"");
}

TEST(Mismatch, NamesDifferentCountsInAllToAll) {
  Failures failures;
  run_and_collect(failures, 2, kLong, [](RankContext& context) {
    std::vector<float> input(4), output(4);
    const std::vector<int64_t> send{context.rank == 0 ? 1 : 3, context.rank == 0 ? 3 : 1};
    const std::vector<int64_t> receive{context.rank == 0 ? 1 : 3, context.rank == 0 ? 3 : 1};
    std::vector<int64_t> wrong = receive;
    if (context.rank == 1) output.resize(3), wrong[0] = 2;
    context.group.all_to_all(view_of(input), view_of(output), send, wrong, {"tokens"}).wait();
  });
  ASSERT_THAT(failures.texts, SizeIs(2));
  EXPECT_THAT(failures.texts, Each(HasSubstr("rank 0 sends 3 elements to rank 1, which expects 2")));
}

TEST(Mismatch, NamesTheTwoSidesOfASend) {
  Failures failures;
  run_and_collect(failures, 2, kLong, [](RankContext& context) {
    std::vector<float> buffer(context.rank == 0 ? 4 : 5);
    if (context.rank == 0)
      context.group.send(view_of(buffer), 1, 3, {"activation"}).wait();
    else
      context.group.recv(view_of(buffer), 0, 3, {"gradient"}).wait();
  });
  ASSERT_THAT(failures.texts, SizeIs(2));
  EXPECT_THAT(failures.texts, Each(AllOf(HasSubstr("message(float32, 4 elements, tag 3) as send #0 \"activation\""),
                                         HasSubstr("message(float32, 5 elements, tag 3) as recv #0 \"gradient\""))));
}

TEST(Mismatch, NamesDifferentGroups) {
  Failures failures;
  run_and_collect(failures, 2, kLong, [](RankContext& context) {
    sleep(20 * context.rank);
    context.world.split(context.rank == 0 ? "tp" : "dp", {{0, 1}});
    context.group.barrier({"x"}).wait();
  });
  EXPECT_THAT(failures.texts, SizeIs(2));
  EXPECT_THAT(failures.texts, Each(HasSubstr("call 1 is \"tp\" on rank 0 and \"dp\" on rank 1")));
}

TEST(LostRank, IsNamedAtOnce) {
  const auto begin = steady_clock::now();
  Failures failures;
  run_and_collect(failures, 3, kLong, [](RankContext& context) {
    context.group.barrier({"start"}).wait();
    if (context.rank == 1) return;
    sleep(context.rank == 0 ? 0 : 50);  // one waits when rank 1 leaves, one comes later
    context.group.barrier({"end"}).wait();
  });
  ASSERT_THAT(failures.texts, SizeIs(2));
  EXPECT_THAT(failures.texts, Each(HasSubstr("barrier #1 \"end\" of world cannot complete: rank 1 has left")));
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(LostRank, MayLeaveAfterItHasEnteredAll) {
  run_ranks(2, [](RankContext& context) {
    std::vector<float> buffer(100000, 1.0f);
    Work work = context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"});
    if (context.rank == 0) return work.wait();
    sleep(50);
    work.wait();
    EXPECT_EQ(buffer.back(), 2.0f);
  });
}

TEST(DroppedWork, BeforeAllHaveEnteredFailsTheWorldAndNamesTheRank) {
  Failures failures;
  run_and_collect(failures, 2, kLong, [](RankContext& context) {
    std::vector<float> buffer(6);
    if (context.rank == 0) {
      { const Work dropped = context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"forgotten"}); }
    } else {
      sleep(50);
    }
    context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"}).wait();
  });
  ASSERT_THAT(failures.texts, SizeIs(2));
  EXPECT_THAT(failures.texts,
              Each(HasSubstr("rank 0 dropped all_reduce #0 \"forgotten\" of world before rank 1 had entered it")));
}

TEST(RunRanks, ThrowsTheFirstExceptionWithItsRankAndEndsTheOthers) {
  const auto begin = steady_clock::now();
  try {
    run_ranks(
        4,
        [](RankContext& context) {
          std::vector<float> buffer(6);
          Work pending = context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"});
          if (context.rank == 2) throw ShapeError("five is not six");
          pending.wait();
        },
        kLong);
    FAIL() << "nothing was thrown";
  } catch (const RankFailure& failure) {
    EXPECT_EQ(failure.rank, 2);
    EXPECT_STREQ(failure.what(), "[rank 2] five is not six");
    EXPECT_THROW(std::rethrow_exception(failure.cause), ShapeError);
  }
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(RunRanks, ReportsCommErrorsThatHaveNoOtherCause) {
  EXPECT_THAT([] { run_ranks(2, [](RankContext& context) { context.world.split("x", {{context.rank}}); }); },
              ThrowsMessage<RankFailure>(HasSubstr("ranks disagree")));
}

TEST(RunRanks, GivesEachRankItsShareOfTheCores) {
  EXPECT_EQ(threads_per_rank(1 << 20), 1);
  EXPECT_EQ(threads_per_rank(1), std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace megatron
