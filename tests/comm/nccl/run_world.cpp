// main() of tests on GPUs: every process runs all of them, each as one rank.
#include "tests/comm/conformance/run_world.h"

#include <gtest/gtest.h>

#include <numeric>

#include "megatron/base/error.h"
#include "tests/comm/nccl/nccl_job.h"
#include "tests/comm/nccl/nccl_ranks.h"

namespace megatron::testing {
namespace {

NcclWorld* job = nullptr;  // NCCL is started once
bool has_copies = false;
CUstream_st* stream_of_job = nullptr;

/// Rank 0 prints what GoogleTest prints; the others only what failed.
class FailurePrinter final : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "[rank %d] %s:%d: %s\n", job->rank(), result.file_name(), result.line_number(),
                   result.message());
  }
};

int run_all_tests(const LaunchEnvironment& launch, bool copies) {
  const NcclRank rank = join_nccl_ranks(launch, copies);
  job = rank.ranks.get();
  has_copies = copies;
  stream_of_job = rank.device->stream();
  if (launch.rank > 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  const int status = RUN_ALL_TESTS();
  try {
    job->finish(std::chrono::minutes(2));
  } catch (const CommError&) {
    return 1;
  }
  return status;
}

}  // namespace

void run_world(int num_ranks, const std::function<void(RankContext&)>& function) {
  if (num_ranks != job->size()) GTEST_SKIP() << "runs " << num_ranks << " ranks, and here are " << job->size();
  std::vector<int> all(static_cast<size_t>(num_ranks));
  std::iota(all.begin(), all.end(), 0);
  try {
    const auto world = job->join(std::chrono::seconds(20 * ranks_per_gpu()));
    RankContext context{world->rank(), world->size(), *world,
                        world->split("world", {all}, {.by_copy_engine = true, .pairwise = true}).value()};
    function(context);
  } catch (const std::exception& error) {
    job->abort(error.what());
    ADD_FAILURE() << error.what();
  }
}

bool sums_in_rank_order() { return false; }

NcclWorld& nccl_job() { return *job; }
bool copies_between_gpus() { return has_copies; }
CUstream_st* compute_stream() { return stream_of_job; }

}  // namespace megatron::testing

/// comm_nccl_conformance RANKS [copies]
int main(int argc, char** argv) {
  using namespace megatron::testing;
  return run_nccl_ranks(argc > 1 ? std::stoi(argv[1]) : 2, argc, argv, [&](const megatron::LaunchEnvironment& launch) {
    ::testing::InitGoogleTest(&argc, argv);
    return run_all_tests(launch, argc > 2 && argv[2] == std::string_view("copies"));
  });
}
