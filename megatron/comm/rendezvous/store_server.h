// The key-value store through which the ranks of a job find each other.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "megatron/comm/rendezvous/socket.h"

namespace megatron {

/// Answers StoreClients, with a thread for each: for the tens of ranks of a few hosts. Implements the part of PyTorch's
/// TCPStore protocol that ranks need (set, get, add, wait), so that torchrun's own server can replace this one.
class StoreServer {
 public:
  /// Starts the thread of one client. @throw ThreadRefusal: the client is told why, and others are served.
  using ThreadStarter = std::function<std::jthread(std::function<void()>)>;
  /// @param port 0: a free one. @throw CommError if it is in use
  explicit StoreServer(int port, ThreadStarter start_client = start_client_thread);
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
  static std::jthread start_client_thread(std::function<void()> work);
  void accept(const std::stop_token& stop);
  static void refuse(const Socket& socket, std::string_view reason);
  void serve(const Socket& socket);
  void answer(const Socket& socket);
  bool has_all(const std::vector<std::string>& keys);
  void answer_wait(const Socket& socket);

  ThreadStarter start_client_;
  Listener listener_;
  std::mutex mutex_;  // guards the three below
  std::map<std::string, std::string> values_;
  std::list<Client> clients_;
  int num_connected_ = 0;
  std::jthread acceptor_;  // destroyed first
};

}  // namespace megatron
