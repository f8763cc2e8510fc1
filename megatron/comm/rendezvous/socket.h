// TCP connections whose calls end by a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace megatron {

/// A connected stream of bytes. Move-only; one thread may send and another receive. All calls throw CommError with the
/// peer's address.
class Socket {
 public:
  Socket() = default;
  Socket(int descriptor, std::string peer) : descriptor_(descriptor), peer_(std::move(peer)) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), peer_(std::move(other.peer_)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(peer_, other.peer_);
    return *this;
  }

  /// Retries until `timeout`: the other side may start later, and its name may become known later. Time that the
  /// name resolver takes beyond that is not limited.
  static Socket connect(const std::string& host, int port, std::chrono::milliseconds timeout);

  /// @throw CommError if the other side closes, or has not accepted all after `timeout`
  void send(std::span<const std::byte> bytes, std::chrono::milliseconds timeout) const;
  /// Fills `bytes`. @throw CommError if the other side closes, or has not sent all after `timeout`
  void receive(std::span<std::byte> bytes, std::chrono::milliseconds timeout) const;
  /// Says whether there is something to receive, or the other side has closed, within `timeout`.
  bool has_received(std::chrono::milliseconds timeout) const;
  /// Ends calls in which other threads wait.
  void shut_down() const;

 private:
  void close();
  int descriptor_ = -1;
  std::string peer_;
};

/// Accepts connections on all addresses of this host.
class Listener {
 public:
  /// @param port 0: a free one. @throw CommError if it is in use
  explicit Listener(int port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  /// A connection, or an unconnected socket if none arrived within `timeout`.
  bool accept(Socket& socket, std::chrono::milliseconds timeout) const;

 private:
  int descriptor_ = -1, port_ = 0;
};

}  // namespace megatron
