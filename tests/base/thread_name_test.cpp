#include "megatron/base/thread_name.h"

#include <gtest/gtest.h>

#include <thread>

namespace megatron {
namespace {

/// The name that a thread has which `starter` has started and which then calls itself by its work.
std::string name_of_worker(const std::string& starter, const std::string& work) {
  std::string name;
  std::thread([&] {
    set_thread_name(starter);
    std::thread([&] {
      set_worker_thread_name(work);
      name = thread_name();
    }).join();
  }).join();
  return name;
}

TEST(ThreadName, IsWhatWasSetUpToFifteenBytes) {
  std::string before, after, cut;
  std::thread([&] {
    set_thread_name("rank 3");
    before = thread_name();
    std::thread([&] { after = thread_name(); }).join();
    set_thread_name("0123456789abcdefgh");
    cut = thread_name();
  }).join();
  EXPECT_EQ(before, "rank 3");
  EXPECT_EQ(after, "rank 3") << "of a thread that it has started";
  EXPECT_EQ(cut, "0123456789abcde");
}

TEST(ThreadName, OfAWorkerHasTheNumberOfItsRank) {
  EXPECT_EQ(name_of_worker("rank 3", "loader"), "loader 3");
  EXPECT_EQ(name_of_worker("rank 1023", "checkpoint"), "checkpoint 1023");
  EXPECT_EQ(name_of_worker("megatron", "loader"), "loader");
  EXPECT_EQ(name_of_worker("loader 7", "reader"), "reader 7");
}

}  // namespace
}  // namespace megatron
