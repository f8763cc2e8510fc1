#include "megatron/comm/threads/rank_threads.h"

#include <omp.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace megatron {
namespace {

/// The failure to report of all that the ranks throw.
class FirstFailure {
 public:
  void add(int rank, std::exception_ptr exception, const std::string& text, bool is_consequence) {
    const std::lock_guard lock(mutex_);
    if (failure_ && (is_consequence || !is_consequence_)) return;
    failure_.emplace(rank, std::move(exception), fmt::format("[rank {}] {}", rank, text));
    is_consequence_ = is_consequence;
  }
  void rethrow() const {
    if (failure_) throw RankFailure(*failure_);
  }

 private:
  std::mutex mutex_;
  std::optional<RankFailure> failure_;
  bool is_consequence_ = false;
};

void run_rank(ThreadWorld& ranks, int rank, const std::function<void(World&)>& function, FirstFailure& failure) {
  omp_set_num_threads(threads_per_rank(ranks.size()));
  std::unique_ptr<World> world;  // goes last: the others hear of the failure before they hear that the rank has left
  const auto fail = [&](const char* text, bool is_consequence) {
    failure.add(rank, std::current_exception(), text, is_consequence);
    ranks.abort(fmt::format("rank {} failed: {}", rank, text));
  };
  try {
    world = ranks.join(rank);
    function(*world);
  } catch (const CommError& error) {
    fail(error.what(), true);
  } catch (const std::exception& error) {
    fail(error.what(), false);
  } catch (...) {
    fail("unknown exception", false);
  }
}

}  // namespace

int threads_per_rank(int num_ranks) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / num_ranks);
}

void run_rank_threads(ThreadWorld& ranks, const std::function<void(World&)>& function) {
  FirstFailure failure;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] { run_rank(ranks, rank, function, failure); });
  for (std::thread& thread : threads) thread.join();
  failure.rethrow();
}

}  // namespace megatron
