// The key-value store through which ranks find each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/thread_start.h"
#include "megatron/comm/rendezvous/store_client.h"
#include "megatron/comm/rendezvous/store_protocol.h"
#include "megatron/comm/rendezvous/store_server.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr std::chrono::seconds kStoreTimeout{20};

TEST(Store, ReturnsTheValueOfAnotherRank) {
  StoreServer server(0);
  StoreClient first({"127.0.0.1", server.port(), "run/"}, kStoreTimeout),
      second({"localhost", server.port(), "run/"}, kStoreTimeout);
  const std::string value("a\0b\n", 4), large(300007, 'x');
  first.set("id", value);
  first.set("large", large);
  first.add("last request before the other rank asks", 1);
  EXPECT_THAT(second.find("id"), Optional(value));
  EXPECT_THAT(second.find("large"), Optional(large));
  EXPECT_EQ(second.find("other"), std::nullopt);
}

TEST(Store, PrefixesSeparateRuns) {
  StoreServer server(0);
  StoreClient before({"127.0.0.1", server.port(), "run/0/"}, kStoreTimeout),
      after({"127.0.0.1", server.port(), "run/1/"}, kStoreTimeout);
  before.set("id", "old");
  before.add("n", 5);
  EXPECT_EQ(after.find("id"), std::nullopt);
  EXPECT_EQ(after.add("n", 1), 1);
}

TEST(Store, SumsWhatAllRanksAdd) {
  StoreServer server(0);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 5; ++rank)
    ranks.emplace_back([&] {
      StoreClient client({"127.0.0.1", server.port(), ""}, kStoreTimeout);
      for (int i = 0; i < 200; ++i) client.add("n", 1);
    });
  ranks.clear();
  StoreClient client({"127.0.0.1", server.port(), ""}, kStoreTimeout);
  EXPECT_EQ(client.add("n", 0), 1000);
  EXPECT_THAT(client.find("n"), Optional(std::string("1000")));
}

TEST(Store, WaitsForAKeyThatIsSetLater) {
  StoreServer server(0);
  StoreClient waiting({"127.0.0.1", server.port(), ""}, kStoreTimeout);
  std::jthread later([&] {
    std::this_thread::sleep_for(milliseconds(100));
    StoreClient({"127.0.0.1", server.port(), ""}, kStoreTimeout).set("id", "x");
  });
  EXPECT_THAT(waiting.wait("id", kStoreTimeout), Optional(std::string("x")));
  EXPECT_EQ(waiting.wait("never", milliseconds(30)), std::nullopt);
  EXPECT_EQ(waiting.wait("never", kStoreTimeout, [] { return true; }), std::nullopt);
}

