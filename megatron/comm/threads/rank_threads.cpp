#include "megatron/comm/threads/rank_threads.h"

#include <omp.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/thread_name.h"
#include "megatron/comm/threads/deadline.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;

/// The running ranks, and the failure to report among all that they throw.
class RunningRanks {
 public:
  RunningRanks(ThreadWorld& ranks, const RankThreadHooks& hooks)
      : ranks_(ranks), hooks_(hooks), running_(static_cast<size_t>(ranks.size())) {
    std::iota(running_.begin(), running_.end(), 0);
  }

  void fail(int rank, const std::exception_ptr& exception, const std::string& text, bool is_consequence) {
    const std::lock_guard lock(mutex_);
    if (!failures_.empty() && (is_consequence || !is_consequence_)) return;
    RankFailure& failure = failures_.emplace_back(rank, exception, fmt::format("[rank {}] {}", rank, text));
    is_consequence_ = is_consequence;
    if (!deadline_after_failure_) deadline_after_failure_.emplace(Clock::now(), kTimeToEnd);
    if (hooks_.on_failure) hooks_.on_failure(failure);
    failure.is_reported = hooks_.on_failure != nullptr;
    changed_.notify_all();
  }

  /// Marks that the rank has left its world; it waits for the others at most this long.
  void end(int rank, std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    std::erase(running_, rank);
    ended_.push_back(rank);
    if (ended_.size() == 1) {
      timeout_ = timeout;
      deadline_.emplace(Clock::now(), timeout);
    }
    changed_.notify_all();
  }

  /// Marks that `rank` and those after it have no thread.
  void never_started(int rank) {
    const std::lock_guard lock(mutex_);
    std::erase_if(running_, [&](int other) { return other >= rank; });
  }

  void wait() {
    std::unique_lock lock(mutex_);
    while (!running_.empty()) {
      std::optional<Deadline>& deadline = !failures_.empty() ? deadline_after_failure_ : deadline_;
      if (!deadline || is_hang_reported_) {
        changed_.wait(lock);
      } else if (!deadline->has_passed(Clock::now())) {
        changed_.wait_until(lock, deadline->time());
      } else if (!failures_.empty()) {
        is_hang_reported_ = true;
        if (hooks_.on_hang) hooks_.on_hang(failures_.back(), running_);
      } else {
        time_out(lock);
      }
    }
  }
  void rethrow() const {
    if (!failures_.empty()) throw RankFailure(failures_.back());
  }

 private:
  void time_out(std::unique_lock<std::mutex>& lock) {
    const int first = ended_.front();
    const BlockedOperation blocked{"the end of all ranks", ended_, running_};
    lock.unlock();
    const std::string text = ranks_.time_out(blocked, timeout_);
    fail(first, std::make_exception_ptr(CommError(text)), text, true);
    lock.lock();
  }

  ThreadWorld& ranks_;
  const RankThreadHooks& hooks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> running_, ended_;
  std::chrono::milliseconds timeout_{0};  // of the first rank that has ended
  std::optional<Deadline> deadline_, deadline_after_failure_;
  std::vector<RankFailure> failures_;  // the last is reported; each lives until its rank's thread has ended
  bool is_consequence_ = false, is_hang_reported_ = false;
};

/// @return the time for which the rank waits for the end of the others
std::chrono::milliseconds run_rank(ThreadWorld& ranks, int rank, const std::function<void(World&)>& function,
                                   RunningRanks& running) {
  set_thread_name(fmt::format("rank {}", rank));
  omp_set_num_threads(threads_per_rank(ranks.size()));
  std::unique_ptr<World>
      world;  // destroyed last: the others learn of the failure before they learn that the rank has left
  const auto fail = [&](const char* text, bool is_consequence) {
    running.fail(rank, std::current_exception(), text, is_consequence);
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
  return world ? world->timeout() : ranks.timeout();
}

}  // namespace

int threads_per_rank(int num_ranks) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / num_ranks);
}

void run_rank_threads(ThreadWorld& ranks, const std::function<void(World&)>& function, const RankThreadHooks& hooks) {
  RunningRanks running(ranks, hooks);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks.size()));
  const auto start = [&](int rank) {
    threads.emplace_back([&, rank] {
      const std::chrono::milliseconds timeout = run_rank(ranks, rank, function, running);
      running.end(rank, timeout);
    });
  };
  for (int rank = 0; rank < ranks.size(); ++rank) {
    try {
      start(rank);
    } catch (const std::exception& error) {  // system_error, bad_alloc
      const OutOfMemory refusal(fmt::format(
          "the system cannot start a thread for this rank of {}: {}. Start fewer ranks, or raise 'ulimit -v' "
          "(memory) or 'ulimit -u' (threads).",
          ranks.size(), error.what()));
      running.fail(rank, std::make_exception_ptr(refusal), refusal.what(), false);
      running.never_started(rank);
      ranks.abort(fmt::format("rank {} failed: {}", rank, refusal.what()));
      break;
    }
  }
  running.wait();
  for (std::thread& thread : threads) thread.join();
  running.rethrow();
}

}  // namespace megatron
