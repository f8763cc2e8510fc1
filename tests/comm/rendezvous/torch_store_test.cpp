// Our store's client against PyTorch's servers, which torchrun's agent runs, and our server against PyTorch's client.
//   MEGATRON_REFERENCE_PYTHON=/path/to/python ctest -L reference
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "megatron/base/error.h"
#include "megatron/comm/rendezvous/store_client.h"
#include "megatron/comm/rendezvous/store_server.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

constexpr std::chrono::seconds kLong{20};
constexpr const char* kPrefix = "megatron/run/0/";

/// torch_store.py with arguments, read line by line.
class Python {
 public:
  explicit Python(const std::string& arguments)
      : pipe_(popen(fmt::format("'{}' -W ignore '{}/tests/comm/rendezvous/torch_store.py' {}",
                                std::getenv("MEGATRON_REFERENCE_PYTHON"), testing::source_path(), arguments)
                        .c_str(),
                    "r")) {}
  ~Python() { pclose(pipe_); }
  Python(const Python&) = delete;
  Python& operator=(const Python&) = delete;
  std::string line() {
    std::string text;
    for (int c = 0; (c = std::fgetc(pipe_)) != EOF && c != '\n';) text += static_cast<char>(c);
    return text;
  }

 private:
  FILE* pipe_;
};

class TorchStore : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("MEGATRON_REFERENCE_PYTHON")) GTEST_SKIP() << "set MEGATRON_REFERENCE_PYTHON to one with torch";
  }
};

TEST_F(TorchStore, BothKindsServeOurClient) {
  for (const char* kind : {"libuv", "legacy"}) {
    SCOPED_TRACE(kind);
    Python server(fmt::format("serve {}", kind));
    StoreClient client({"127.0.0.1", std::stoi(server.line()), kPrefix}, kLong);
    EXPECT_EQ(client.find("theirs"), std::string("a\0b", 3));
    EXPECT_EQ(client.find("never"), std::nullopt);
    EXPECT_EQ(client.wait("never", std::chrono::milliseconds(50)), std::nullopt);
    client.set("ours", "value");
    EXPECT_EQ(client.add("count", 3), 3);
    EXPECT_EQ(client.add("count", 4), 7);
    EXPECT_EQ(client.find("count"), "7");
    client.set("done", "");
    EXPECT_EQ(server.line(), "b'value' 7 False");
  }
}

TEST_F(TorchStore, OurServerServesItsClient) {
  StoreServer server(0);
  StoreClient ours({"127.0.0.1", server.port(), kPrefix}, kLong);
  ours.add("count", 5);
  Python client(fmt::format("ask {}", server.port()));
  EXPECT_EQ(ours.wait("theirs", kLong), std::string("a\0b", 3));
  ours.set("ours", "value");  // it waits for this
  EXPECT_EQ(client.line(), "b'value' 7 False");
  EXPECT_EQ(client.line(), "waited in vain b'value'");
}

}  // namespace
}  // namespace megatron
