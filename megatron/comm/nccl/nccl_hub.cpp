#include "megatron/comm/nccl/nccl_hub.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "megatron/base/thread_name.h"
#include "megatron/base/word_list.h"
#include "megatron/comm/longest_timeout.h"
#include "megatron/comm/nccl/cuda_check.h"
#include "megatron/comm/nccl/gpu_place.h"
#include "megatron/comm/nccl/nccl_world.h"
#include "megatron/comm/nccl/poll.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

/// Poll intervals of the watchdog: with operations in flight, and otherwise.
constexpr milliseconds kBusyLook{5}, kIdleLook{20};
// A graph of a large model waits for tens of thousands of sections, one after the other.
constexpr std::chrono::microseconds kReleasePause{100};
/// Poll interval of the store: the time in which ranks learn of a failure.
constexpr milliseconds kUpdatePoll{200};
/// A live process answers within its poll of the store.
constexpr milliseconds kAnswerTime{2000};
/// Time for operations that all ranks have entered when a rank drops them.
constexpr milliseconds kGraceTime{500};
/// Time for streams to drain after an abort.
constexpr milliseconds kDrainTime{1000};
// The promised bound.
static_assert(kUpdatePoll + kAnswerTime + kDrainTime <= NcclWorld::kTimeToTell);

/// Keys of the store.
constexpr std::string_view kNumQueries = "queries";
std::string report_key(int64_t query, int rank) { return fmt::format("report/{}/{}", query, rank); }

}  // namespace

/// The watchdog starts before NCCL: it detects ranks that fail meanwhile. NCCL cannot name missing ranks; here
/// all ranks have arrived before NCCL starts.
NcclHub::NcclHub(const Options& options) : options_(options), meeting_(options.meeting, [this] { wake_waiting(); }) {
  use_device();
  watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  try {
    places_ = RankPlaces::parse(meeting_.meet(gpu_place(options_.device).serialize()));
  } catch (const Error& error) {
    fail(fmt::format("rank {} could not join the others: {}", rank(), error.what()));
    throw;
  }
  if (!options_.may_share_gpus) places_.require_a_gpu_each();  // all ranks detect it alike
}

NcclCommunicator::Patience NcclHub::patience(milliseconds timeout) const {
  return {timeout, [this] { throw_if_failed(); }};
}

NcclHub::~NcclHub() {
  if (watch_.joinable()) {
    watch_.request_stop();
    watch_.join();
  }
}

void NcclHub::use_device() const { check_cuda_call(cudaSetDevice(options_.device), "cudaSetDevice"); }

void NcclHub::join(const World& world) {
  const std::lock_guard lock(mutex_);
  world_ = &world;
}

void NcclHub::leave() {
  const std::lock_guard lock(mutex_);
  world_ = nullptr;
}

void NcclHub::add(NcclLane& lane) {
  const std::lock_guard lock(mutex_);
  lanes_.insert(&lane);
}

void NcclHub::remove(NcclLane& lane) {
  const std::lock_guard lock(mutex_);
  lanes_.erase(&lane);
}

void NcclHub::launched(FlightQueue& queue) {
  {
    const std::lock_guard lock(mutex_);
    queue.note_launch();
  }
  changed_.notify_all();
}

std::unique_ptr<NcclCommunicator> NcclHub::make_communicator(const NcclLane::Facts& lane, int max_multiprocessors) {
  const auto place = static_cast<int>(std::ranges::find(lane.members, rank()) - lane.members.begin());
  const std::string id_key = lane.name + ".id";
  NcclLibrary::UniqueId id{};
  if (place == 0) {
    id = library_.get_unique_id();
    meeting_.store().set(id_key, {id.bytes.data(), id.bytes.size()});
  } else {
    const std::string text = meeting_.wait_for(id_key, lane.name, lane.members[0], kLongestTimeout);
    require<CommError>(text.size() == id.bytes.size(), "[NcclHub] an id of {} bytes", text.size());
    std::memcpy(id.bytes.data(), text.data(), text.size());
  }
  return NcclCommunicator::make(library_, static_cast<int>(lane.members.size()), id, place,
                                patience(options_.meeting.timeout), max_multiprocessors);
}

std::string NcclHub::transports() const {
  std::set<std::string> lines;
  const std::lock_guard lock(mutex_);
  for (const NcclLane* lane : lanes_)
    if (!lane->connection_.transport.empty()) lines.insert(lane->connection_.transport);
  return joined(lines, "\n");
}

void NcclHub::end_connecting(const NcclLane::Facts& lane) {
  turns_.end(lane.name);
  changed_.notify_all();
}

