// A rank's connection to the key-value store of its job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/rendezvous/socket.h"

namespace megatron {

class StoreMessage;

/// Client of a StoreServer, or of the TCPStore of torchrun's agent. Thread-safe. All calls throw CommError if the
/// connection is lost.
class StoreClient {
 public:
  struct Address {
    std::string host;
    int port = 0;
    std::string prefix;  // of all keys of a job: "megatron/RUN/RESTART/"
  };
  /// Retries the connection until `timeout`.
  StoreClient(const Address& address, std::chrono::milliseconds timeout);

  void set(std::string_view key, std::string_view value);
  std::optional<std::string> find(std::string_view key);
  /// For a key without set(). @return the sum of all numbers that ranks have added, including this one
  int64_t add(std::string_view key, int64_t value);
  /// The value, as soon as it is set; nothing if it is not set after `timeout` or when `gives_up` returns true.
  std::optional<std::string> wait(
      std::string_view key, std::chrono::milliseconds timeout,
      const std::function<bool()>& gives_up = [] { return false; });

 private:
  std::string full(std::string_view key) const;

  std::mutex mutex_;  // one request and its answer at a time
  std::string prefix_;
  Socket socket_;
};

}  // namespace megatron
