// Communication of the ranks of a job through their store: texts, and the failure that ends every wait.
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

/// The longest pause of a thread that polls the store.
inline constexpr std::chrono::milliseconds kLongestStorePause{10};

/// Needs no GPU. Thread-safe.
class StoreMeeting {
 public:
  struct Options {
    int rank = 0, size = 1;
    StoreClient::Address store;
    std::chrono::milliseconds timeout{0};  // until all ranks have arrived
  };
  /// @param on_failure  called once, when a failure is known here: waits on this rank must check has_failed().
  /// Any thread.
  StoreMeeting(const Options& options, std::function<void()> on_failure);
  StoreMeeting(const StoreMeeting&) = delete;
  StoreMeeting& operator=(const StoreMeeting&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  StoreClient& store() { return store_; }

  /// Returns when all ranks have called it. @return the text of each, by rank. @throw CommError as wait_for()
  std::vector<std::string> meet(const std::string& own);
  /// The value that a rank sets for a key. @param what for messages. @param source  the rank. @throw CommError if the
  /// world fails, or the value is not set in time
  std::string wait_for(std::string_view key, std::string_view what, int source, std::chrono::milliseconds timeout);
  /// The texts of all `members`, which call it once with the same `key`. Has no timeout. @param what see
  /// wait_for(). @throw CommError if the world fails
  std::vector<std::string> exchange(std::string_view key, std::string_view what, const std::vector<int>& members,
                                    const std::string& own);
  /// Returns when `count` ranks have called it with that key, or a rank has failed.
  void count_to(int64_t count, std::string_view key, std::string_view what, std::chrono::milliseconds timeout);
  /// Returns when all ranks have called it. @throw CommError if the world fails
  void finish(std::chrono::milliseconds timeout);

  /// Fails all ranks. The first reason stays.
  void fail(const std::string& text);
  /// Fails this rank only: the others have reported the failure, or cannot be reached.
  void fail_here(const std::string& text);
  bool has_failed() const { return has_failed_; }
  void throw_if_failed() const;

  /// Polled by one thread: learns of failures of other ranks. @return whether a rank has called publish_update()
  bool poll_updates();
  void publish_update();

 private:
  Options options_;
  StoreClient store_;
  std::function<void()> on_failure_;
  int64_t num_events_ = 0;  // seen so far
  mutable std::mutex mutex_;
  std::string failure_;  // guarded by the mutex
  std::atomic<bool> has_failed_ = false;
};

}  // namespace megatron
