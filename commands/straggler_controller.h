// The port of --straggler-ctrlr-port.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "megatron/comm/rendezvous/socket.h"

namespace megatron {

/// Counts requests, each of which turns the report of stragglers on or off. It answers by HTTP, so that
/// `curl http://HOST:PORT` is a request. The destructor stops it.
class StragglerController {
 public:
  /// @throw CommError if the port is in use
  explicit StragglerController(int port);

  int port() const { return listener_.port(); }
  const std::atomic<int64_t>& num_requests() const { return num_requests_; }

 private:
  void serve(const std::stop_token& stop);

  Listener listener_;
  std::atomic<int64_t> num_requests_{0};
  std::jthread thread_;
};

}  // namespace megatron
