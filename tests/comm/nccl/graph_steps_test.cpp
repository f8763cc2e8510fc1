// Ranks whose steps may be CUDA graphs detect when only some would capture or launch one. Needs no GPU.
#include "megatron/comm/nccl/graph_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/comm/rendezvous/store_server.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kLong{20};

/// The steps of some ranks, which answer each other like those of NcclHub.
class Ranks {
 public:
  explicit Ranks(int num_ranks) : begun_(static_cast<size_t>(num_ranks)), errors_(begun_.size()) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      meetings_.push_back(std::make_unique<StoreMeeting>(
          StoreMeeting::Options{rank, num_ranks, {"127.0.0.1", server_.port(), "run/"}, kLong}, [] {}));
      steps_.push_back(std::make_unique<GraphSteps>(*meetings_.back(), [this] { return ask(); }));
    }
  }
  /// Each rank begins a step with each of its changes.
  const std::vector<std::string>& begin(const std::vector<std::vector<std::string>>& changes, milliseconds timeout) {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < changes.size(); ++rank)
      threads.emplace_back([&, rank] {
        try {
          for (const std::string& change : changes[rank]) {
            steps_[rank]->begin("iteration 8", change, timeout);
            ++begun_[rank];
          }
        } catch (const CommError& error) {
          errors_[rank] = error.what();
        }
      });
    threads.clear();
    return errors_;
  }
  int begun(size_t rank) const { return begun_[rank]; }
  /// The updates that the rank has seen.
  std::string failure(size_t rank) {
    meetings_[rank]->poll_updates();
    try {
      meetings_[rank]->throw_if_failed();
    } catch (const CommError& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::map<int, RankReport> ask() {
    std::map<int, RankReport> reports;
    for (size_t rank = 0; rank < steps_.size(); ++rank) {
      RankReport report{static_cast<int>(rank), " It waits in no operation.", {}, {}};
      steps_[rank]->add_to(report);
      reports[static_cast<int>(rank)] = RankReport::parse(report.serialize());
    }
    return reports;
  }

  StoreServer server_{0};
  std::vector<std::unique_ptr<StoreMeeting>> meetings_;
  std::vector<std::unique_ptr<GraphSteps>> steps_;
  std::vector<std::atomic<int>> begun_;
  std::vector<std::string> errors_;
};

TEST(GraphSteps, WithoutAChangeNoRankWaitsForASlowOne) {
  Ranks ranks(3);
  EXPECT_THAT(ranks.begin({{"", "", "", ""}, {""}, {}}, kLong), Each(""));
  EXPECT_EQ(ranks.begun(0), 4);
}

TEST(GraphSteps, ContinueIfAllRanksHaveAnyChangeInTheSameStep) {
  Ranks ranks(3);
  EXPECT_THAT(ranks.begin({{"", "a", "", "b"}, {"", "c", "", "d"}, {"", "e", "", "f"}}, kLong), Each(""));
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.begun(rank), 4);
}

TEST(GraphSteps, AChangeOnOneRankOnlyFailsAllRanksNamingItAndTheOthers) {
  Ranks ranks(3);
  const auto errors = ranks.begin({{"", ""}, {"", "3 blocks of memory are in use, and were 2"}, {"", ""}}, kLong);
  EXPECT_THAT(errors[1], HasSubstr("the change of graph step #1 \"iteration 8\" is on rank 1 only: 3 blocks of "
                                   "memory are in use, and were 2."));
  EXPECT_THAT(errors[1], HasSubstr("where ranks 0, 2 may launch one"));
  EXPECT_EQ(ranks.failure(0), errors[1]);
  EXPECT_EQ(ranks.begun(1), 1);
}

TEST(GraphSteps, ARankMissingAtAChangeIsNamedAfterTheTimeout) {
  Ranks ranks(2);
  const auto errors = ranks.begin({{"", "a"}, {""}}, milliseconds(200));
  EXPECT_THAT(errors[0], HasSubstr("the change of graph step #1 \"iteration 8\" timed out after 200 ms: rank 1 never "
                                   "entered it; rank 0 waiting. It waits in no operation."));
}

}  // namespace
}  // namespace megatron
