#include "megatron/pipeline_parallel/action.h"

#include <fmt/core.h>

#include <array>

namespace megatron {

std::string_view name_of(ActionKind kind) {
  constexpr std::array<std::string_view, 8> kNames = {
      "F", "B", "W", "BW", "send_forward", "recv_forward", "send_backward", "recv_backward"};
  return kNames[static_cast<size_t>(kind)];
}

std::string to_string(const Schedule& schedule) {
  std::string text;
  for (const Action& a : schedule)
    text += fmt::format("{}{}{}.{}", text.empty() ? "" : " ", name_of(a.kind), a.chunk, a.micro_batch);
  return text;
}

}  // namespace megatron
