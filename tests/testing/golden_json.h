// Golden files of tests/golden as JSON.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "megatron/base/error.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {

/// The value of `key` in a file below tests/golden, such as ("training/flops.json", "cases").
inline nlohmann::json golden_json(const std::string& path, const std::string& key) {
  std::ifstream file(golden_path(path));
  require<IoError>(file.good(), "tests/golden/{} cannot be read", path);
  return nlohmann::json::parse(file).at(key);
}

}  // namespace megatron::testing
