#include "commands/straggler_controller.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/base/thread_name.h"
#include "megatron/base/thread_start.h"

namespace megatron {
namespace {

using namespace std::chrono_literals;
constexpr auto kPause = 200ms;     // between two checks for the end
constexpr auto kPatience = 500ms;  // for a client's request
constexpr std::string_view kAnswer =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    "Reports of stragglers switch on or off at the next report.\n";

}  // namespace

StragglerController::StragglerController(int port)
    : listener_(port), thread_(start_thread("to answer at --straggler-ctrlr-port", [this](const std::stop_token& stop) {
        set_thread_name("stragglers");
        serve(stop);
      })) {}

void StragglerController::serve(const std::stop_token& stop) {
  while (!stop.stop_requested()) try {
      Socket asking;
      if (!listener_.accept(asking, kPause)) continue;
      std::array<std::byte, 4> method{};
      asking.receive(method, kPatience);
      ++num_requests_;
      asking.send(std::as_bytes(std::span(kAnswer)), kPatience);
    } catch (const CommError&) {  // a client connected and left
    }
}

}  // namespace megatron