TEST(Store, ClientsWaitUntilItListens) {
  int port = 0;
  { port = Listener(0).port(); }
  std::jthread client([&] { StoreClient({"127.0.0.1", port, ""}, kStoreTimeout).set("id", "x"); });
  std::this_thread::sleep_for(milliseconds(150));
  StoreServer server(port);
  EXPECT_THAT(StoreClient({"127.0.0.1", port, ""}, kStoreTimeout).wait("id", kStoreTimeout),
              Optional(std::string("x")));
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

TEST(Store, AnUnreachableAddressIsReported) {
  int port = 0;
  { port = Listener(0).port(); }
  EXPECT_THAT(error_of([&] {
                StoreClient({"127.0.0.1", port, ""}, milliseconds(80));
              }),
              HasSubstr(fmt::format("127.0.0.1:{} could not be reached within 0.08 s", port)));
  EXPECT_THAT(error_of([&] { StoreServer first(port), second(port); }),
              HasSubstr(fmt::format("Port {} cannot be listened on", port)));
}

TEST(Store, ALostStoreIsReported) {
  auto server = std::make_unique<StoreServer>(0);
  const int port = server->port();
  StoreClient client({"127.0.0.1", port, ""}, kStoreTimeout);
  client.set("id", "x");
  server.reset();
  EXPECT_THAT(error_of([&] {
                client.add("n", 1);
                client.add("n", 1);
              }),
              HasSubstr(fmt::format("The connection to 127.0.0.1:{} is lost", port)));
}

TEST(Store, TellsAClientWhoseThreadCannotBeStartedWhyAndServesOthers) {
  std::atomic<bool> is_full{false};
  StoreServer server(0, [&](std::function<void()> work) {
    if (is_full) throw ThreadRefusal(thread_refusal_text("for a client", "Resource temporarily unavailable"));
    return std::jthread(std::move(work));
  });
  StoreClient first({"127.0.0.1", server.port(), ""}, kStoreTimeout);
  is_full = true;
  EXPECT_THAT(error_of([&] {
                StoreClient({"127.0.0.1", server.port(), ""}, kStoreTimeout);
              }),
              AllOf(HasSubstr(fmt::format("at 127.0.0.1:{} cannot serve this rank", server.port())),
                    HasSubstr("The system starts no thread for a client: Resource temporarily unavailable"),
                    HasSubstr("ulimit -u")));
  EXPECT_EQ(first.add("n", 2), 2);
  is_full = false;
  EXPECT_EQ(StoreClient({"127.0.0.1", server.port(), ""}, kStoreTimeout).add("n", 2), 4);
}

TEST(Store, OutlivesAClientOfAnotherProtocol) {
  StoreServer server(0);
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  const Socket stranger = Socket::connect("127.0.0.1", server.port(), kStoreTimeout);
  stranger.send(std::as_bytes(std::span(request)), kStoreTimeout);
  EXPECT_THROW(receive_value<uint8_t>(stranger, kStoreTimeout), CommError);
  EXPECT_EQ(StoreClient({"127.0.0.1", server.port(), ""}, kStoreTimeout).add("n", 2), 2);
}

TEST(Store, AnswersAWaitWhenAllKeysAreThereOrItIsCanceled) {
  StoreServer server(0);
  const Socket client = Socket::connect("127.0.0.1", server.port(), kStoreTimeout);
  const auto ask = [&] {
    StoreMessage()
        .add(StoreRequest::kWait)
        .add(uint64_t{2})
        .add_string("/a")
        .add_string("/b")
        .send_to(client, kStoreTimeout);
  };
  StoreClient other({"127.0.0.1", server.port(), ""}, kStoreTimeout);
  other.set("a", "x");
  ask();
  EXPECT_FALSE(client.has_received(milliseconds(60)));
  StoreMessage().add(StoreRequest::kCancelWait).send_to(client, kStoreTimeout);
  EXPECT_EQ(receive_value<StoreWaitAnswer>(client, kStoreTimeout), StoreWaitAnswer::kIsCanceled);
  ask();
  other.set("b", "x");
  EXPECT_EQ(receive_value<StoreWaitAnswer>(client, kStoreTimeout), StoreWaitAnswer::kIsThere);
}

/// A listener that accepts no connection, with a full backlog.
class FullListener {
 public:
  FullListener() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(descriptor_, 0), 0);
    EXPECT_EQ(::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    for (int i = 0; i < 4; ++i) {
      waiting_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(waiting_.back(), reinterpret_cast<sockaddr*>(&address), size);
    }
  }
  ~FullListener() {
    for (int descriptor : waiting_) ::close(descriptor);
    ::close(descriptor_);
  }
  FullListener(const FullListener&) = delete;
  FullListener& operator=(const FullListener&) = delete;
  int port() const { return port_; }

 private:
  int descriptor_, port_ = 0;
  std::vector<int> waiting_;
};

template <class F>
std::chrono::duration<double> time_of(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::steady_clock::now() - begin;
}
constexpr std::chrono::seconds kBarelyLonger{5};  // than any timeout below, on a machine that is busy

TEST(Socket, AnUnansweredConnectionTimesOut) {
  const FullListener listener;
  std::string error;
  EXPECT_LT(
      time_of([&] { error = error_of([&] { Socket::connect("127.0.0.1", listener.port(), milliseconds(300)); }); }),
      kBarelyLonger);
  EXPECT_THAT(error, HasSubstr("could not be reached within 0.3 s: Connection timed out"));
}

TEST(Socket, AMessageThatIsNotAcceptedTimesOut) {
  const Listener listener(0);
  const Socket sender = Socket::connect("127.0.0.1", listener.port(), kStoreTimeout);
  const std::vector<std::byte> message(size_t{64} << 20);
  std::string error;
  EXPECT_LT(time_of([&] { error = error_of([&] { sender.send(message, milliseconds(200)); }); }), kBarelyLonger);
  EXPECT_THAT(error, HasSubstr("has not accepted a message within 0.2 s"));
}

TEST(Socket, ATricklingMessageTimesOut) {
  const Listener listener(0);
  const Socket receiver = Socket::connect("127.0.0.1", listener.port(), kStoreTimeout);
  Socket sender;
  ASSERT_TRUE(listener.accept(sender, kStoreTimeout));
  std::jthread drops([&](const std::stop_token& stop) {
    const std::byte drop{1};
    while (!stop.stop_requested()) {
      sender.send(std::span(&drop, 1), kStoreTimeout);
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  std::vector<std::byte> message(100000);
  std::string error;
  EXPECT_LT(time_of([&] { error = error_of([&] { receiver.receive(message, milliseconds(200)); }); }), kBarelyLonger);
  EXPECT_THAT(error, HasSubstr("has not answered for 0.2 s"));
}

}  // namespace
}  // namespace megatron
