// Compares what we read with the JSON that the fixtures' scripts wrote about it; tests/golden/checkpoint/README.md
// lists the tags.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "megatron/dist_checkpointing/torch_file.h"

namespace megatron {

std::string read_golden(const std::string& name);
nlohmann::json read_golden_json(const std::string& name);
/// The folder of the checkpoint that a case saved, from its tracker file: "lm019/llama_1/saved/iter_0000002/".
std::string saved_folder(const std::string& name);

/// Says where they differ instead of printing them.
::testing::AssertionResult same_bytes(std::string_view actual, std::string_view expected);

/// `file` holds the tensors of the object; null where there are none.
::testing::AssertionResult matches(const pickle::Object& object, const nlohmann::json& expected, const TorchFile* file);

}  // namespace megatron
