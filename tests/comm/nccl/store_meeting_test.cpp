// Ranks with a GPU each connect through a store, which needs no GPU.
#include "megatron/comm/nccl/store_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "megatron/base/error.h"
#include "megatron/comm/nccl/connection_turns.h"
#include "megatron/comm/rank_places.h"
#include "megatron/comm/rendezvous/store_server.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kMeetingTimeout{20};

/// Runs `function(meeting)` on ranks, some of which may be missing. @return the exception of each
std::vector<std::string> run_ranks(int num_ranks, const std::function<void(StoreMeeting&)>& function,
                                   milliseconds timeout = kMeetingTimeout, int num_away = 0) {
  StoreServer server(0);
  std::vector<std::string> errors(static_cast<size_t>(num_ranks - num_away));
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < num_ranks - num_away; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        StoreMeeting meeting({rank, num_ranks, {"127.0.0.1", server.port(), "run/"}, timeout}, [] {});
        function(meeting);
      } catch (const CommError& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  ranks.clear();
  return errors;
}

TEST(StoreMeeting, EveryRankGetsTheTextsOfAll) {
  std::vector<std::vector<std::string>> heard(3), of_two(3);
  const auto errors = run_ranks(3, [&](StoreMeeting& meeting) {
    const auto rank = static_cast<size_t>(meeting.rank());
    heard[rank] = meeting.meet(fmt::format("rank {}\n", rank));
    if (rank != 1) of_two[rank] = meeting.exchange("lane", "a lane", {2, 0}, std::to_string(rank));
    meeting.finish(kMeetingTimeout);
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(heard, Each(ElementsAre("rank 0\n", "rank 1\n", "rank 2\n")));
  EXPECT_THAT(of_two, ElementsAre(ElementsAre("2", "0"), ElementsAre(), ElementsAre("2", "0")));
}

TEST(StoreMeeting, AMissingRankIsNamedByAll) {
  const auto errors = run_ranks(
      3, [](StoreMeeting& meeting) { meeting.meet(""); }, milliseconds(1000), 1);
  EXPECT_THAT(errors, Each(HasSubstr("the start of the job timed out after 1000 ms: rank 2 never entered it")));
}

TEST(StoreMeeting, TheFirstFailureEndsTheWaitsOfAllRanks) {
  std::atomic<int> num_told = 0;
  const auto errors = run_ranks(3, [&](StoreMeeting& meeting) {
    meeting.meet("");
    if (meeting.rank() == 1) {
      meeting.fail("rank 1 has no more disk");
      meeting.fail("and no more patience");
      return meeting.throw_if_failed();
    }
    std::jthread watch([&](const std::stop_token& stop) {
      while (!stop.stop_requested() && !meeting.has_failed()) meeting.poll_updates();
      num_told += meeting.has_failed() ? 1 : 0;
    });
    meeting.wait_for("never", "what nobody gives", 1, kMeetingTimeout);
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 has no more disk")));
  EXPECT_EQ(num_told, 2);
}

TEST(StoreMeeting, ASecondFailureReportsTheFirst) {
  const auto errors = run_ranks(2, [](StoreMeeting& meeting) {
    if (meeting.rank() == 0) meeting.fail("the first reason");
    meeting.meet("");
    meeting.fail("a consequence");
    meeting.throw_if_failed();
  });
  EXPECT_THAT(errors[0], HasSubstr("the first reason"));
  EXPECT_THAT(errors[1], HasSubstr("the first reason"));
}

/// The ranks' check of their GPUs.
TEST(StoreMeeting, AllRanksDetectASharedGpu) {
  std::vector<std::string> mistakes(3);
  const auto errors = run_ranks(3, [&](StoreMeeting& meeting) {
    const RankPlace own{host_identity(), "here", meeting.rank() == 0 ? "0000:1b:00.0" : "0000:43:00.0", {}};
    const RankPlaces places = RankPlaces::parse(meeting.meet(own.serialize()));
    try {
      places.require_a_gpu_each();
    } catch (const ConfigError& error) {
      mistakes[static_cast<size_t>(meeting.rank())] = error.what();
    }
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(mistakes, Each(HasSubstr("ranks 1, 2 have the same one: 0000:43:00.0 of host here")));
}

/// Two ranks begin two lanes in opposite orders, each in a thread of its own, as lanes do.
TEST(ConnectionTurns, LanesConnectInTheSameOrderOnAllRanks) {
  std::vector<std::vector<std::string>> orders(2);
  std::atomic<int> num_connecting = 0;
  std::atomic<bool> overlapped = false;
  const auto errors = run_ranks(2, [&](StoreMeeting& meeting) {
    ConnectionTurns turns(meeting);
    std::mutex mutex;
    std::atomic<int> num_here = 0;
    const auto connect = [&](const std::string& lane) {
      turns.await(lane, {0, 1});
      overlapped = overlapped || num_here.fetch_add(1) > 0;
      ++num_connecting;
      meeting.exchange(lane + ".id", lane, {0, 1}, "");
      {
        const std::lock_guard lock(mutex);
        orders[static_cast<size_t>(meeting.rank())].push_back(lane);
      }
      --num_here;
      turns.end(lane);
    };
    const bool is_first = meeting.rank() == 0;
    std::jthread a([&] { connect(is_first ? "a" : "b"); });
    std::jthread b([&] { connect(is_first ? "b" : "a"); });
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(num_connecting, 4);
  EXPECT_FALSE(overlapped) << "a process connects one lane at a time";
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_EQ(orders[0].size(), 2u);
}

}  // namespace
}  // namespace megatron
