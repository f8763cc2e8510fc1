// Golden files of tests/golden as tensors.
#pragma once

#include <string>
#include <vector>

#include "megatron/dist_checkpointing/safetensors.h"

namespace megatron::testing {

/// A file below tests/golden, such as "training/model_gpt2.safetensors".
class GoldenTensors {
 public:
  explicit GoldenTensors(const std::string& path);
  std::vector<std::string> names() const;
  const Shape& shape(const std::string& name) const { return file_.tensor(name).shape; }
  /// In row-major order, whatever the type.
  std::vector<double> values(const std::string& name) const;
  std::vector<int64_t> integers(const std::string& name) const;

 private:
  SafetensorsFile file_;
};

}  // namespace megatron::testing
