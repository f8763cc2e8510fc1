// How the weights beside a config.json are quantised: its key quantization_config.
#pragma once

#include <optional>

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

inline constexpr const char* kQuantizationConfig = "quantization_config";

enum class QuantizationMethod {
  kFp8Blocks,  ///< e4m3 matrices; each block of rows and columns has a factor in a tensor NAME_scale_inv
  kMxfp4,      ///< NAME_blocks and NAME_scales: 32 numbers of 4 bits with a power of two
};

struct Quantization {
  QuantizationMethod method = QuantizationMethod::kFp8Blocks;
  int64_t block_rows = 128, block_columns = 128;  ///< of kFp8Blocks
};

/// Nothing where config.json does not quantise. Call check_quantization() before.
std::optional<Quantization> quantization_of(const Json& config);
/// Rejects what quantization_of() does not know.
void check_quantization(ConfigReader& config);

}  // namespace megatron::hugging_face
