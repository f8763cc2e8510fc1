// Notifications to the starter of ranks when some of them fail or hang.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "megatron/base/thread_name.h"
#include "tests/testing/rank_threads.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RankContext;

constexpr milliseconds kShortTimeout{300};

/// Ranks that wait for this hang in no operation; release() lets the test end.
class Gate {
 public:
  void wait() const { is_open_.wait(false); }
  void release() {
    is_open_ = true;
    is_open_.notify_all();
  }

 private:
  std::atomic<bool> is_open_{false};
};

struct Heard {
  std::vector<std::string> failures;
  std::vector<int> hanging;
  steady_clock::duration until_failure{0}, until_hang{0};
};

/// Runs four ranks; those that hang wait for the gate, which opens when they are reported, or else with the failure.
Heard listen(milliseconds timeout, bool expects_hang, const std::function<void(RankContext&, Gate&)>& function) {
  Heard heard;
  Gate gate;
  const auto begin = steady_clock::now();
  const RankThreadHooks hooks{.on_failure =
                                  [&](const RankFailure& failure) {
                                    heard.until_failure = steady_clock::now() - begin;
                                    heard.failures.emplace_back(failure.what());
                                    if (!expects_hang) gate.release();
                                  },
                              .on_hang =
                                  [&](const RankFailure&, const std::vector<int>& ranks) {
                                    heard.until_hang = steady_clock::now() - begin;
                                    heard.hanging = ranks;
                                    gate.release();
                                  }};
  try {
    testing::run_ranks(
        4, [&](RankContext& context) { function(context, gate); }, timeout, hooks);
    ADD_FAILURE() << "no rank failed";
  } catch (const RankFailure& failure) {
    EXPECT_TRUE(failure.is_reported);
    EXPECT_EQ(heard.failures.back(), failure.what());
  }
  return heard;
}

TEST(RankThreads, HungOnesAreReportedWithinTheTimeoutAndFiveSeconds) {
  const Heard heard = listen(kShortTimeout, true, [](RankContext& context, Gate& gate) {
    if (context.rank == 2) return gate.wait();
    context.group.barrier({"gradients"}).wait();
  });
  EXPECT_THAT(heard.failures,
              ElementsAre(AllOf(HasSubstr("barrier #0 \"gradients\" of world timed out after 300 ms: rank 2 never"),
                                HasSubstr("Rank 2 waits in no operation"))));
  EXPECT_THAT(heard.hanging, ElementsAre(2));
  EXPECT_LT(heard.until_failure, kShortTimeout + milliseconds(5000));
  EXPECT_LT(heard.until_hang - heard.until_failure, kTimeToEnd + milliseconds(5000));
}

TEST(RankThreads, HangsAfterTheLastOperationAreReported) {
  const Heard heard = listen(kShortTimeout, true, [](RankContext& context, Gate& gate) {
    context.group.barrier({"last"}).wait();
    if (context.rank == 1) gate.wait();
  });
  EXPECT_THAT(heard.failures,
              ElementsAre(AllOf(HasSubstr("the end of all ranks timed out after 300 ms: rank 1 never entered it"),
                                HasSubstr("Rank 1 waits in no operation; its last was barrier #0 \"last\" of world"))));
  EXPECT_THAT(heard.hanging, ElementsAre(1));
}

TEST(RankThreads, WaitForTheEndUntilTheTimeoutOfTheirWorld) {
  const Heard heard = listen(std::chrono::minutes(2), true, [](RankContext& context, Gate& gate) {
    context.group.barrier({"last"}).wait();
    context.world.set_timeout(kShortTimeout);
    if (context.rank == 3) gate.wait();
  });
  EXPECT_THAT(heard.failures,
              ElementsAre(HasSubstr("the end of all ranks timed out after 300 ms: rank 3 never entered it")));
  EXPECT_THAT(heard.hanging, ElementsAre(3));
}

TEST(RankThreads, FailuresAreReportedWhileOthersStillRun) {
  const Heard heard = listen(std::chrono::minutes(2), false, [](RankContext& context, Gate& gate) {
    if (context.rank == 3) throw DataError("sample 7 is damaged");
    gate.wait();
  });
  EXPECT_THAT(heard.failures, ElementsAre("[rank 3] sample 7 is damaged"));
  EXPECT_THAT(heard.hanging, ElementsAre());
}

TEST(RankThreads, WorkDroppedByAnExceptionIsAConsequence) {
  const Heard heard = listen(std::chrono::minutes(2), false, [](RankContext& context, Gate&) {
    std::vector<float> buffer(3);
    context.group.barrier({"start"}).wait();
    const Work work = context.rank == 2
                          ? Work()
                          : context.group.all_reduce({buffer.data(), DType::kFloat32, {3}, {1}}, ReduceOp::kSum, {"x"});
    if (context.rank == 1) throw ShapeError("five is not six");
    if (context.rank == 2) std::this_thread::sleep_for(kShortTimeout);
    context.group.barrier({"end"}).wait();
  });
  EXPECT_EQ(heard.failures.back(), "[rank 1] five is not six");
  for (size_t i = 0; i + 1 < heard.failures.size(); ++i)  // what others heard first
    EXPECT_THAT(heard.failures[i], HasSubstr("rank 1 failed in its own code and dropped all_reduce #1 \"x\" of world"));
}

