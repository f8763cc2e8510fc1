// The ranks of a job as they meet through their store: what each tells, and the failure that ends every wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/rendezvous/store_client.h"

namespace megatron {

/// Needs no GPU. Thread-safe.
class StoreMeeting {
 public:
  struct Options {
    int rank = 0, size = 1;
    StoreClient::Address store;
    std::chrono::milliseconds timeout{0};  // until all ranks have come
  };
  /// @param on_failure  called once, when a failure is known here: what waits on this rank is to look at has_failed().
  /// Any thread.
  StoreMeeting(const Options& options, std::function<void()> on_failure);
  StoreMeeting(const StoreMeeting&) = delete;
  StoreMeeting& operator=(const StoreMeeting&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  StoreClient& store() { return store_; }

  /// Returns when all ranks have called it. @return what each has told, by rank. @throw CommError as wait_for()
  std::vector<std::string> meet(const std::string& own);
  /// The value that a rank gives a key. @param what is waited for, @param source who gives it. @throw CommError if the
  /// world fails, or the value is not there in time
  std::string wait_for(std::string_view key, std::string_view what, int source, std::chrono::milliseconds timeout);
  /// The texts of all `members`, which call it once with the same `key`. Waits as long as it takes. @param what see
  /// wait_for(). @throw CommError if the world fails
  std::vector<std::string> exchange(std::string_view key, std::string_view what, const std::vector<int>& members,
                                    const std::string& own);
  /// Returns when `count` ranks have called it with that key, or a rank has failed, of which it may be the cause.
  void count_to(int64_t count, std::string_view key, std::string_view what, std::chrono::milliseconds timeout);
  /// Returns when all ranks have called it. @throw CommError if the world fails
  void finish(std::chrono::milliseconds timeout);

  /// On all ranks. The first reason stays.
  void fail(const std::string& text);
  /// On this rank: the others have told, or are out of reach.
  void fail_here(const std::string& text);
  bool has_failed() const { return has_failed_; }
  void throw_if_failed() const;

  /// By one thread, now and then: hears of failures of other ranks. @return whether a rank has called tell_news()
  bool hears_news();
  void tell_news();

 private:
  Options options_;
  StoreClient store_;
  std::function<void()> on_failure_;
  int64_t num_events_ = 0;  // heard of
  mutable std::mutex mutex_;
  std::string failure_;  // guarded by it
  std::atomic<bool> has_failed_ = false;
};

}  // namespace megatron