void NcclHub::begin_step() {
  const auto is_not_connected = [](const NcclLane* lane) { return !lane->is_connected_ || !lane->waiting_.empty(); };
  std::string missing;
  {
    std::unique_lock lock(mutex_);
    const auto is_over = [&] { return has_failed() || std::none_of(lanes_.begin(), lanes_.end(), is_not_connected); };
    if (!changed_.wait_for(lock, std::min(options_.meeting.timeout, kLongestTimeout), is_over)) {
      const NcclLane::Facts& lane = (*std::find_if(lanes_.begin(), lanes_.end(), is_not_connected))->facts();
      missing = fmt::format("{} of [{}]", describe_ranks(lane.members), lane.group);
    }
  }
  if (!missing.empty())
    fail(fmt::format("the beginning of a step timed out after {} ms: rank {} waits for a connection between {}",
                     options_.meeting.timeout.count(), rank(), missing));
  throw_if_failed();
  is_in_step_ = true;
}

void NcclHub::wait(const NcclLane& lane, const NcclFlight& flight, bool is_for_host) {
  throw_if_failed();
  if (flight.is_recorded() != is_recording_)
    throw InternalError(fmt::format("[NcclHub] {}: it and its wait are not in the same capture", flight.to_string()));
  require<InternalError>(!is_recording_ || !is_for_host, "[NcclHub] {}: the host cannot wait in a capture",
                         flight.to_string());
  if (is_recording_) return flight.make_stream_wait(options_.compute);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return lane.queue_.is_launched(flight) || has_failed(); });
  }
  throw_if_failed();
  const OperationInfo& info = flight.info();
  try {
    if (!flight.has_ended()) info.recorder->waited(info.record, Clock::now());
    if (!is_for_host && !flight.is_for_host()) return flight.make_stream_wait(options_.compute);
    ++num_host_waits_;
    poll([&] { return has_failed() || flight.has_ended(); }, kLongestTimeout);
    if (!has_failed()) {
      const std::lock_guard lock(mutex_);
      return const_cast<NcclLane&>(lane).queue_.note_ends();
    }
  } catch (const Error& error) {
    fail(fmt::format("rank {}: {}", rank(), error.what()));
  }
  poll([&] { return flight.is_over(); }, kDrainTime);  // host memory must not be written any more
  throw_if_failed();
}

void NcclHub::abandon(const NcclLane& lane, const NcclFlight& flight, bool is_unwinding) noexcept {
  if (flight.is_recorded()) return;
  try {
    if (has_failed()) {
      poll([&] { return flight.is_over(); }, kDrainTime);
      return;
    }
    const auto is_launched = [&] {
      const std::lock_guard lock(mutex_);
      return lane.queue_.is_launched(flight);
    };
    if (is_unwinding || !poll([&] { return is_launched() && flight.has_ended(); }, kGraceTime)) {
      const std::vector<int> missing = missing_ranks(flight.place(), ask_all());
      if (!missing.empty()) fail(explain_drop(rank(), flight.to_string(), missing, is_unwinding));
    }
    wait(lane, flight, true);
  } catch (const Error&) {
  }
}

/// The watchdog cannot see into a graph: the whole graph counts as one operation of all ranks.
void NcclHub::launch_graph(std::string_view site, const std::function<void()>& launch) {
  throw_if_failed();
  std::vector<int> members(static_cast<size_t>(size()));
  std::iota(members.begin(), members.end(), 0);
  const int64_t number = graphs_.num_issued();
  const auto flight =
      std::make_shared<NcclFlight>(resources(), fmt::format("launch #{} of a CUDA graph \"{}\"", number, site),
                                   world_->timeout(), LanePlace{graphs_.name(), number, members});
  {
    const std::lock_guard lock(mutex_);
    graphs_.add(
        flight);  // before the launch, in which the host may wait for space in the GPU's queue, and so for other ranks
  }
  try {
    flight->launch_graph(launch);
  } catch (const Error& error) {
    fail(fmt::format("{} failed on rank {}: {}", flight->to_string(), rank(), error.what()));
    throw_if_failed();
  }
  launched(graphs_);
}

/// Call it with the mutex held, like the following functions.
std::vector<const FlightQueue*> NcclHub::queues() const {
  std::vector<const FlightQueue*> queues{&graphs_};
  for (const NcclLane* lane : lanes_) queues.push_back(&lane->queue_);
  return queues;
}

NcclFlightPtr NcclHub::look_at_flights() {
  const std::lock_guard lock(mutex_);
  graphs_.note_ends();
  for (NcclLane* lane : lanes_) {
    if (lane->connection_.communicator) lane->connection_.communicator->check();
    lane->queue_.note_ends();
  }
  for (const FlightQueue* queue : queues())
    if (NcclFlightPtr late = queue->late()) return late;
  return nullptr;
}

