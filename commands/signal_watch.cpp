#include "commands/signal_watch.h"

#include <utility>

#include "megatron/base/thread_name.h"
#include "megatron/base/thread_start.h"

namespace megatron {

SignalWatch::SignalWatch(std::initializer_list<int> numbers, std::function<void(int)> on_arrival)
    : first_number_(*numbers.begin()), on_arrival_(std::move(on_arrival)) {
  sigemptyset(&watched_);
  for (const int number : numbers) sigaddset(&watched_, number);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask_before_);  // its thread must not take the signals of other watches
  thread_ = start_thread("to watch signals", [this](const std::stop_token& stop) {
    set_thread_name("signals");
    for (int arrived = 0; sigwait(&watched_, &arrived) == 0 && !stop.stop_requested();) {
      received_.store(arrived);
      if (on_arrival_) on_arrival_(arrived);
    }
  });
  sigset_t own = mask_before_;
  for (const int number : numbers) sigaddset(&own, number);
  pthread_sigmask(SIG_SETMASK, &own, nullptr);
}

SignalWatch::~SignalWatch() {
  thread_.request_stop();
  pthread_kill(thread_.native_handle(), first_number_);
  thread_.join();
  constexpr timespec kNoTime{};
  while (sigtimedwait(&watched_, nullptr, &kNoTime) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void die_of_watched(int number) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, number);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  raise(number);
}

}  // namespace megatron
