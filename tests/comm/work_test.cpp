#include "megatron/comm/work.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace megatron {
namespace {

using Log = std::vector<std::string>;

struct Kept {
  explicit Kept(Log& entries) : log(&entries) {}
  Kept(Kept&& other) noexcept : log(std::exchange(other.log, nullptr)) {}
  ~Kept() {
    if (log) log->push_back("released");
  }
  Log* log;
};

struct Pending final : PendingOperation {
  explicit Pending(Log& entries) : log(entries) {}
  ~Pending() override { log.push_back("let go"); }
  void wait() override { log.push_back("waited"); }
  void block() override { log.push_back("blocked"); }
  Log& log;
};

Work make_work(Log& log) { return Work(std::make_unique<Pending>(log), KeepAlive::of(Kept(log))); }

TEST(Work, KeepsItsBuffersUntilItWasWaitedFor) {
  Log log;
  Work work = make_work(log);
  EXPECT_TRUE(log.empty());
  work.wait();
  EXPECT_EQ(log, (Log{"waited", "let go", "released"}));
  work.wait();
  work.block();
  EXPECT_EQ(log, (Log{"waited", "let go", "released"}));
}

TEST(Work, ADroppedOneReleasesItsBuffersFirst) {
  Log log;
  { const Work work = make_work(log); }
  EXPECT_EQ(log, (Log{"let go", "released"}));
}

TEST(Work, AReplacedOneEndsFirst) {
  Log log, other;
  Work work = make_work(log);
  work = make_work(other);
  EXPECT_EQ(log, (Log{"let go", "released"}));
  EXPECT_TRUE(other.empty());
  work = Work();
  EXPECT_EQ(other, (Log{"let go", "released"}));
}

TEST(Work, BlockStopsTheHost) {
  Log log;
  make_work(log).block();
  EXPECT_EQ(log, (Log{"blocked", "let go", "released"}));
}

TEST(KeepAlive, HoldsValuesOfAnyTypes) {
  Log log;
  KeepAlive held = KeepAlive::of(Kept(log), std::string("text"), std::vector<int>{1});
  EXPECT_FALSE(held.empty());
  KeepAlive other = std::move(held);
  EXPECT_TRUE(log.empty());
  other.release();
  EXPECT_EQ(log, (Log{"released"}));
}

}  // namespace
}  // namespace megatron
