// Commands around models of Hugging Face's, run in this process.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/testing/words.h"

namespace megatron::testing {

/// The folder of a model of tests/golden/hf.
std::string golden_model(const std::string& name);

struct Ended {
  int status = 0;
  std::string out, err;
};
Ended bridge(const Words& words);
/// With one thread on the CPU.
Ended eval(const Words& words);
Ended pretrain(const Words& words);

nlohmann::json json_of(const std::string& path);
/// Tensors to the bit, and config.json.
void expect_same_model(const std::string& folder, const std::string& expected);

}  // namespace megatron::testing
