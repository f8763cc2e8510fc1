#include "megatron/comm/mpi/mpi_hub.h"

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/thread_name.h"
#include "megatron/base/thread_start.h"
#include "megatron/comm/longest_timeout.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A live process answers within its service thread's sleep.
constexpr milliseconds kAnswerTime{2000};
/// Time for the message of a failure to leave this process. Small messages leave at once if the receiver accepts any.
constexpr milliseconds kFarewellTime{500};
/// Time for handshakes in flight when a rank drops an operation.
constexpr milliseconds kGraceTime{200};

/// Sleeps of the service thread: with operations in flight, while another thread drives them, and otherwise.
constexpr microseconds kBusySleep{300}, kDrivenSleep{5000}, kIdleSleep{5000};

/// Sleeps for growing times. It does not yield: on a busy machine the scheduler may then take a whole time
/// slice, while a thread that has slept runs soon.
class Pause {
 public:
  void operator()(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    std::this_thread::sleep_for(length_);
    length_ = std::min(2 * length_, kLongest);
    lock.lock();
  }

 private:
  static constexpr microseconds kLongest{100};
  microseconds length_{1};  // the kernel adds some 50 us
};

/// Calls a function in a thread of its own unless it is destroyed before `timeout` has passed.
class HangDeadline {
 public:
  HangDeadline(milliseconds timeout, std::string thread_name, std::function<void()> on_hang)
      : thread_(start_thread("to end a rank that hangs", [timeout, thread_name = std::move(thread_name),
                                                          on_hang = std::move(on_hang)](const std::stop_token& stop) {
          set_thread_name(thread_name);
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any never;
          never.wait_for(lock, stop, std::min(timeout, kLongestTimeout), [] { return false; });
          if (!stop.stop_requested()) on_hang();
        })) {}

 private:
  std::jthread thread_;
};

}  // namespace

MpiHub::MpiHub(MpiTransport& transport)
    : transport_(transport),
      control_(transport),
      service_(start_thread("for messages of other ranks", [this](const std::stop_token& stop) { serve(stop); })) {}

MpiHub::~MpiHub() = default;

void MpiHub::finish(milliseconds timeout, const std::function<void(const std::string&)>& on_hang) {
  Lock lock(mutex_);
  if (std::exchange(is_finished_, true)) return;
  throw_if_failed();
  // A rank that hangs while it waits for the last one does not reach the second round, where it is reported by name:
  // MPI_Finalize would only hang.
  say_to_all(lock, MpiControlMessage::Kind::kLeft, timeout);
  say_to_all(lock, MpiControlMessage::Kind::kGone, timeout);
  lock.unlock();
  service_.request_stop();
  service_.join();
  control_.close();
  const HangDeadline deadline(timeout, fmt::format("watchdog {}", transport_.rank()), [&] {
    if (on_hang)
      on_hang(
          fmt::format("[rank {}] all ranks have ended, but MPI_Finalize has not returned after {} ms: a "
                      "rank that does not print this hangs in it, or its process is lost",
                      transport_.rank(), timeout.count()));
  });
  transport_.finish();
}

/// Messages to a rank that hangs may stay unsent until all have gone.
void MpiHub::say_to_all(Lock& lock, MpiControlMessage::Kind kind, milliseconds timeout) {
  control_.send_to_all_others(MpiControlMessage::make(kind, {}));
  const auto others = static_cast<size_t>(transport_.size() - 1);
  const bool is_last = kind == MpiControlMessage::Kind::kGone;
  drive(
      lock, [&] { return ranks_that(kind).size() == others && !(is_last && control_.has_unsent()); }, timeout);
  throw_if_failed();
}

void MpiHub::join(const FlightRecorder& recorder) {
  const Lock lock(mutex_);
  recorder_ = &recorder;
}

void MpiHub::leave() {
  const Lock lock(mutex_);
  recorder_ = nullptr;
  groups_.clear();
}

MpiGroup& MpiHub::make_group(std::string_view name, std::vector<int> ranks, int own, int split) {
  const Lock lock(mutex_);
  throw_if_failed();
  groups_.push_back(std::make_unique<MpiGroup>(name, std::move(ranks), own, split));
  return *groups_.back();
}

void MpiHub::begin(const std::function<void()>& enqueue) {
  const Lock lock(mutex_);
  throw_if_failed();
  enqueue();
  progress();
  throw_if_failed();
}

void MpiHub::wait(const MpiOperation& operation, const OperationInfo& info) {
  Lock lock(mutex_);
  throw_if_failed();
  if (!operation.is_done()) progress();
  if (operation.is_done()) return;
  info.recorder->waited(info.record, Clock::now());
  waiting_for_ = &operation;
  drive(
      lock, [&] { return operation.is_done(); }, info.timeout);
  waiting_for_ = nullptr;
  if (!operation.is_done()) throw_if_failed();
}

void MpiHub::drive(Lock& lock, const std::function<bool()>& is_done, milliseconds timeout) {
  const auto deadline = Clock::now() + std::min(timeout, kLongestTimeout);
  for (Pause pause; !is_done() && failure_.empty(); pause(lock)) {
    progress();
    if (!is_done() && failure_.empty() && Clock::now() > deadline) time_out(lock, is_done, timeout);
  }
}

void MpiHub::abandon(const MpiOperation& operation, const OperationInfo& info, bool is_unwinding) noexcept {
  try {
    {
      Lock lock(mutex_);
      const auto deadline = Clock::now() + (is_unwinding ? milliseconds(0) : kGraceTime);
      for (Pause pause; failure_.empty() && !operation.is_ready() && Clock::now() < deadline; pause(lock)) progress();
      if (failure_.empty() && !operation.is_ready())
        fail_locked(explain_drop(transport_.rank(), operation.to_string(), operation.missing_ranks(), is_unwinding),
                    true);
    }
    wait(operation, info);
  } catch (const Error&) {
  }
}

