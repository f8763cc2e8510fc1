// Keys and values that the ranks of a job share while they find each other.
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

/// Answers StoreClients, a thread for each: for the tens of ranks of a few hosts. Speaks the part of PyTorch's TCPStore
/// protocol that ranks need (set, get, add, wait), so that under torchrun its own server takes the place of this one.
class StoreServer {
 public:
  /// @param port 0: a free one. @throw CommError if it is taken
  explicit StoreServer(int port);
  /// Waits a while for clients to leave: they may still ask for the news with which the job ends.
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
  std::jthread acceptor_;  // goes first
};

}  // namespace megatron
