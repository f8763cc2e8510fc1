// main() of tests that run under mpirun: every process runs all of them, each as one rank.
#include "tests/comm/conformance/run_world.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>

#include "megatron/base/error.h"
#include "megatron/comm/mpi/mpi_world.h"

namespace megatron::testing {
namespace {

MpiWorld* job = nullptr;  // MPI can be started once in a process

/// Rank 0 prints what GoogleTest prints; the others only what failed.
class FailurePrinter final : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "[rank %d] %s:%d: %s\n", job->rank(), result.file_name(), result.line_number(),
                   result.message());
  }
};

}  // namespace

void run_world(int num_ranks, const std::function<void(RankContext&)>& function) {
  ASSERT_LE(num_ranks, job->size()) << "start more with mpirun -np";
  if (job->rank() >= num_ranks) return;
  std::vector<int> all(static_cast<size_t>(num_ranks));
  std::iota(all.begin(), all.end(), 0);
  try {
    const auto world = job->join(num_ranks, std::chrono::minutes(2));
    RankContext context{world->rank(), world->size(), *world, world->split("world", {all}).value()};
    function(context);
  } catch (const std::exception& error) {
    job->abort(error.what());
    ADD_FAILURE() << error.what();
  }
}

int run_all_tests(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  MpiWorld ranks;
  job = &ranks;
  if (ranks.rank() > 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  const int status = RUN_ALL_TESTS();
  try {
    ranks.finish(std::chrono::minutes(2));
  } catch (const CommError&) {
    ranks.end_all(1);
  }
  return status;
}

bool sums_in_rank_order() { return true; }

}  // namespace megatron::testing

int main(int argc, char** argv) { return megatron::testing::run_all_tests(argc, argv); }
