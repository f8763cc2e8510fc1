#include "megatron/comm/nccl/nccl_watchdog.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/thread_name.h"
#include "megatron/comm/nccl/nccl_lane.h"
#include "megatron/comm/nccl/nccl_world.h"
#include "megatron/comm/nccl/poll.h"
#include "megatron/comm/world.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// Poll intervals of the watchdog: with operations in flight, and otherwise.
constexpr milliseconds kBusyLook{5}, kIdleLook{20};
// A graph of a large model waits for tens of thousands of sections, one after the other.
constexpr std::chrono::microseconds kReleasePause{100};
/// Poll interval of the store: the time in which ranks learn of a failure.
constexpr milliseconds kUpdatePoll{200};
/// A live process answers within its poll of the store.
constexpr milliseconds kReportTime{2000};
// The promised bound.
static_assert(kUpdatePoll + kReportTime + NcclWatchdog::kDrainTime <= NcclWorld::kTimeToTell);

/// Keys of the store.
constexpr std::string_view kNumQueries = "queries";
std::string report_key(int64_t query, int rank) { return fmt::format("report/{}/{}", query, rank); }

}  // namespace

NcclWatchdog::~NcclWatchdog() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
}

void NcclWatchdog::start(std::function<void()> use_device) {
  use_device_ = std::move(use_device);
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

NcclFlightPtr NcclWatchdog::look_at_flights() {
  const std::lock_guard lock(flights_.mutex);
  flights_.graphs.note_ends();
  for (NcclLane* lane : flights_.lanes) {
    if (lane->connection_.communicator) lane->connection_.communicator->check();
    lane->queue_.note_ends();
  }
  for (const FlightQueue* queue : flights_.queues())
    if (NcclFlightPtr late = queue->late()) return late;
  return nullptr;
}

void NcclWatchdog::watch(const std::stop_token& stop) {
  const int rank = meeting_.rank();
  const auto has_failed = [this] { return meeting_.has_failed(); };
  set_thread_name(fmt::format("watchdog {}", rank));
  try {
    use_device_();
    auto next_poll = Clock::now();
    while (!stop.stop_requested() && !has_failed()) {
      try {
        if (const NcclFlightPtr late = look_at_flights()) time_out(*late);
      } catch (const Error& error) {
        meeting_.fail(fmt::format("rank {}: {}", rank, error.what()));
      }
      if (Clock::now() >= next_poll) {
        handle_updates();
        next_poll = Clock::now() + kUpdatePoll;
      }
      std::unique_lock lock(flights_.mutex);
      const auto all = flights_.queues();
      const bool is_busy = !std::all_of(all.begin(), all.end(), [](auto* queue) { return queue->is_empty(); });
      flights_.changed.wait_for(lock, is_busy ? kBusyLook : kIdleLook,
                                [&] { return stop.stop_requested() || has_failed(); });
    }
  } catch (const Error& error) {
    meeting_.fail_here(fmt::format("rank {} has lost the other ranks: {}", rank, error.what()));
  }
  for (; has_failed(); std::this_thread::sleep_for(kReleasePause)) {
    abort_all();
    if (stop.stop_requested()) return;
  }
}

void NcclWatchdog::handle_updates() {
  if (!meeting_.poll_updates() || meeting_.has_failed()) return;
  for (const int64_t newest = meeting_.store().add(kNumQueries, 0); num_answered_ < newest;) answer(++num_answered_);
}

void NcclWatchdog::answer(int64_t query) {
  meeting_.store().set(report_key(query, meeting_.rank()), report().serialize());
}

RankReport NcclWatchdog::report() const {
  const std::lock_guard lock(flights_.mutex);
  const World* world = flights_.world;
  RankReport result{.rank = meeting_.rank(), .text = {}, .blocked = {}, .num_issued = {}};
  const NcclFlight* oldest = nullptr;
  for (const FlightQueue* queue : flights_.queues()) {
    result.num_issued[queue->name()] = queue->num_issued();
    const NcclFlight* blocked = queue->blocked();
    if (blocked && (!oldest || blocked->enqueued() < oldest->enqueued())) oldest = blocked;
  }
  graph_steps_.add_to(result);
  if (oldest) {
    result.text = oldest->to_string();
    result.blocked = oldest->place();
  } else if (!result.blocked) {
    result.text = world ? describe_idle_rank(result.rank, world->recorder())
                        : fmt::format(" Rank {} has left or never joined.", result.rank);
    if (const int64_t num_launches = flights_.graphs.num_issued())  // the recorder does not have these
      result.text += fmt::format(" Its last launch of a CUDA graph was #{}.", num_launches - 1);
  }
  return result;
}

std::map<int, RankReport> NcclWatchdog::ask_all() {
  const int64_t query = meeting_.store().add(kNumQueries, 1);
  meeting_.publish_update();
  answer(query);
  std::map<int, RankReport> reports;
  const bool is_watchdog = std::this_thread::get_id() == thread_.get_id();
  poll(
      [&] {
        if (is_watchdog) handle_updates();  // other ranks may query at the same time
        for (int other = 0; other < meeting_.size(); ++other) {
          if (reports.contains(other)) continue;
          if (const auto text = meeting_.store().find(report_key(query, other)))
            reports[other] = RankReport::parse(*text);
        }
        return meeting_.has_failed() || reports.size() == static_cast<size_t>(meeting_.size());
      },
      kReportTime, kLongestStorePause);
  return reports;
}

void NcclWatchdog::time_out(const NcclFlight& flight) {
  std::map<int, RankReport> reports = ask_all();
  if (meeting_.has_failed()) return;
  RankReport& own = reports[meeting_.rank()];  // its longest wait may be another operation
  own.text = flight.to_string();
  own.blocked = flight.place();
  meeting_.fail(explain_timeout(meeting_.rank(), flight.info().timeout, reports));
}

/// Called repeatedly. Aborts all at once, each in a thread of its own: NCCL waits for a communicator's streams, which
/// may wait for another one's work on the GPU, and for flags, which running ranks reset meanwhile; and it waits until
/// no graph with its operations exists, whose owner must learn of the failure first.
void NcclWatchdog::abort_all() {
  const std::lock_guard lock(flights_.mutex);
  for (NcclLane* lane : flights_.lanes) lane->begin_abort();
}

}  // namespace megatron