void NcclHub::watch(const std::stop_token& stop) {
  set_thread_name(fmt::format("watchdog {}", rank()));
  try {
    use_device();
    auto next_poll = Clock::now();
    while (!stop.stop_requested() && !has_failed()) {
      try {
        if (const NcclFlightPtr late = look_at_flights()) time_out(*late);
      } catch (const Error& error) {
        fail(fmt::format("rank {}: {}", rank(), error.what()));
      }
      if (Clock::now() >= next_poll) {
        handle_updates();
        next_poll = Clock::now() + kUpdatePoll;
      }
      std::unique_lock lock(mutex_);
      const auto all = queues();
      const bool is_busy = !std::all_of(all.begin(), all.end(), [](auto* queue) { return queue->is_empty(); });
      changed_.wait_for(lock, is_busy ? kBusyLook : kIdleLook, [&] { return stop.stop_requested() || has_failed(); });
    }
  } catch (const Error& error) {
    meeting_.fail_here(fmt::format("rank {} has lost the other ranks: {}", rank(), error.what()));
  }
  for (; has_failed(); std::this_thread::sleep_for(kReleasePause)) {
    abort_all();
    if (stop.stop_requested()) return;
  }
}

void NcclHub::handle_updates() {
  if (!meeting_.poll_updates() || has_failed()) return;
  for (const int64_t newest = meeting_.store().add(kNumQueries, 0); num_answered_ < newest;) answer(++num_answered_);
}

void NcclHub::answer(int64_t query) { meeting_.store().set(report_key(query, rank()), report().serialize()); }

RankReport NcclHub::report() const {
  const std::lock_guard lock(mutex_);
  RankReport result{.rank = rank(), .text = {}, .blocked = {}, .num_issued = {}};
  const NcclFlight* oldest = nullptr;
  for (const FlightQueue* queue : queues()) {
    result.num_issued[queue->name()] = queue->num_issued();
    const NcclFlight* blocked = queue->blocked();
    if (blocked && (!oldest || blocked->enqueued() < oldest->enqueued())) oldest = blocked;
  }
  graph_steps_.add_to(result);
  if (oldest) {
    result.text = oldest->to_string();
    result.blocked = oldest->place();
  } else if (!result.blocked) {
    result.text = world_ ? describe_idle_rank(rank(), world_->recorder())
                         : fmt::format(" Rank {} has left or never joined.", rank());
    if (const int64_t num_launches = graphs_.num_issued())  // the recorder does not have these
      result.text += fmt::format(" Its last launch of a CUDA graph was #{}.", num_launches - 1);
  }
  return result;
}

std::map<int, RankReport> NcclHub::ask_all() {
  const int64_t query = meeting_.store().add(kNumQueries, 1);
  meeting_.publish_update();
  answer(query);
  std::map<int, RankReport> reports;
  const bool is_watchdog = std::this_thread::get_id() == watch_.get_id();
  poll(
      [&] {
        if (is_watchdog) handle_updates();  // other ranks may query at the same time
        for (int other = 0; other < size(); ++other) {
          if (reports.contains(other)) continue;
          if (const auto text = meeting_.store().find(report_key(query, other)))
            reports[other] = RankReport::parse(*text);
        }
        return has_failed() || reports.size() == static_cast<size_t>(size());
      },
      kAnswerTime, kLongestStorePause);
  return reports;
}

void NcclHub::time_out(const NcclFlight& flight) {
  std::map<int, RankReport> reports = ask_all();
  if (has_failed()) return;
  RankReport& own = reports[rank()];  // its longest wait may be another operation
  own.text = flight.to_string();
  own.blocked = flight.place();
  fail(explain_timeout(rank(), flight.info().timeout, reports));
}

/// Taking the lock in between wakes every thread that checked for a failure before and waits now.
void NcclHub::wake_waiting() {
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

/// Called by the watchdog repeatedly. Aborts all at once, each in a thread of its own: NCCL waits for a communicator's
/// streams, which may wait for another one's work on the GPU, and for flags, which running ranks reset meanwhile; and
/// it waits until no graph with its operations exists, whose owner must learn of the failure first.
void NcclHub::abort_all() {
  const std::lock_guard lock(mutex_);
  for (NcclLane* lane : lanes_) lane->begin_abort();
}

void NcclHub::meet_at_end(const NcclLane::Facts& lane) {
  meeting_.count_to(std::ssize(lane.members), lane.name + ".end", fmt::format("the end of [{}]", lane.group),
                    options_.meeting.timeout);
}

}  // namespace megatron
