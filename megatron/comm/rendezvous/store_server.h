// The key-value store through which the ranks of a job find each other.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "megatron/comm/rendezvous/socket.h"

namespace megatron {

/// Answers StoreClients, with a thread for each: for the tens of ranks of a few hosts. Implements the part of PyTorch's
/// TCPStore protocol that ranks need (set, get, add, wait), so that torchrun's own server can replace this one.
class StoreServer {
 public:
  /// @param port 0: a free one. @throw CommError if it is in use
  explicit StoreServer(int port);
  /// Waits a while for clients to leave: they may still query the failure that ends the job.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return listener_.port(); }

 private:
  struct Client {
    Socket socket;
    std::jthread thread;
  };
  void accept(const std::stop_token& stop);
  void serve(const Socket& socket);
  void answer(const Socket& socket);
  bool has_all(const std::vector<std::string>& keys);
  void answer_wait(const Socket& socket);

  Listener listener_;
  std::mutex mutex_;  // guards the three below
  std::map<std::string, std::string> values_;
  std::list<Client> clients_;
  int num_connected_ = 0;
  std::jthread acceptor_;  // destroyed first
};

}  // namespace megatron
