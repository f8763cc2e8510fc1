// `megatron checkpoint`, run in this process.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "commands/checkpoint/checkpoint.h"
#include "commands/exit_code.h"
#include "tests/testing/source_tree.h"
#include "tests/testing/words.h"

namespace megatron::testing {

inline constexpr int kDamaged = static_cast<int>(ExitCode::kCheckpoint);

struct ToolResult {
  int status;
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

inline ToolResult checkpoint(const Words& words) {
  std::ostringstream out, err;
  const int status = checkpoint_command(words, out, err);
  return {status, out.str(), err.str()};
}

/// The folder of --save of a case of tests/golden/checkpoint/lm019.
inline std::string golden(const std::string& name) { return golden_path("checkpoint/lm019/" + name + "/saved"); }

}  // namespace megatron::testing
