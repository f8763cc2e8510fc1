// The wire protocol of PyTorch's TCPStore, as far as ranks here need it.
// Source: torch/csrc/distributed/c10d/TCPStoreBackend.hpp, TCPStore.cpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "megatron/base/error.h"
#include "megatron/comm/rendezvous/socket.h"

namespace megatron {

/// First byte of a request. A string is its length in 64 bits and its bytes.
enum class StoreRequest : uint8_t {
  kValidate = 0,     // kStoreMagic in 32 bits; no answer
  kSet = 1,          // key, value; no answer
  kGet = 3,          // key; answer: value
  kAdd = 4,          // key, int64; answer: int64, the sum. The value is kept as decimal digits
  kCheck = 5,        // number of keys in 64 bits, keys; answer: byte, 0 if all are there
  kWait = 6,         // number of keys in 64 bits, keys; answer, when all are there: StoreWaitAnswer
  kCancelWait = 12,  // answer: StoreWaitAnswer. Also while a wait is not answered, which it then ends
  kPing = 13         // 32 bits; answer: the same
};
enum class StoreWaitAnswer : uint8_t { kIsThere = 0, kIsCanceled = 1 };
inline constexpr uint32_t kStoreMagic = 0x3C85F7CE;
/// Our own addition: the answer to a client's first kPing where the server cannot serve it, followed by the reason as a
/// string. No process has this number.
inline constexpr uint32_t kStoreRefusal = 0xFFFFFFFF;

/// A request to send.
class StoreMessage {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T> StoreMessage& add(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  StoreMessage& add_string(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  void send_to(const Socket& socket, std::chrono::milliseconds timeout) const {
    socket.send(std::as_bytes(std::span(bytes_)), timeout);
  }

 private:
  std::string bytes_;
};

template <class T>
T receive_value(const Socket& socket, std::chrono::milliseconds timeout) {
  T value{};
  socket.receive(std::as_writable_bytes(std::span(&value, 1)), timeout);
  return value;
}

/// @throw CommError if it is too long: the peer uses another protocol
inline std::string receive_string(const Socket& socket, std::chrono::milliseconds timeout) {
  constexpr uint64_t kLongest = 1 << 20;
  const auto length = receive_value<uint64_t>(socket, timeout);
  require<CommError>(length <= kLongest, "[store] a string of {} bytes: the peer is not a TCPStore", length);
  std::string text(length, '\0');
  socket.receive(std::as_writable_bytes(std::span(text)), timeout);
  return text;
}

}  // namespace megatron
