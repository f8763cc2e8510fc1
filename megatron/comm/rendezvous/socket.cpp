#include "megatron/comm/rendezvous/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBetweenAttempts{50};
constexpr int kBacklog = 1024;

void send_at_once(int descriptor) {
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Says whether `descriptor` is ready for `events`, or broken, before `deadline`.
bool wait_until(int descriptor, short events, Clock::time_point deadline) {
  pollfd entry{descriptor, events, 0};
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    const int count = ::poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30)));
    if (count > 0) return true;
    if (count == 0 ? Clock::now() >= deadline : errno != EINTR) return false;
  }
}

/// 0, or the error of the connection.
int error_of_connect(int descriptor, const addrinfo& address, Clock::time_point deadline) {
  if (::connect(descriptor, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_until(descriptor, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

/// A descriptor, or -1 and the error. Each of several addresses gets its share of the time.
int try_to_connect(const std::string& host, int port, Clock::time_point deadline, std::string& reason) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); status != 0) {
    reason = gai_strerror(status);
    return -1;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  int num_left = 0;
  for (const addrinfo* address = list; address; address = address->ai_next) ++num_left;
  for (const addrinfo* address = list; address; address = address->ai_next) {
    const int descriptor =
        ::socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->ai_protocol);
    const auto own_deadline = Clock::now() + (deadline - Clock::now()) / num_left--;
    const int error = descriptor >= 0 ? error_of_connect(descriptor, *address, own_deadline) : errno;
    if (error == 0) return descriptor;
    reason = std::strerror(error);
    if (descriptor >= 0) ::close(descriptor);
  }
  return -1;
}

}  // namespace

Socket Socket::connect(const std::string& host, int port, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::string reason;
  while (true) {
    const int descriptor = try_to_connect(host, port, deadline, reason);
    if (descriptor >= 0) {
      send_at_once(descriptor);
      return {descriptor, fmt::format("{}:{}", host, port)};
    }
    require<CommError>(Clock::now() < deadline,
                       "{}:{} could not be reached within {} s: {}. Check MASTER_ADDR and MASTER_PORT, and that rank "
                       "0's host accepts connections from this one.",
                       host, port, static_cast<double>(timeout.count()) / 1000, reason);
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

void Socket::send(std::span<const std::byte> bytes, milliseconds timeout) const {
  const auto deadline = Clock::now() + timeout;
  while (!bytes.empty()) {
    const ssize_t count = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      require<CommError>(wait_until(descriptor_, POLLOUT, deadline), "{} has not accepted a message within {} s", peer_,
                         static_cast<double>(timeout.count()) / 1000);
      continue;
    }
    require<CommError>(count > 0, "The connection to {} is lost: {}", peer_, std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void Socket::receive(std::span<std::byte> bytes, milliseconds timeout) const {
  const auto deadline = Clock::now() + timeout;
  while (!bytes.empty()) {
    require<CommError>(wait_until(descriptor_, POLLIN, deadline), "{} has not answered for {} s", peer_,
                       static_cast<double>(timeout.count()) / 1000);
    const ssize_t count = ::recv(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
    require<CommError>(count > 0, "The connection to {} is lost: {}", peer_,
                       count == 0 ? "the peer closed it" : std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

bool Socket::has_received(milliseconds timeout) const {
  return wait_until(descriptor_, POLLIN, Clock::now() + timeout);
}

void Socket::shut_down() const { ::shutdown(descriptor_, SHUT_RDWR); }

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Listener::Listener(int port) : descriptor_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const bool has_ipv6 = descriptor_ >= 0;
  if (!has_ipv6) descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1, off = 0;
  setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage address{};
  auto size = static_cast<socklen_t>(has_ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  if (has_ipv6) {
    setsockopt(descriptor_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // IPv4 too
    auto& any = reinterpret_cast<sockaddr_in6&>(address);
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    auto& any = reinterpret_cast<sockaddr_in&>(address);
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<uint16_t>(port));
  }
  const bool listens = ::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       ::listen(descriptor_, kBacklog) == 0 &&
                       ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int reason = errno;
  if (!listens) ::close(descriptor_);
  require<CommError>(listens, "Port {} cannot be listened on: {}. Set MASTER_PORT to a free one.", port,
                     std::strerror(reason));
  port_ = ntohs(has_ipv6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                         : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

Listener::~Listener() { ::close(descriptor_); }

bool Listener::accept(Socket& socket, milliseconds timeout) const {
  if (!wait_until(descriptor_, POLLIN, Clock::now() + timeout)) return false;
  const int descriptor = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
  if (descriptor < 0) {  // for example too many open files: the caller is still in the queue, and poll returns at once
    std::this_thread::sleep_for(timeout);
    return false;
  }
  send_at_once(descriptor);
  socket = Socket(descriptor, "a rank");
  return true;
}

}  // namespace megatron
