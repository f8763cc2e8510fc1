// A communicator times out where NCCL would wait forever. NCCL itself is a stand-in here.
#include "megatron/comm/nccl/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "megatron/base/error.h"
#include "tests/comm/nccl/fake_nccl.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using testing::fake_nccl;
using testing::FakeNccl;
using ::testing::HasSubstr;

class Communicator : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_nccl().looks = fake_nccl().result = 0;
    fake_nccl().calls.clear();
  }
  std::unique_ptr<NcclCommunicator> make(milliseconds timeout = std::chrono::minutes(1)) {
    return NcclCommunicator::make(library_, 2, library_.get_unique_id(), 0, {timeout, [this] {
                                                                               if (is_hopeless_)
                                                                                 throw CommError("rank 1 failed");
                                                                             }});
  }
  static void all_reduce(NcclCommunicator& communicator) {
    communicator.use([](const NcclLibrary& library, NcclLibrary::Communicator handle) {
      library.all_reduce(nullptr, nullptr, 1, DType::kInt32, ReduceOp::kSum, handle, nullptr);
    });
  }
  NcclLibrary library_;
  std::atomic<bool> is_hopeless_ = false;
};

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

TEST(NcclLibrary, RejectsAnOldVersionNamingThePackageToInstall) {
  fake_nccl().version = 22603;
  try {
    NcclLibrary library;
    ADD_FAILURE() << "NCCL 2.26 was taken";
  } catch (const NotSupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("is NCCL 2.26, but at least 2.27 is needed"));
    EXPECT_THAT(error.what(), HasSubstr("pip install 'nvidia-nccl-cu13>=2.27'"));
  }
  fake_nccl().version = 22809;
}

TEST_F(Communicator, LivesFromTheConnectionToTheEndOfAllRanks) {
  fake_nccl().looks = 5;
  auto communicator = make();
  all_reduce(*communicator);
  communicator->close();
  communicator.reset();
  EXPECT_THAT(fake_nccl().all_calls(), ElementsAre("init", "all_reduce", "finalize", "destroy"));
}

/// The others may not know yet that this rank has failed, and wait for it elsewhere.
TEST_F(Communicator, OneEndedByAnExceptionWaitsForNoRank) {
  auto communicator = make(std::chrono::seconds(5));
  fake_nccl().looks = FakeNccl::kForEver;
  const auto begin = std::chrono::steady_clock::now();
  communicator.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_THAT(fake_nccl().all_calls(), ElementsAre("init", "abort"));
}

TEST_F(Communicator, ConnectingTimesOutIfRanksAreMissing) {
  fake_nccl().looks = FakeNccl::kForEver;
  EXPECT_THAT(error_of([&] { make(milliseconds(80)); }),
              HasSubstr("NCCL waits in the connection of the ranks for ranks that did not arrive within 80 ms"));
  EXPECT_THAT(fake_nccl().all_calls(), ElementsAre("init", "abort"));
}

TEST_F(Communicator, ConnectingEndsWhenARankHasFailed) {
  fake_nccl().looks = FakeNccl::kForEver;
  std::jthread watch([&] {
    std::this_thread::sleep_for(milliseconds(50));
    is_hopeless_ = true;
  });
  EXPECT_EQ(error_of([&] { make(); }), "rank 1 failed");
  EXPECT_THAT(fake_nccl().all_calls(), ElementsAre("init", "abort"));
}

TEST_F(Communicator, IsNotReturnedIfARankFailedMeanwhile) {
  is_hopeless_ = true;
  EXPECT_EQ(error_of([&] { make(); }), "rank 1 failed");
  EXPECT_THAT(fake_nccl().all_calls(), ElementsAre("init", "abort"));
}

TEST_F(Communicator, ReportsNcclsError) {
  fake_nccl().looks = 2;
  fake_nccl().result = 2;
  EXPECT_THAT(error_of([&] { make(); }), HasSubstr("failed: a failure. Nobody is there."));
  EXPECT_THAT(fake_nccl().all_calls(), ElementsAre("init", "abort"));
}

TEST_F(Communicator, ConnectsByOperationsInSequence) {
  auto communicator = make();
  fake_nccl().looks = 5;
  std::array<int32_t, 2> numbers{};
  communicator->connect_collectives(numbers.data(), 0, nullptr);
  EXPECT_THAT(fake_nccl().all_calls(), ElementsAre("init", "all_reduce", "reduce_scatter"));
}

/// At once, so that no rank waits for a pair that another one connects later.
TEST_F(Communicator, ConnectsEachPairOfRanksForAllToAll) {
  auto communicator = make();
  std::array<int32_t, 2> numbers{};
  communicator->connect_pairs(numbers.data(), 2, nullptr);
  EXPECT_THAT(fake_nccl().all_calls(), ElementsAre("init", "group_start", "send to 0", "receive from 0", "send to 1",
                                                   "receive from 1", "group_end"));
}

TEST_F(Communicator, AnOperationThatWaitsForARankEndsWithAnAbort) {
  auto communicator = make();
  fake_nccl().looks = FakeNccl::kForEver;
  std::jthread watch([&] {
    std::this_thread::sleep_for(milliseconds(50));
    communicator->abort();
  });
  EXPECT_THAT(error_of([&] { all_reduce(*communicator); }), HasSubstr("aborted"));
  watch.join();
  communicator.reset();
  EXPECT_THAT(fake_nccl().all_calls(), ElementsAre("init", "all_reduce", "abort"));
}

TEST_F(Communicator, IsCheckedWithoutWaitingForACallInProgress) {
  const auto communicator = make();
  std::atomic<bool> is_in_call = false, is_checked = false, came_in_time = false;
  std::jthread caller([&] {
    communicator->use([&](const NcclLibrary&, NcclLibrary::Communicator) {
      is_in_call = true;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (!is_checked && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      came_in_time = is_checked.load();
    });
  });
  while (!is_in_call) std::this_thread::yield();
  communicator->check();
  is_checked = true;
  caller.join();
  EXPECT_TRUE(came_in_time);
}

TEST_F(Communicator, ClosingWithMissingRanksIsAnAbort) {
  auto communicator = make(milliseconds(80));
  fake_nccl().looks = FakeNccl::kForEver;
  EXPECT_THAT(error_of([&] { communicator->close(); }), HasSubstr("NCCL waits in the end of a group"));
  communicator.reset();
  EXPECT_THAT(fake_nccl().all_calls().back(), "abort");
}

TEST_F(Communicator, IsAbortedAtOnceInAFailedJob) {
  auto communicator = make();
  is_hopeless_ = true;
  communicator.reset();
  EXPECT_THAT(fake_nccl().all_calls(), ElementsAre("init", "abort"));
}

}  // namespace
}  // namespace megatron
