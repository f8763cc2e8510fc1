#include "megatron/comm/nccl/store_meeting.h"

#include <fmt/core.h>

#include <utility>

#include "megatron/base/error.h"
#include "megatron/comm/longest_timeout.h"
#include "megatron/comm/nccl/poll.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

/// Time that a rank that fails second waits for the first one's text.
constexpr milliseconds kForOwnText{1000};

/// Keys of the store.
constexpr std::string_view kFailure = "failure", kNumFailures = "failures", kEvents = "events", kFinished = "finished";

}  // namespace

StoreMeeting::StoreMeeting(const Options& options, std::function<void()> on_failure)
    : options_(options), store_(options.store, options.timeout), on_failure_(std::move(on_failure)) {}

std::vector<std::string> StoreMeeting::meet(const std::string& own) {
  const auto key_of = [](int rank) { return fmt::format("here/{}", rank); };
  store_.set(key_of(rank()), own);
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(size()));
  for (int other = 0; other < size(); ++other)
    texts.push_back(wait_for(key_of(other), "the start of the job", other, options_.timeout));
  return texts;
}

std::string StoreMeeting::wait_for(std::string_view key, std::string_view what, int source, milliseconds timeout) {
  const auto value = store_.wait(key, timeout, [&] { return has_failed(); });
  throw_if_failed();
  if (!value)
    fail(fmt::format("{} timed out after {} ms: rank {} never entered it; rank {} waiting.", what, timeout.count(),
                     source, rank()));
  throw_if_failed();
  return *value;
}

std::vector<std::string> StoreMeeting::exchange(std::string_view key, std::string_view what,
                                                const std::vector<int>& members, const std::string& own) {
  const auto key_of = [&](int member) { return fmt::format("{}/{}", key, member); };
  store_.set(key_of(rank()), own);
  std::vector<std::string> texts;
  texts.reserve(members.size());
  for (int member : members) texts.push_back(wait_for(key_of(member), what, member, kLongestTimeout));
  return texts;
}

void StoreMeeting::count_to(int64_t count, std::string_view key, std::string_view what, milliseconds timeout) {
  store_.add(key, 1);
  const bool all_have = poll([&] { return has_failed_ || store_.add(key, 0) == count; }, timeout, kLongestStorePause);
  if (!all_have)
    fail(fmt::format("{} timed out after {} ms: {} of {} ranks have arrived", what, timeout.count(), store_.add(key, 0),
                     count));
}

void StoreMeeting::finish(milliseconds timeout) {
  throw_if_failed();
  count_to(size(), kFinished, "the end of all ranks", timeout);
  throw_if_failed();
}

void StoreMeeting::fail(const std::string& text) {
  if (has_failed_) return;
  std::string first = text;
  try {
    if (store_.add(kNumFailures, 1) == 1) {
      store_.set(kFailure, text);
      publish_update();
    } else {
      first = store_.wait(kFailure, kForOwnText).value_or(text);
    }
  } catch (const CommError&) {  // the failure to report is the first one
  }
  fail_here(first);
}

void StoreMeeting::fail_here(const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (has_failed_) return;
    failure_ = text;
    has_failed_ = true;
  }
  on_failure_();
}

void StoreMeeting::throw_if_failed() const {
  if (!has_failed_) return;
  const std::lock_guard lock(mutex_);
  throw CommError(failure_);
}

bool StoreMeeting::poll_updates() {
  const int64_t num_events = store_.add(kEvents, 0);
  if (num_events == std::exchange(num_events_, num_events)) return false;
  if (const auto failure = store_.find(kFailure)) fail_here(*failure);
  return true;
}

void StoreMeeting::publish_update() { store_.add(kEvents, 1); }

}  // namespace megatron
