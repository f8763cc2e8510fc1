#include "megatron/comm/rendezvous/store_server.h"

#include <algorithm>
#include <charconv>

#include "megatron/base/error.h"
#include "megatron/base/thread_name.h"
#include "megatron/base/thread_start.h"
#include "megatron/comm/rendezvous/store_protocol.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLookForStop{50}, kLongestFarewell{2000}, kLookForKeys{5};
/// Timeouts between the bytes of one request, and between requests, where only the end of a connection counts.
constexpr milliseconds kWithinRequest{30000};
constexpr std::chrono::hours kBetweenRequests{24 * 20};

int64_t integer_of(const std::string& digits) {
  int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

std::vector<std::string> receive_keys(const Socket& socket) {
  constexpr uint64_t kMostKeys = 1 << 16;
  const auto count = receive_value<uint64_t>(socket, kWithinRequest);
  require<CommError>(count <= kMostKeys, "[store] {} keys: the peer is not a client", count);
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(receive_string(socket, kWithinRequest));
  return keys;
}

}  // namespace

std::jthread StoreServer::start_client_thread(std::function<void()> work) {
  return start_thread("for a rank that connects to the store of its job", std::move(work));
}

StoreServer::StoreServer(int port, ThreadStarter start_client)
    : start_client_(std::move(start_client)),
      listener_(port),
      acceptor_(start_thread("for ranks that connect", [this](const std::stop_token& stop) { accept(stop); })) {}

StoreServer::~StoreServer() {
  const auto deadline = Clock::now() + kLongestFarewell;
  const auto is_alone = [&] {
    const std::lock_guard lock(mutex_);
    return num_connected_ == 0;
  };
  while (!is_alone() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(5));
  acceptor_.request_stop();
  acceptor_.join();
  for (Client& client : clients_) client.socket.shut_down();
  for (Client& client : clients_) client.thread.join();
}

void StoreServer::accept(const std::stop_token& stop) {
  set_thread_name("store");
  while (!stop.stop_requested()) {
    Socket socket;
    if (!listener_.accept(socket, kLookForStop)) continue;
    const std::lock_guard lock(mutex_);
    Client& client = clients_.emplace_back(Client{std::move(socket), {}});
    try {
      client.thread = start_client_([this, &client] { serve(client.socket); });
      ++num_connected_;
    } catch (const ThreadRefusal& refusal) {
      refuse(client.socket, refusal.what());
      clients_.pop_back();
    }
  }
}

/// Answers the first requests of a StoreClient: a connection that is closed while it holds unread requests may lose the
/// answer.
void StoreServer::refuse(const Socket& socket, std::string_view reason) try {
  for (const StoreRequest expected : {StoreRequest::kValidate, StoreRequest::kPing}) {
    if (receive_value<StoreRequest>(socket, kLongestFarewell) != expected) return;
    receive_value<uint32_t>(socket, kLongestFarewell);
  }
  StoreMessage().add(kStoreRefusal).add_string(reason).send_to(socket, kLongestFarewell);
} catch (const CommError&) {  // the client has left
}

void StoreServer::serve(const Socket& socket) {
  set_thread_name("store client");
  try {
    while (true) answer(socket);
  } catch (const Error&) {  // the client has left, or uses another protocol
  }
  socket.shut_down();
  const std::lock_guard lock(mutex_);
  --num_connected_;
}

void StoreServer::answer(const Socket& socket) {
  const auto request = receive_value<StoreRequest>(socket, kBetweenRequests);
  switch (request) {
    case StoreRequest::kValidate:
      require<CommError>(receive_value<uint32_t>(socket, kWithinRequest) == kStoreMagic, "[store] no client");
      return;
    case StoreRequest::kPing:
      return StoreMessage().add(receive_value<uint32_t>(socket, kWithinRequest)).send_to(socket, kWithinRequest);
    case StoreRequest::kSet: {
      std::string key = receive_string(socket, kWithinRequest), value = receive_string(socket, kWithinRequest);
      const std::lock_guard lock(mutex_);
      values_.insert_or_assign(std::move(key), std::move(value));
      return;
    }
    case StoreRequest::kGet: {
      const std::string key = receive_string(socket, kWithinRequest);
      StoreMessage reply;
      {
        const std::lock_guard lock(mutex_);
        const auto value = values_.find(key);
        require<CommError>(value != values_.end(), "[store] no key {}", key);
        reply.add_string(value->second);
      }
      return reply.send_to(socket, kWithinRequest);
    }
    case StoreRequest::kAdd: {
      const std::string key = receive_string(socket, kWithinRequest);
      const auto summand = receive_value<int64_t>(socket, kWithinRequest);
      int64_t sum = 0;
      {
        const std::lock_guard lock(mutex_);
        std::string& value = values_[key];
        sum = integer_of(value) + summand;
        value = std::to_string(sum);
      }
      return StoreMessage().add(sum).send_to(socket, kWithinRequest);
    }
    case StoreRequest::kCheck:
      return StoreMessage()
          .add(static_cast<uint8_t>(has_all(receive_keys(socket)) ? 0 : 1))
          .send_to(socket, kWithinRequest);
    case StoreRequest::kWait:
      return answer_wait(socket);
    case StoreRequest::kCancelWait:  // of a wait that has been answered
      return StoreMessage().add(StoreWaitAnswer::kIsCanceled).send_to(socket, kWithinRequest);
  }
  throw CommError(fmt::format("[store] unknown request {}", static_cast<int>(request)));
}

bool StoreServer::has_all(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(keys, [&](const std::string& key) { return values_.contains(key); });
}

/// While a client waits it may only cancel the wait.
void StoreServer::answer_wait(const Socket& socket) {
  const std::vector<std::string> keys = receive_keys(socket);
  auto answer = StoreWaitAnswer::kIsThere;
  while (answer == StoreWaitAnswer::kIsThere && !has_all(keys)) {
    if (!socket.has_received(kLookForKeys)) continue;
    require<CommError>(receive_value<StoreRequest>(socket, kWithinRequest) == StoreRequest::kCancelWait,
                       "[store] a request within a wait");
    answer = StoreWaitAnswer::kIsCanceled;
  }
  StoreMessage().add(answer).send_to(socket, kWithinRequest);
}

}  // namespace megatron
