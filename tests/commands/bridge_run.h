// Commands around models of Hugging Face's, run in this process.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "megatron/dist_checkpointing/safetensors_folder.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/words.h"

namespace megatron::testing {

/// The folder of a model of tests/golden/hf.
std::string golden_model(const std::string& name);
/// All of them whose weights are not quantised.
Words golden_models();

struct Ended {
  int status = 0;
  std::string out, err;
};
Ended bridge(const Words& words);
/// With one thread on the CPU.
Ended eval(const Words& words);
Ended pretrain(const Words& words);

SafetensorsFile open_safetensors(const std::string& path);
std::vector<float> floats_of(const SafetensorsFile& file, const std::string& name);
/// Logits of the tokens of the golden model `name`. @param model  words that name the model to run
std::vector<float> logits_of(const Words& model, const std::string& name, const ScratchDirectory& scratch);

nlohmann::json json_of(const std::string& path);
/// Names, types, shapes and bits.
void expect_same_tensors(const std::string& folder, const std::string& expected);
/// Tensors to the bit, and config.json.
void expect_same_model(const std::string& folder, const std::string& expected);

}  // namespace megatron::testing
