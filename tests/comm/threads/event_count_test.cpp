#include "megatron/comm/threads/event_count.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace megatron {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(EventCount, DoesNotSleepIfSomethingWasAnnouncedSinceTheTicket) {
  EventCount event;
  const EventCount::Ticket ticket = event.ticket();
  event.announce();
  EXPECT_TRUE(event.wait(ticket));
  EXPECT_TRUE(event.wait(ticket, steady_clock::now() - milliseconds(1)));
}

TEST(EventCount, SleepsUntilTheDeadlineIfNothingIsAnnounced) {
  EventCount event;
  const auto deadline = steady_clock::now() + milliseconds(20);
  while (event.wait(event.ticket(), deadline)) ASSERT_LT(steady_clock::now(), deadline);  // a signal may wake it
  EXPECT_GE(steady_clock::now(), deadline);
  EXPECT_FALSE(event.wait(event.ticket(), deadline));
}

TEST(EventCount, WakesAllWaitersOfAChangeWithoutALock) {
  EventCount event;
  std::atomic<int> value{0};
  int64_t plain = 0;  // published by `value`
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i)
    threads.emplace_back([&] {
      while (true) {
        const EventCount::Ticket ticket = event.ticket();
        if (value == 1000) break;
        event.wait(ticket);
      }
      EXPECT_EQ(plain, 1000);
    });
  for (int i = 1; i <= 1000; ++i) {
    plain = i;
    value = i;
    event.announce();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace megatron
