#include "megatron/comm/rendezvous/store_client.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/comm/longest_timeout.h"
#include "megatron/comm/rendezvous/store_protocol.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kStoreAnswerTime{30000};
constexpr milliseconds kShortestCheckPause{1}, kLongestCheckPause{50};

}  // namespace

StoreClient::StoreClient(const Address& address, milliseconds timeout)
    : prefix_("/" + address.prefix), socket_(Socket::connect(address.host, address.port, timeout)) {
  StoreMessage().add(StoreRequest::kValidate).add(kStoreMagic).send_to(socket_, kStoreAnswerTime);
  const auto number = static_cast<uint32_t>(getpid());
  StoreMessage().add(StoreRequest::kPing).add(number).send_to(socket_, kStoreAnswerTime);
  const auto answer = receive_value<uint32_t>(socket_, kStoreAnswerTime);
  if (answer == kStoreRefusal)
    throw CommError(fmt::format("The store of the job at {}:{} cannot serve this rank. {}", address.host, address.port,
                                receive_string(socket_, kStoreAnswerTime)));
  require<CommError>(answer == number,
                     "{}:{} is not a store for ranks: another program listens there. Set MASTER_PORT to a free port.",
                     address.host, address.port);
}

std::string StoreClient::full(std::string_view key) const { return prefix_ + std::string(key); }

void StoreClient::set(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  StoreMessage().add(StoreRequest::kSet).add_string(full(key)).add_string(value).send_to(socket_, kStoreAnswerTime);
}

std::optional<std::string> StoreClient::find(std::string_view key) {
  const std::lock_guard lock(mutex_);
  StoreMessage().add(StoreRequest::kCheck).add(uint64_t{1}).add_string(full(key)).send_to(socket_, kStoreAnswerTime);
  if (receive_value<uint8_t>(socket_, kStoreAnswerTime) != 0) return std::nullopt;
  StoreMessage().add(StoreRequest::kGet).add_string(full(key)).send_to(socket_, kStoreAnswerTime);
  return receive_string(socket_, kStoreAnswerTime);
}

int64_t StoreClient::add(std::string_view key, int64_t value) {
  const std::lock_guard lock(mutex_);
  StoreMessage().add(StoreRequest::kAdd).add_string(full(key)).add(value).send_to(socket_, kStoreAnswerTime);
  return receive_value<int64_t>(socket_, kStoreAnswerTime);
}

std::optional<std::string> StoreClient::wait(std::string_view key, milliseconds timeout,
                                             const std::function<bool()>& gives_up) {
  const auto deadline = Clock::now() + std::min(timeout, kLongestTimeout);
  for (milliseconds pause = kShortestCheckPause;; pause = std::min(2 * pause, kLongestCheckPause)) {
    if (auto value = find(key)) return value;
    if (gives_up() || Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace megatron