TEST(RankThreads, AreNamedAfterTheirRanks) {
  testing::run_ranks(3, [](RankContext& context) {
    const std::string own = "rank " + std::to_string(context.rank);
    EXPECT_EQ(thread_name(), own);
    std::thread([&] {
      set_worker_thread_name("loader");
      EXPECT_EQ(thread_name(), "loader " + std::to_string(context.rank));
    }).join();
    EXPECT_EQ(thread_name(), own);
  });
}

/// Runs many ranks in an address space that has room for the stacks of three threads, and beside them for what these
/// allocate: half of one more stack. @return what to exit with: 0 if all is well
int start_more_ranks_than_fit() {
  constexpr int kRanks = 256;
  constexpr rlim_t kStackBytes = rlim_t{1} << 30, kBytes = 3 * kStackBytes + kStackBytes / 2;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  if (::pthread_setattr_default_np(&attributes) != 0) return 1;
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  const rlimit limit{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kBytes, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) return 1;
  std::atomic<int> num_begun{0}, num_ended{0};
  std::string reported;
  ThreadWorld ranks(kRanks, std::chrono::minutes(2));
  const auto meet_all = [&](World& world) {
    ++num_begun;
    try {
      std::vector<int> all(kRanks);
      std::iota(all.begin(), all.end(), 0);
      world.split("world", {all})->barrier({"start"}).wait();
    } catch (const CommError&) {
      ++num_ended;
      throw;
    }
  };
  try {
    run_rank_threads(ranks, meet_all,
                     {.on_failure = [&](const RankFailure& failure) { reported = failure.what(); }, .on_hang = {}});
  } catch (const RankFailure& failure) {
    if (num_begun != 3 || num_ended != num_begun) return 2;
    if (reported != failure.what() || reported.find("of 256: ") == std::string::npos) return 3;
    try {
      std::rethrow_exception(failure.cause);
    } catch (const OutOfMemory&) {
      return 0;
    } catch (...) {
      return 4;
    }
  }
  return 5;
}

TEST(RankThreads, EndWithTheReasonIfSomeCannotStart) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than a limit leaves";
#endif
  EXPECT_EXIT(::_exit(start_more_ranks_than_fit()), ::testing::ExitedWithCode(0), "");
}

/// Writes a byte to `ready`, and returns some time after this process was stopped and continued.
void sleep_through_a_stop(int ready) {
  auto before = steady_clock::now(), now = before;
  EXPECT_EQ(::write(ready, "", 1), 1);
  for (; now - before < milliseconds(1000); now = steady_clock::now()) {
    before = now;
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::this_thread::sleep_for(milliseconds(100));
}

/// A process of two ranks, in which `function` of rank 1 calls sleep_through_a_stop().
class StoppedRanks {
 public:
  StoppedRanks(milliseconds timeout, const std::function<void(RankContext&, int ready)>& function) {
    EXPECT_EQ(::pipe(ends_), 0);
    process_ = ::fork();
    if (process_ != 0) return;
    try {
      testing::run_ranks(
          2, [&](RankContext& context) { function(context, ends_[1]); }, timeout);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  void stop() const {
    char byte = 0;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
    ::kill(process_, SIGSTOP);
  }
  /// @return of waitpid
  int status_when_continued() const {
    ::kill(process_, SIGCONT);
    int status = 0;
    ::waitpid(process_, &status, 0);
    for (const int end : ends_) ::close(end);
    return status;
  }

 private:
  int ends_[2] = {-1, -1};
  pid_t process_ = 0;
};

TEST(RankThreads, ContinueAfterAStopLongerThanTheTimeout) {
  constexpr milliseconds kTimeout{1000};
  const StoppedRanks step(kTimeout,
                          [](RankContext&context, int ready) {
                            if (context.rank == 1) sleep_through_a_stop(ready);
                            context.group.barrier({"step"}).wait();
                          }),
      end(kTimeout, [](RankContext&context, int ready) {
        if (context.rank == 1) sleep_through_a_stop(ready);
      });
  for (const StoppedRanks* ranks : {&step, &end}) ranks->stop();
  std::this_thread::sleep_for(kTimeout + milliseconds(1500));
  EXPECT_EQ(step.status_when_continued(), 0);
  EXPECT_EQ(end.status_when_continued(), 0);
}

TEST(RankThreads, HaveNoTimeoutBeforeTheFirstOneEnds) {
  testing::run_ranks(
      2, [](RankContext&) { std::this_thread::sleep_for(2 * kShortTimeout); }, kShortTimeout);
}

}  // namespace
}  // namespace megatron
