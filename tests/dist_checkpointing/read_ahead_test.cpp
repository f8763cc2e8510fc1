#include "megatron/dist_checkpointing/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Counts the sources that are prepared and not released.
class CountedLoad final : public TensorSource {
 public:
  struct Count {
    std::atomic<int> loaded = 0, most = 0;
  };
  explicit CountedLoad(Count& count, int64_t bytes = 1, bool fails = false)
      : count_(count), bytes_(bytes), fails_(fails) {}
  int64_t bytes() const override { return bytes_; }
  void prepare() override {
    require<IoError>(!fails_, "this source fails");
    is_loaded_ = true;
    if (const int now = ++count_.loaded; now > count_.most) count_.most = now;
  }
  std::span<const std::byte> read(int64_t, int64_t) override {
    EXPECT_TRUE(is_loaded_);
    return std::span(&byte_, 1);
  }
  void release() override { --count_.loaded; }

 private:
  Count& count_;
  int64_t bytes_;
  bool fails_;
  std::atomic<bool> is_loaded_ = false;
  std::byte byte_{};
};

std::vector<TensorSource*> pointers_to(std::deque<CountedLoad>& sources) {
  std::vector<TensorSource*> pointers;
  for (CountedLoad& source : sources) pointers.push_back(&source);
  return pointers;
}

/// @return the most sources that were prepared and not released at a time.
int read_all(int64_t bytes) {
  CountedLoad::Count count;
  std::deque<CountedLoad> sources;
  for (int i = 0; i < 50; ++i) sources.emplace_back(count, bytes);
  ReadAhead ahead(pointers_to(sources));
  for (CountedLoad& source : sources) {
    ahead.next();
    source.read(0, 1);
    source.release();
  }
  EXPECT_EQ(count.loaded, 0);
  EXPECT_THROW(ahead.next(), InternalError);
  return count.most;
}

TEST(ReadAhead, HoldsTwoLargeSourcesAtMost) { EXPECT_LE(read_all(2 * ReadAhead::kBytesAhead), 2); }

TEST(ReadAhead, HoldsAsManySmallSourcesAsFit) { EXPECT_LE(read_all(ReadAhead::kBytesAhead / 8), 9); }

TEST(ReadAhead, ThrowsTheErrorOfASourceWhenItsTurnComes) {
  CountedLoad::Count count;
  std::deque<CountedLoad> sources;
  sources.emplace_back(count);
  sources.emplace_back(count, 1, /*fails=*/true);
  sources.emplace_back(count);
  ReadAhead ahead(pointers_to(sources));
  ahead.next();
  EXPECT_THROW(ahead.next(), IoError);
}

TEST(ReadAhead, EndsBeforeAllSourcesAreRead) {
  for (const int num_read : {0, 1}) {
    CountedLoad::Count count;
    std::deque<CountedLoad> sources;
    for (int i = 0; i < 10; ++i) sources.emplace_back(count, 2 * ReadAhead::kBytesAhead);
    {
      ReadAhead ahead(pointers_to(sources));
      for (int i = 0; i < num_read; ++i) ahead.next();
    }
    EXPECT_LE(count.loaded, num_read + 1) << "one large source at most is prepared before it is asked for";
  }
  ReadAhead none({});
}

}  // namespace
}  // namespace megatron