void MpiHub::fail(const std::string& text) {
  const Lock lock(mutex_);
  fail_locked(text, true);
}

bool MpiHub::has_failed_elsewhere() const {
  const Lock lock(mutex_);
  return has_failed_elsewhere_;
}

void MpiHub::throw_if_failed() const {
  if (!failure_.empty()) throw CommError(failure_);
}

/// Never waits for the lock: its holder drives the operations too.
void MpiHub::serve(const std::stop_token& stop) {
  set_thread_name(fmt::format("watchdog {}", transport_.rank()));
  while (!stop.stop_requested()) {
    auto sleep = kDrivenSleep;
    if (const Lock lock(mutex_, std::try_to_lock); lock && !waiting_for_) {
      if (!failure_.empty()) return;
      progress();
      sleep = is_idle() ? kIdleSleep : kBusySleep;
    }
    std::this_thread::sleep_for(sleep);
  }
}

bool MpiHub::is_idle() const {
  return std::all_of(groups_.begin(), groups_.end(), [](const auto& group) { return group->is_idle(); });
}

void MpiHub::progress() {
  if (!failure_.empty()) return;
  try {
    advance();
  } catch (const CommError& error) {
    fail_locked(error.what(), true);
  }
}

void MpiHub::advance() {
  while (const auto message = control_.poll()) {
    handle(*message);
    if (!failure_.empty()) return;
  }
  for (const auto& group : groups_) group->advance(transport_);
  for (int rank : left_)  // everything that it sent before it left has been processed
    for (const auto& group : groups_)
      if (const MpiOperation* operation = group->find_waiting_for(rank))
        throw CommError(
            fmt::format("{} cannot complete: rank {} has left without entering it", operation->to_string(), rank));
}

void MpiHub::handle(const MpiControlMessage& message) {
  switch (message.kind) {
    case MpiControlMessage::Kind::kFailed:
      has_failed_elsewhere_ = true;
      return fail_locked(message.text(), false);
    case MpiControlMessage::Kind::kLeft:
    case MpiControlMessage::Kind::kGone:
      ranks_that(message.kind).insert(message.sender);
      return;
    case MpiControlMessage::Kind::kReport:
      if (message.query == query_) reports_.insert_or_assign(message.sender, message);
      return;
    case MpiControlMessage::Kind::kQuery:
      MpiControlMessage answer = report();
      answer.query = message.query;
      return control_.send(message.sender, answer);
  }
}

std::optional<BlockedOperation> MpiHub::blocked() const {
  const int own = transport_.rank();
  if (waiting_for_) return BlockedOperation{waiting_for_->to_string(), {own}, waiting_for_->missing_ranks()};
  if (!is_finished_) return std::nullopt;
  const std::set<int>& come = left_.size() + 1 == static_cast<size_t>(transport_.size()) ? gone_ : left_;
  BlockedOperation end{"the end of all ranks", {own}, {}};
  for (int rank = 0; rank < transport_.size(); ++rank)
    if (rank != own && !come.contains(rank)) end.missing.push_back(rank);
  return end;
}

MpiControlMessage MpiHub::report() const {
  const std::string idle = recorder_ ? describe_idle_rank(transport_.rank(), *recorder_)
                                     : fmt::format(" Rank {} has left or never joined.", transport_.rank());
  const std::optional<BlockedOperation> own = blocked();
  auto message = MpiControlMessage::make(MpiControlMessage::Kind::kReport, own ? own->text : idle);
  message.is_blocked = own.has_value();
  if (own) message.set_missing(own->missing);
  if (waiting_for_) message.group_hash = waiting_for_->group_hash();
  return message;
}

void MpiHub::fail_locked(const std::string& text, bool tell_others) {
  if (!failure_.empty()) return;
  failure_ = text;
  try {
    if (tell_others) control_.send_to_all_others(MpiControlMessage::make(MpiControlMessage::Kind::kFailed, text));
    // Not advance(): only these messages may progress.
    const auto deadline = Clock::now() + kFarewellTime;
    while (control_.has_unsent() && Clock::now() < deadline) control_.poll();
  } catch (const CommError&) {  // the failure to report is the first one
  }
}

void MpiHub::time_out(Lock& lock, const std::function<bool()>& is_done, milliseconds timeout) {
  reports_.clear();
  MpiControlMessage query;
  query.kind = MpiControlMessage::Kind::kQuery;
  query.query = ++query_;
  control_.send_to_all_others(query);
  const auto deadline = Clock::now() + kAnswerTime;
  const auto others = static_cast<size_t>(transport_.size() - 1);
  for (Pause pause; reports_.size() < others && Clock::now() < deadline; pause(lock)) {
    progress();
    if (!failure_.empty() || is_done()) return;
  }
  BlockedOperation own = blocked().value();
  const uint64_t own_group =
      report().group_hash;  // the text only names the kind of group, and there are many of a kind
  std::vector<BlockedOperation> all;
  for (const auto& [rank, report] : reports_) {
    if (!report.is_blocked) continue;
    all.push_back({report.text(), {rank}, report.missing_ranks()});
    if (report.text() == own.text && report.group_hash == own_group) own.waiting.push_back(rank);
  }
  std::sort(own.waiting.begin(), own.waiting.end());
  all.push_back(own);
  fail_locked(explain_timeout(own, timeout, all,
                              [&](int rank) {
                                const auto report = reports_.find(rank);
                                if (report != reports_.end()) return report->second.text();
                                return fmt::format(" Rank {} does not answer: its process hangs or is lost.", rank);
                              }),
              true);
}

}  // namespace megatron
